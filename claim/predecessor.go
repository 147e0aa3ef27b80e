package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Incarnation is a random number that each process of the dispatcher generates at
// its start. The zero value means none.
type Incarnation [16]byte

// Identity identifies one process of the dispatcher, so that a later process that
// holds the same lock can declare it lost.
//
// Before [Store.Join] the process locks a lock file on its host and writes its
// Incarnation into the file. Lock names the file by the boot id of the host, the
// device and the inode, so that no two files have the same name. A copy of the file
// contains the same Incarnation but has another name.
type Identity struct {
	Incarnation Incarnation
	Lock        string // at most 256 bytes; "" = there is no lock, and only the lease ends this dispatcher
}

// declareLostSQL ends the leases of the dispatchers with incarnation $1 that joined
// under lock $2. FOR UPDATE waits for their claims in flight. Claims that arrive
// later name an old epoch and take nothing. The statement removes the incarnation, so
// the heartbeats of these dispatchers fail. No dispatcher releases their running rows
// during $3, so that the workers can offer to resume the jobs.
const declareLostSQL = `
WITH predecessor AS MATERIALIZED (
	SELECT id FROM dispatcherd.dispatchers
	WHERE incarnation = $1::uuid AND host_lock = $2::text AND lost_at IS NULL AND NOT leaving
	ORDER BY id FOR UPDATE
)
UPDATE dispatcherd.dispatchers d
SET incarnation = NULL, epoch = epoch + 1, armed = false, capacity = '{}', beat_at = now(),
	lease = CASE WHEN $3::interval > interval '0' THEN $3 ELSE lease END,
	lost_at = CASE WHEN $3 > interval '0' THEN NULL ELSE now() END
FROM predecessor p WHERE d.id = p.id`

// errNoIdentity is the error of an incomplete identity, which no predecessor can have.
var errNoIdentity = errors.New("declare the predecessor lost: incarnation or lock is missing")

// DeclareLost ends the lease of the dispatcher that joined with the identity of
// predecessor, and reports whether there was such a dispatcher. From then on the
// predecessor can neither claim nor renew its lease, and its capacity does not count.
// During hold its running jobs can be adopted. Afterwards the next heartbeat of any
// dispatcher releases the remaining jobs and counts a crash for each. With hold 0 the
// next heartbeat releases all of them.
//
// The caller must hold the lock that predecessor.Lock names, and must have read
// predecessor.Incarnation from the file of the lock. Then no living process has this
// identity, because a living process would hold its lock. DeclareLost does not affect
// a dispatcher that has another incarnation, another lock or no lock, or that has
// handed over.
//
// DeclareLost may be called before [Store.Join]. After an error it may be called again.
func (s *Store) DeclareLost(ctx context.Context, predecessor Identity, hold time.Duration) (found bool, err error) {
	if predecessor.Incarnation == (Incarnation{}) || predecessor.Lock == "" {
		return false, errNoIdentity
	}
	err = s.lease.do(ctx, OpHeartbeat, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		tag, err := conn.Exec(ctx, declareLostSQL, predecessor.Incarnation, predecessor.Lock, hold)
		found = tag.RowsAffected() > 0
		return 0, err
	})
	if err != nil {
		return false, fmt.Errorf("declare the predecessor lost: %w", err)
	}
	return found, nil
}
