package claim

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// slowTimeout bounds a scan of the whole hot table, and a backfill scan, which reads every dead index entry that a held
// snapshot keeps, about a hundred million in this time.
const slowTimeout = 2 * time.Minute

// whyReleased is the error of the attempts that a lost dispatcher ran.
const whyReleased = "the dispatcher that ran it was lost"

// Release makes the jobs of lost dispatchers pending again, and returns how many. An error for one dispatcher does not stop the
// work for the others. Call Release when a heartbeat has found contract.DispatcherLost.
func (s *Store) Release(ctx context.Context) (released int, err error) {
	err = s.sweep.do(ctx, OpSweep, func(c Session) (int, error) {
		lost, err := lostDispatchers(c)
		for _, id := range lost {
			n, failed := s.release(c, OpSweep, id)
			released, err = released+n, cmp.Or(err, failed)
		}
		return released, err
	})
	return released, err
}

func lostDispatchers(c Session) ([]int32, error) {
	return Column[int32](c, c, `SELECT id FROM dispatcherd.dispatchers WHERE lost_at IS NOT NULL`)
}

// Sweep deletes the lost dispatchers under which no row runs, and the records of
// their claims. Of the others it deletes the claims of which no row runs, so that later releases do not read them again.
// It scans the complete hot table once, because the records of
// their claims may be incomplete. If rows still run under these dispatchers, Sweep
// records the rows as a claim and returns their number. The next [Store.Release] releases
// this claim, and the next Sweep scans again. A number above zero means that the rows
// were locked, that the table of dispatchers or claims was restored, or that a bug lost
// the record of a claim. Call Sweep after Release. Two sweeps at the same time do not delete the same dispatcher.
func (s *Store) Sweep(ctx context.Context) (strays int, err error) {
	err = s.sweep.do(ctx, OpSweep, func(c Session) (int, error) {
		lost, err := lostDispatchers(c)
		if err != nil || len(lost) == 0 {
			return 0, err
		}
		err = pgx.BeginFunc(c, c, func(tx pgx.Tx) error {
			if _, err := tx.Exec(c, scanSetup); err != nil {
				return err
			}
			return tx.QueryRow(c, straysSQL, lost).Scan(&strays)
		})
		return strays, err
	})
	return strays, err
}

// straysSQL locks those of the lost dispatchers $1 that no other sweep has locked, and
// finds the rows that still run under them. It records these rows as a claim. It treats
// rows of dispatchers that do not exist in the same way, after it has added a lost
// dispatcher: an earlier state of the table of dispatchers was restored. It deletes
// the dispatchers without such rows, the claims of which no row runs, and the summaries of
// dispatchers that are not alive. It returns the number of rows that still run.
const straysSQL = `
WITH mine AS MATERIALIZED (
	SELECT id FROM dispatcherd.dispatchers WHERE id = ANY ($1) AND lost_at IS NOT NULL ORDER BY id FOR UPDATE SKIP LOCKED
), stray AS MATERIALIZED (
	SELECT j.dispatcher, array_agg(j.id::bigint) AS ids, array_agg(DISTINCT j.token) AS tokens
	FROM dispatcherd.jobs_live j
	WHERE j.status = 'running' AND j.dispatcher NOT IN (SELECT id FROM dispatcherd.dispatchers WHERE id NOT IN (SELECT id FROM mine))
	GROUP BY 1
), unknown AS (
	INSERT INTO dispatcherd.dispatchers (id, name, lease, lost_at, leaving) OVERRIDING SYSTEM VALUE
	SELECT dispatcher, 'unknown', '1 s', now(), true FROM stray ON CONFLICT (id) DO NOTHING
), record AS (
	INSERT INTO dispatcherd.claims (dispatcher, token, ids) SELECT dispatcher, 0, ids FROM stray
	ON CONFLICT (dispatcher, token) DO UPDATE SET ids = excluded.ids
), over AS (
	DELETE FROM dispatcherd.claims c USING mine m LEFT JOIN stray s ON s.dispatcher = m.id
	WHERE c.dispatcher = m.id AND (s.dispatcher IS NULL OR c.token <> 0 AND c.token <> ALL (s.tokens))
), gone AS (
	DELETE FROM dispatcherd.dispatchers WHERE id IN (SELECT id FROM mine EXCEPT SELECT dispatcher FROM stray)
), unread AS (
	DELETE FROM dispatcherd.summaries WHERE dispatcher NOT IN (SELECT id FROM dispatcherd.dispatchers WHERE lost_at IS NULL)
)
SELECT coalesce(sum(cardinality(ids)), 0)::int FROM stray`

// scanSetup lets straysSQL scan the complete table. The other statements of the connection
// must not do that.
const scanSetup = `SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on; SET LOCAL plan_cache_mode = auto`
