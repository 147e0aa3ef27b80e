package flowstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd"
)

// Connection runs f with a connection to Postgres. f returns of how many ends it was.
type Connection func(ctx context.Context, f func(context.Context, *pgx.Conn) (int, error)) error

// Settler sends the statements of a daemon.
type Settler struct {
	Do Connection
}

// Counted is the result of a settlement.
type Counted struct {
	Ends    int  // that were counted
	More    bool // there is more to do at once
	Blocked bool // ends were left out, because another transaction has locked their batch
}

// portion is about how many ends one round of a settlement counts.
const portion = 5000

// CountEnds counts ends, and releases the jobs that have waited for them. It ends after about 200 ms.
func (s Settler) CountEnds(ctx context.Context) (r Counted, err error) {
	err = s.Do(ctx, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		err := conn.QueryRow(ctx, `SELECT settled, more, blocked FROM dispatcherd.settle($1)`, portion).Scan(&r.Ends, &r.More, &r.Blocked)
		return r.Ends, err
	})
	return r, err
}

// firstOpenSQL returns the first open batch or flow with an id above $1.
const firstOpenSQL = `SELECT id FROM dispatcherd.batches WHERE ended_at IS NULL AND sealed_at IS NOT NULL AND id > $1 ORDER BY id LIMIT 1`

// Repair compares the counters of the first open batch or flow with an id above previous with the rows. It returns its id, also if the
// comparison fails, for example because it takes too long, and how many counters were wrong. Without one next is 0.
func (s Settler) Repair(ctx context.Context, previous dispatcherd.JobID) (next dispatcherd.JobID, wrong int, err error) {
	err = s.Do(ctx, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		return 0, conn.QueryRow(ctx, `SELECT coalesce(next, 0), wrong FROM dispatcherd.repair_next($1)`, int64(previous)).Scan(&next, &wrong)
	})
	if err != nil {
		_ = s.Do(ctx, func(ctx context.Context, conn *pgx.Conn) (int, error) { // otherwise next stays 0
			return 0, conn.QueryRow(ctx, firstOpenSQL, int64(previous)).Scan(&next)
		})
	}
	return next, wrong, err
}

// Expire deletes a portion of the batches and flows that have ended more than keep ago, and of the unique keys whose time
// is over. more says that there are more of them.
func (s Settler) Expire(ctx context.Context, keep time.Duration) (more bool, err error) {
	err = s.Do(ctx, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		return 0, conn.QueryRow(ctx, `SELECT dispatcherd.expire_flows($1)`, keep).Scan(&more)
	})
	return more, err
}
