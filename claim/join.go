package claim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
)

// joinSQL adds a run of a dispatcher: $1 id, $2 name, $3 lease, $4 incarnation, $5 lock.
// It returns no row if the id exists. $6 is the id of the former run of this process, or
// 0. This process no longer holds the rows of that run. So the former run is lost, also
// if its row is missing or valid because an earlier state of the table was restored. Then
// this process gives it up on its own, which is no crash.
const joinSQL = `
WITH former AS (
	INSERT INTO dispatcherd.dispatchers AS d (id, name, lease, incarnation, lost_at, leaving) OVERRIDING SYSTEM VALUE
	SELECT $6::int, $2::text, $3::interval, $4::uuid, now(), true WHERE $6 > 0
	ON CONFLICT (id) DO UPDATE SET lost_at = now(), leaving = true, armed = false
	WHERE d.incarnation = excluded.incarnation AND d.lost_at IS NULL AND NOT d.leaving
)
INSERT INTO dispatcherd.dispatchers (id, name, lease, incarnation, host_lock) OVERRIDING SYSTEM VALUE
VALUES ($1::int, $2, $3, $4, nullif($5::text, ''))
ON CONFLICT (id) DO NOTHING RETURNING id`

// Join registers a new run of a dispatcher and gives this store its id. From then on
// the dispatcher can claim only while it sends at least one heartbeat per lease. The id is random. A sequence would
// assign the id of a living dispatcher again after an earlier state was restored. The records of a former
// run are kept, because the workers still execute its jobs: an adoption may take them over.
func (s *Store) Join(ctx context.Context) (int32, error) {
	id := int32(0)
	err := s.lease.do(ctx, OpHeartbeat, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		for {
			err := conn.QueryRow(ctx, joinSQL, 1+rand.Int32N(math.MaxInt32), truncate(s.config.Name, 128), s.config.Lease,
				s.config.Identity.Incarnation, s.config.Identity.Lock, s.me.Load()).Scan(&id)
			if !errors.Is(err, pgx.ErrNoRows) { // no row: the id exists, which has a probability below 1 in 1,000,000
				return 0, err
			}
		}
	})
	if err != nil {
		return 0, fmt.Errorf("join: %w", err)
	}
	s.epoch.Store(0)
	s.me.Store(id)
	return id, nil
}
