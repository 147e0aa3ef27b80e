package hostile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// FlowAttacks are loads of flows that have delayed other tenants. Sizes are those of the full run.
func FlowAttacks() []Attack {
	var job int64
	var jobs []int64
	return []Attack{
		{
			Name: "dependants", // many large flows behind one job
			Prepare: func(ctx context.Context, s *Site) (err error) {
				if job, err = insertLater(ctx, s); err != nil {
					return err
				}
				return insertFlows(ctx, s, s.Scaled(30), s.Scaled(10_000), []int64{job})
			},
			Begin: func(ctx context.Context, s *Site) (func() error, error) {
				_, err := s.Exec(ctx, `UPDATE dispatcherd.jobs SET run_at = now() WHERE id = $1`, job)
				return nil, err
			},
		},
		{
			Name: "dense", // as many edges as a flow may have
			Begin: func(ctx context.Context, s *Site) (func() error, error) {
				width := s.Scaled(316)
				_, err := s.Exec(ctx, `SELECT dispatcherd.insert_flow(jsonb_build_object('nodes', jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
						'name', 'n' || i, 'type', $1::text, 'after', CASE WHEN i > $2 THEN
							(SELECT jsonb_agg('n' || k) FROM generate_series(1, $2::int) k) END)) ORDER BY i)))
					FROM generate_series(1, 2 * $2::int) i`, s.Type, width)
				return nil, err
			},
		},
		{
			Name: "results", // results of 1 MB that do not fit into the payloads
			Prepare: func(ctx context.Context, s *Site) (err error) {
				const text = `to_json((SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 30000 + 0 * n)))`
				jobs, err = insertDone(ctx, s, s.Scaled(100), 1, text)
				return err
			},
			Begin: func(ctx context.Context, s *Site) (func() error, error) {
				_, err := s.Exec(ctx, `SELECT dispatcherd.insert_flow(jsonb_build_object('nodes', jsonb_agg(jsonb_build_object(
						'name', 'n' || i, 'type', $1::text, 'after', to_jsonb($2::bigint[]), 'takes_results', true))))
					FROM generate_series(1, $3::int) i`, s.Type, jobs, s.Scaled(60))
				return nil, err
			},
		},
		{
			Name: "outside", // dependencies that are distributed over many partitions
			Prepare: func(ctx context.Context, s *Site) (err error) {
				if err = makePartitions(ctx, s, 90); err == nil {
					jobs, err = insertDone(ctx, s, s.Scaled(10_000), 90, `NULL::json`)
				}
				return err
			},
			Begin: func(ctx context.Context, s *Site) (func() error, error) {
				return nil, insertFlows(ctx, s, 10, 1, jobs)
			},
		},
		{
			Name: "lockedjob", // flows behind a row that a session has locked
			Prepare: func(ctx context.Context, s *Site) (err error) {
				job, err = insertLater(ctx, s)
				return err
			},
			Begin: func(ctx context.Context, s *Site) (func() error, error) {
				session, err := s.Hold(ctx, fmt.Sprintf(`SELECT FROM dispatcherd.jobs_live WHERE id = %d FOR UPDATE`, job))
				if err != nil {
					return nil, err
				}
				return session.End, insertFlows(ctx, s, 110, 3, []int64{job})
			},
		},
	}
}

// BatchAttacks are loads of batches with many members that have delayed other tenants.
func BatchAttacks() []Attack {
	var batch int64
	var session *Held
	return []Attack{
		{
			Name: "seal", // a seal in an open transaction, with members whose ends are not counted, beside many flows
			Prepare: func(ctx context.Context, s *Site) (err error) {
				if err = s.QueryRow(ctx, `SELECT dispatcherd.open_batch()`).Scan(&batch); err != nil {
					return err
				}
				session, err = s.Hold(ctx, fmt.Sprintf(`SELECT FROM dispatcherd.batches WHERE id = %d FOR NO KEY UPDATE`, batch))
				if err != nil {
					return err
				}
				return runMembers(ctx, s, batch, s.Scaled(3_000_000))
			},
			Begin: func(ctx context.Context, s *Site) (func() error, error) {
				_, err := session.Exec(ctx, `SELECT dispatcherd.seal_batch($1)`, batch)
				return session.End, errors.Join(err, insertFlows(ctx, s, s.Scaled(2000), 3, nil))
			},
		},
		{
			Name: "snapshot", // afterwards; the ends were counted under an old snapshot
			Prepare: func(ctx context.Context, s *Site) (err error) {
				session, err := s.Hold(ctx, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`, `SELECT`)
				if err != nil {
					return err
				}
				if err = s.QueryRow(ctx, `SELECT dispatcherd.open_batch()`).Scan(&batch); err == nil {
					err = runMembers(ctx, s, batch, s.Scaled(20_000_000))
				}
				return errors.Join(err, session.End(), rig.Pause(ctx, 30*time.Second)) // autovacuum begins every ten seconds
			},
			Begin: None.Begin,
		},
	}
}

// insertLater inserts a job that is not due.
func insertLater(ctx context.Context, s *Site) (job int64, err error) {
	err = s.QueryRow(ctx, `INSERT INTO dispatcherd.jobs (type, run_at) VALUES ($1, now() + interval '1 hour') RETURNING id`,
		s.Type).Scan(&job)
	return job, err
}

// insertFlows inserts flows whose nodes all depend on jobs outside.
func insertFlows(ctx context.Context, s *Site, flows, nodes int, after []int64) error {
	if after == nil {
		after = []int64{}
	}
	for range flows {
		if _, err := s.Exec(ctx, `SELECT dispatcherd.insert_flow(jsonb_build_object('nodes', jsonb_agg(jsonb_build_object(
				'name', 'n' || i, 'type', $1::text, 'after', to_jsonb($2::bigint[])))))
			FROM generate_series(1, $3::int) i`, s.Type, after, nodes); err != nil {
			return err
		}
	}
	return nil
}

// insertDone inserts jobs that have ended in the last days, with results.
func insertDone(ctx context.Context, s *Site, n, days int, result string) (jobs []int64, err error) {
	err = s.QueryRow(ctx, `WITH job AS (INSERT INTO dispatcherd.jobs (type, status, attempt, started_at, finished_at, result)
		SELECT $1, 'done', 1, now(), now() - n % $3 * interval '1 day', `+result+` FROM generate_series(1, $2) n RETURNING id)
		SELECT array_agg(id ORDER BY id) FROM job`, s.Type, n, days).Scan(&jobs)
	return jobs, err
}

// makePartitions makes the partitions of former days, as dispatchers would have done.
func makePartitions(ctx context.Context, s *Site, days int) error {
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

// runMembers inserts members of a batch and waits until all of them have run.
func runMembers(ctx context.Context, s *Site, batch int64, n int) error {
	const portion = 100_000
	for first := 0; first < n; first += portion {
		if _, err := s.Exec(ctx, `INSERT INTO dispatcherd.jobs (type, parent) SELECT $1, $2 FROM generate_series(1, $3)`,
			s.Type, batch, min(portion, n-first)); err != nil {
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
