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
// The process writes its Incarnation into a lock file on its host while it holds
// the lock, and before [Store.Join]. Lock names that file by the boot id of the
// host, the device and the inode, so that no two files have the same name. A copy
// of the file contains the same Incarnation but has another name.
type Identity struct {
	Incarnation Incarnation
	Lock        string // at most 256 bytes; "" = there is no lock, and only the lease ends this dispatcher
}

// declareLostSQL ends the leases of the dispatchers with incarnation $1 that
// joined under lock $2. FOR UPDATE waits for their claims in flight, and claims
// that arrive later have an old epoch. Without an incarnation their heartbeats
// fail. What they run stays theirs for $3, so that the workers can offer to
// resume it.
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

// errNoIdentity says that an identity cannot belong to a predecessor.
var errNoIdentity = errors.New("declare the predecessor lost: incarnation or lock is missing")

// DeclareLost ends the lease of the dispatcher that joined with the given identity,
// and reports whether there was such a dispatcher. From then on this dispatcher can
// neither claim nor renew its lease, and its capacity does not count. During hold
// its running jobs can be adopted. Afterwards the next heartbeat of any dispatcher
// releases the remaining jobs and counts a crash for each. With hold 0 the next
// heartbeat releases all of them.
//
// The caller must hold the lock that predecessor.Lock names, and must have read
// predecessor.Incarnation from the file of the lock. Then no living process has
// this identity, because a living process would hold its lock. DeclareLost does not
// affect dispatchers with another incarnation, with another lock or without a lock.
// It does not affect those that handed over either.
//
// It may be called before [Store.Join], and again after an error.
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
