package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// attacks are loads that have delayed other tenants. Sizes are those of the full run.
func attacks() []attack { return append(flowAttacks(), batchAttacks()...) }

// flowAttacks are loads of flows, after the load that delays nobody.
func flowAttacks() []attack {
	var job int64
	var jobs []int64
	return []attack{
		{"none", nil, func(context.Context, *site) (func() error, error) { return nil, nil }},
		{
			"dependants", // many large flows behind one job
			func(ctx context.Context, s *site) (err error) {
				if job, err = s.insertLater(ctx); err != nil {
					return err
				}
				return s.insertFlows(ctx, s.scaled(30), s.scaled(10_000), []int64{job})
			},
			func(ctx context.Context, s *site) (func() error, error) {
				_, err := s.Exec(ctx, `UPDATE dispatcherd.jobs SET run_at = now() WHERE id = $1`, job)
				return nil, err
			},
		},
		{
			"dense", nil, // as many edges as a flow may have
			func(ctx context.Context, s *site) (func() error, error) {
				width := s.scaled(316)
				_, err := s.Exec(ctx, `SELECT dispatcherd.insert_flow(jsonb_build_object('nodes', jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
						'name', 'n' || i, 'type', $1::text, 'after', CASE WHEN i > $2 THEN
							(SELECT jsonb_agg('n' || k) FROM generate_series(1, $2::int) k) END)) ORDER BY i)))
					FROM generate_series(1, 2 * $2::int) i`, rig.TypeName(0), width)
				return nil, err
			},
		},
		{
			"results", // results of 1 MB that do not fit into the payloads
			func(ctx context.Context, s *site) (err error) {
				const text = `to_json((SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 30000 + 0 * n)))`
				jobs, err = s.insertDone(ctx, s.scaled(100), 1, text)
				return err
			},
			func(ctx context.Context, s *site) (func() error, error) {
				_, err := s.Exec(ctx, `SELECT dispatcherd.insert_flow(jsonb_build_object('nodes', jsonb_agg(jsonb_build_object(
						'name', 'n' || i, 'type', $1::text, 'after', to_jsonb($2::bigint[]), 'takes_results', true))))
					FROM generate_series(1, $3::int) i`, rig.TypeName(0), jobs, s.scaled(60))
				return nil, err
			},
		},
		{
			"outside", // dependencies that are distributed over many daily partitions
			func(ctx context.Context, s *site) (err error) {
				if err = s.makePartitions(ctx, 90); err == nil {
					jobs, err = s.insertDone(ctx, s.scaled(10_000), 90, `NULL::json`)
				}
				return err
			},
			func(ctx context.Context, s *site) (func() error, error) { return nil, s.insertFlows(ctx, 10, 1, jobs) },
		},
		{
			"lockedjob", // flows behind a row that a session has locked
			func(ctx context.Context, s *site) (err error) {
				job, err = s.insertLater(ctx)
				return err
			},
			func(ctx context.Context, s *site) (func() error, error) {
				session, err := s.hold(ctx, fmt.Sprintf(`SELECT FROM dispatcherd.jobs_live WHERE id = %d FOR UPDATE`, job))
				if err != nil {
					return nil, err
				}
				return session.end, s.insertFlows(ctx, 110, 3, []int64{job})
			},
		},
	}
}

