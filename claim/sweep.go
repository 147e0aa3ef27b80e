package claim

import (
	"context"
	"errors"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// sweepTimeout bounds a look at the whole hot table.
const sweepTimeout = 2 * time.Minute

// whyReleased is the error of the attempts that a lost dispatcher leaves behind.
const whyReleased = "the dispatcher that ran it was lost"

// Sweep forgets lost dispatchers for good. Before it does it reads the whole
// hot table once, because their claims only said where to look: rows of theirs
// that are still running are released, and the next Sweep looks again. It
// returns how many those were; more than zero means that a bug lost a claim's
// note. Without lost dispatchers it does nothing. It must not be called more
// often than it is needed (BeatResult.Lost), and never delays a beat.
func (s *Store) Sweep(ctx context.Context) (int, error) {
	strays := 0
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	err := s.sweep.do(ctx, OpSweep, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		var lost []int32
		err := conn.QueryRow(ctx, `SELECT array_agg(id) FROM dispatcherd.dispatchers WHERE lost_at IS NOT NULL`).Scan(&lost)
		if err != nil || len(lost) == 0 {
			return 0, err
		}
		released, all := 0, lost[:0]
		var errs []error
		for _, id := range lost {
			n, err := release(ctx, conn, left{id, contract.Crashed, whyReleased})
			released += n
			if err != nil {
				errs = append(errs, err) // that keeps none of the others
				continue
			}
			all = append(all, id)
		}
		if len(all) > 0 {
			strays, err = s.forget(ctx, conn, all)
			errs = append(errs, err)
		}
		return released + strays, errors.Join(errs...)
	})
	return strays, err
}

// forget notes rows that still run under the lost as a claim of theirs, which
// the next release works off, or removes the dispatchers if there is none. The
// share lock keeps two sweepers apart: the slower one finds nothing to do.
func (s *Store) forget(ctx context.Context, conn *pgx.Conn, lost []int32) (int, error) {
	strays := 0
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `
			WITH mine AS MATERIALIZED (
				SELECT id FROM dispatcherd.dispatchers WHERE id = ANY ($1) AND lost_at IS NOT NULL ORDER BY id FOR UPDATE
			), stray AS MATERIALIZED (
				SELECT j.dispatcher, array_agg(j.id::bigint) AS ids, count(*) AS n FROM dispatcherd.jobs_live j
				WHERE j.status = 'running' AND j.dispatcher IN (SELECT id FROM mine) GROUP BY 1
			), note AS (
				INSERT INTO dispatcherd.claims (dispatcher, token, ids) SELECT dispatcher, 0, ids FROM stray
				ON CONFLICT (dispatcher, token) DO UPDATE SET ids = excluded.ids
			)
			SELECT coalesce(sum(n), 0)::int FROM stray`, lost).Scan(&strays); err != nil || strays > 0 {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM dispatcherd.claims WHERE dispatcher = ANY ($1)`, lost); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `DELETE FROM dispatcherd.dispatchers WHERE id = ANY ($1) AND lost_at IS NOT NULL`, lost)
		return err
	})
	return strays, err
}

// Retention says how long final rows are kept.
type Retention struct {
	Done, Failed, Cancelled time.Duration
}

// DaysAhead is how many days of leaves are made before they are needed.
const DaysAhead = 3

// KeepLeaves makes the coming days' leaves of the final statuses and drops
// those that are over their time. Call it at start and every hour; several
// daemons at once are fine. Blocked leaves (somebody reads them) are left for
// the next call and counted.
func (s *Store) KeepLeaves(ctx context.Context, keep Retention) (made, dropped, blocked int, err error) {
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
				blocked += b // those of the last call: every call meets the same ones
			}
		}
	}
	return made, dropped, blocked, nil
}

// MakeLeaves makes the coming days' leaves alone, and returns how many. Call it
// before anything ends: a row that ends on a day without a leaf lands in the rest,
// and while it is there, that day gets none.
func (s *Store) MakeLeaves(ctx context.Context) (made int, err error) {
	made, _, _, err = s.KeepLeaves(ctx, Retention{Done: always, Failed: always, Cancelled: always})
	return made, err
}

// always is longer than anything has been kept.
const always = 200 * 365 * 24 * time.Hour
