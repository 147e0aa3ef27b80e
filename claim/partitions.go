package claim

import (
	"context"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/jackc/pgx/v5"
)

// Retention says how long rows of ended jobs are kept.
type Retention struct {
	Done, Failed, Cancelled time.Duration
}

// DaysAhead is how many daily partitions are created before they are needed.
const DaysAhead = 3

// KeepPartitions creates the daily partitions of the coming days and drops those
// whose retention has ended. Call it at start and every hour, in any number of
// daemons. Partitions that are in use are blocked: the next call tries again.
func (s *Store) KeepPartitions(ctx context.Context, keep Retention) (made, dropped, blocked int, err error) {
	for _, r := range []struct {
		status dispatcherd.Status
		keep   time.Duration
	}{{dispatcherd.Done, keep.Done}, {dispatcherd.Failed, keep.Failed}, {dispatcherd.Cancelled, keep.Cancelled}} {
		for more := true; more; {
			var m, d, b int
			err := s.sweep.do(ctx, OpSweep, func(ctx context.Context, conn *pgx.Conn) (int, error) {
				err := conn.QueryRow(ctx, `SELECT made, dropped, blocked, more FROM dispatcherd.keep_leaves($1::text::dispatcherd.status, $2, $3)`,
					string(r.status), DaysAhead, r.keep).Scan(&m, &d, &b, &more)
				return m + d, err
			})
			if err != nil {
				return made, dropped, blocked, err
			}
			made, dropped = made+m, dropped+d
			if !more {
				blocked += b // each call meets the same ones
			}
		}
	}
	return made, dropped, blocked, nil
}

// MakePartitions only creates the daily partitions of the coming days, and returns
// how many. Call it before any job ends: a row that ends on a day without a partition
// goes to the default partition, and then that day gets none.
func (s *Store) MakePartitions(ctx context.Context) (made int, err error) {
	made, _, _, err = s.KeepPartitions(ctx, Retention{Done: always, Failed: always, Cancelled: always})
	return made, err
}

// always is longer than any row has been kept.
const always = 200 * 365 * 24 * time.Hour