// batchAttacks are loads of batches with many members.
func batchAttacks() []attack {
	var batch int64
	var session *held
	return []attack{
		{
			"seal", // a seal in an open transaction, with members whose ends are not counted, beside many flows
			func(ctx context.Context, s *site) (err error) {
				if err = s.QueryRow(ctx, `SELECT dispatcherd.open_batch()`).Scan(&batch); err != nil {
					return err
				}
				session, err = s.hold(ctx, fmt.Sprintf(`SELECT FROM dispatcherd.batches WHERE id = %d FOR NO KEY UPDATE`, batch))
				if err != nil {
					return err
				}
				return s.runMembers(ctx, batch, s.scaled(3_000_000))
			},
			func(ctx context.Context, s *site) (func() error, error) {
				_, err := session.Exec(ctx, `SELECT dispatcherd.seal_batch($1)`, batch)
				return session.end, errors.Join(err, s.insertFlows(ctx, s.scaled(2000), 3, nil))
			},
		},
		{
			"snapshot", // afterwards; the ends were counted under an old snapshot
			func(ctx context.Context, s *site) (err error) {
				session, err := s.hold(ctx, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`, `SELECT`)
				if err != nil {
					return err
				}
				if err = s.QueryRow(ctx, `SELECT dispatcherd.open_batch()`).Scan(&batch); err == nil {
					err = s.runMembers(ctx, batch, s.scaled(20_000_000))
				}
				return errors.Join(err, session.end(), rig.Pause(ctx, 30*time.Second)) // autovacuum begins every ten seconds
			},
			func(context.Context, *site) (func() error, error) { return nil, nil },
		},
	}
}

// insertLater inserts a job that is not due.
func (s *site) insertLater(ctx context.Context) (job int64, err error) {
	err = s.QueryRow(ctx, `INSERT INTO dispatcherd.jobs (type, run_at) VALUES ($1, now() + interval '1 hour') RETURNING id`,
		rig.TypeName(0)).Scan(&job)
	return job, err
}

// insertFlows inserts flows whose nodes all depend on jobs outside.
func (s *site) insertFlows(ctx context.Context, flows, nodes int, after []int64) error {
	if after == nil {
		after = []int64{}
	}
	for range flows {
		if _, err := s.Exec(ctx, `SELECT dispatcherd.insert_flow(jsonb_build_object('nodes', jsonb_agg(jsonb_build_object(
				'name', 'n' || i, 'type', $1::text, 'after', to_jsonb($2::bigint[])))))
			FROM generate_series(1, $3::int) i`, rig.TypeName(0), after, nodes); err != nil {
			return err
		}
	}
	return nil
}

// insertDone inserts jobs that have ended in the last days, with results.
func (s *site) insertDone(ctx context.Context, n, days int, result string) (jobs []int64, err error) {
	err = s.QueryRow(ctx, `WITH job AS (INSERT INTO dispatcherd.jobs (type, status, attempt, started_at, finished_at, result)
		SELECT $1, 'done', 1, now(), now() - n % $3 * interval '1 day', `+result+` FROM generate_series(1, $2) n RETURNING id)
		SELECT array_agg(id ORDER BY id) FROM job`, rig.TypeName(0), n, days).Scan(&jobs)
	return jobs, err
}

// makePartitions makes the partitions of former days, as dispatchers would have done.
func (s *site) makePartitions(ctx context.Context, days int) error {
	for day := 1; day <= days; day++ {
		at := time.Now().UTC().AddDate(0, 0, -day)
		for _, status := range []string{"done", "failed", "cancelled"} {
			if _, err := s.Exec(ctx, fmt.Sprintf(`CREATE TABLE IF NOT EXISTS dispatcherd.jobs_%[1]s_%[2]s PARTITION OF dispatcherd.jobs_%[1]s
				FOR VALUES FROM ('%[3]s 00:00+00') TO ('%[4]s 00:00+00')`,
				status, at.Format("20060102"), at.Format(time.DateOnly), at.AddDate(0, 0, 1).Format(time.DateOnly))); err != nil {
				return err
			}
		}
	}
	return nil
}

// held is a session with an open transaction.
type held struct{ *pgx.Conn }

// hold executes statements in a transaction that stays open.
func (s *site) hold(ctx context.Context, statements ...string) (*held, error) {
	conn, err := pgx.Connect(ctx, s.dsn)
	if err != nil {
		return nil, err
	}
	for _, sql := range append([]string{`BEGIN`}, statements...) {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
		}
	}
	return &held{conn}, nil
}

// end commits the transaction and ends the session.
func (h *held) end() error {
	_, err := h.Exec(context.Background(), `COMMIT`)
	return errors.Join(err, h.Close(context.Background()))
}

// runMembers inserts members of a batch and waits until all of them have run.
func (s *site) runMembers(ctx context.Context, batch int64, n int) error {
	const portion = 100_000
	for first := 0; first < n; first += portion {
		if _, err := s.Exec(ctx, `INSERT INTO dispatcherd.jobs (type, parent) SELECT $1, $2 FROM generate_series(1, $3)`,
			rig.TypeName(0), batch, min(portion, n-first)); err != nil {
			return err
		}
	}
	for live := true; live; {
		if err := s.QueryRow(ctx, `SELECT EXISTS (SELECT FROM dispatcherd.jobs_live WHERE parent = $1)`, batch).Scan(&live); err != nil {
			return err
		}
		if err := rig.Pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
