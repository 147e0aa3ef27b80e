package claim

import (
	"context"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
)

// Counts are numbers of rows.
type Counts struct {
	RequestKeys int64         // as Postgres estimates it
	Unsealed    int           // batches that are not sealed, counted up to 10,000
	Oldest      time.Duration // since the opening of the oldest one
	Ends        int           // messages to batches and flows, counted up to 10,000
	Aside       int           // batches and flows that are set aside, counted up to 10,000
}

// countsSQL counts at most $1 rows of each table. Running jobs with children are not sealed, either.
const countsSQL = `
SELECT pg_stat_get_live_tuples('dispatcherd.request_keys'::regclass), count(*), coalesce(clock_timestamp() - min(u.opened_at), '0'),
	(SELECT count(*) FROM (SELECT FROM dispatcherd.ends LIMIT $1) e),
	(SELECT count(*) FROM (SELECT FROM dispatcherd.batches WHERE aside_at IS NOT NULL LIMIT $1) a)
FROM (SELECT b.opened_at FROM dispatcherd.batches b WHERE b.sealed_at IS NULL AND b.kind = 'batch' ORDER BY b.opened_at LIMIT $1) u`

// Counts counts rows of request keys, batches and messages to them.
func (s *Store) Counts(ctx context.Context) (c Counts, err error) {
	err = s.Upkeep.Scan(ctx, countsSQL, []any{10_000}, &c.RequestKeys, &c.Unsealed, &c.Oldest, &c.Ends, &c.Aside)
	return c, err
}

// countPendingSQL counts the pending rows of the types after $1 in the order of their
// names, at most $2 rows of each type. It skips from type to type in the indexes of lanes,
// and stops after $3 steps: a row is one step, and a type is 12 steps, or 100 if it has rows with an expected duration, one per
// index descent. It returns one row per type: the name, the rows, the steps so far, and the age of the oldest due row
// in milliseconds. Types whose rows all run have 0 rows.
const countPendingSQL = `
WITH RECURSIVE counted (type, named, rows, steps) AS (
	SELECT $1::text, false, 0::bigint, 0::bigint
	UNION ALL
	SELECT next.type, next.named, pending.rows, c.steps + pending.rows + CASE WHEN next.named THEN 100 ELSE 12 END
	FROM counted c
	CROSS JOIN LATERAL (
		SELECT t.type, bool_or(t.named) AS named FROM (
			(SELECT j.type::text, false FROM dispatcherd.jobs_live j WHERE j.type > c.type AND ` + ready + ` AND ` + unnamed + `
			ORDER BY j.type LIMIT 1)
			UNION ALL
			(SELECT j.type::text, true FROM dispatcherd.jobs_live j WHERE j.type > c.type AND ` + ready + ` AND ` + named + `
			ORDER BY j.type LIMIT 1)
		) t (type, named) GROUP BY t.type ORDER BY t.type LIMIT 1
	) next
	CROSS JOIN LATERAL (SELECT count(*) FROM (
		SELECT 1 FROM dispatcherd.jobs_live j WHERE j.type = next.type AND j.status = 'pending' AND ` + ready + ` AND ` + unnamed + `
		UNION ALL
		SELECT 1 FROM dispatcherd.jobs_live j WHERE next.named AND j.type = next.type AND j.status = 'pending' AND ` + ready + ` AND ` + named + `
		LIMIT $2::int
	) bounded) pending (rows)
	WHERE c.steps < $3::bigint
)
SELECT c.type, c.rows, c.steps, coalesce(due.age, 0) FROM counted c CROSS JOIN LATERAL (
	SELECT (extract(epoch FROM now() - min(head.run_at)) * 1000)::bigint FROM generate_series(0, 10) AS p (priority) CROSS JOIN LATERAL (
		(SELECT j.run_at FROM dispatcherd.jobs_live j WHERE j.type = c.type AND j.priority = p.priority AND j.status = 'pending' AND ` + ready + `
			AND ` + unnamed + ` AND j.run_at <= now() ORDER BY j.run_at LIMIT 1)
		UNION ALL
		(SELECT first.run_at FROM generate_series(0, 7) AS d (class) CROSS JOIN LATERAL (
			SELECT j.run_at FROM dispatcherd.jobs_live j WHERE j.type = c.type AND j.priority = p.priority AND j.status = 'pending' AND ` + ready + `
				AND ` + named + ` AND ` + class + ` = d.class AND j.run_at <= now() ORDER BY j.run_at LIMIT 1
		) first WHERE c.named)
	) head
) due (age)
WHERE c.steps > 0 ORDER BY c.steps`

// countSetup bounds countPendingSQL. Its snapshot must be short, because it keeps dead rows.
const countSetup = `SET LOCAL statement_timeout = '2s'`

// countSteps bounds the work of one countPendingSQL. It takes about 0.1 s.
const countSteps = 100_000

// countKeyedSQL counts the rows that wait for permits, class by class after class $1 to $3, at most $4 rows of
// each class, and none of the types $6, which are counted up to the limit already. It stops after $5 steps. It returns one
// row per class: keys, type, priority, the rows, the steps so far, and the age of the first due row in milliseconds.
const countKeyedSQL = `
WITH RECURSIVE counted (keys, type, priority, run_at, rows, steps) AS (
	SELECT $1::text, $2::text, $3::smallint, NULL::timestamptz, 0::bigint, 0::bigint
	UNION ALL
	SELECT next.*, pending.rows, c.steps + pending.rows + 12
	FROM counted c
	CROSS JOIN LATERAL (
		SELECT j.keys, j.type::text AS type, j.priority::smallint AS priority, j.run_at::timestamptz FROM dispatcherd.jobs_live j
		WHERE j.keys IS NOT NULL AND j.fence IS NULL AND (j.keys, j.type, j.priority) > (c.keys, c.type, c.priority)
		ORDER BY j.keys, j.type, j.priority, j.run_at, j.id + 0 LIMIT 1
	) next
	CROSS JOIN LATERAL (SELECT count(*) FROM (
		SELECT FROM dispatcherd.jobs_live j
		WHERE j.keys IS NOT NULL AND j.fence IS NULL AND j.keys = next.keys AND j.type = next.type AND j.priority = next.priority
			AND next.type <> ALL (coalesce($6::text[], '{}')) LIMIT $4::int
	) bounded) pending (rows)
	WHERE c.steps < $5::bigint
)
SELECT keys, type, priority, rows, steps, greatest(extract(epoch FROM now() - run_at) * 1000, 0)::bigint FROM counted
WHERE steps > 0 ORDER BY steps`

// countReturnedSQL counts rows that have returned, and of which the controller has read nothing or which keep their
// precedence: at most $1.
const countReturnedSQL = `
SELECT r.type::text, count(*), greatest(extract(epoch FROM now() - min(r.run_at)) * 1000, 0)::bigint FROM (
	SELECT j.type, j.run_at FROM dispatcherd.jobs_live j WHERE j.keys IS NOT NULL AND j.fence < 0 ORDER BY j.fence LIMIT $1::int
) r GROUP BY r.type ORDER BY r.type`

// CountPending counts a portion of the pending rows: first those of the lanes, by type in the order of names, then
// those that wait for permits, by class. It returns where the next portion begins; the zero value says that the count has ended.
// A type may be returned several times. Rows with keys of the types full are not counted. Each call has its
// own snapshot. It fails after 2 s, for example because an old snapshot keeps many dead
// rows.
func (s *Store) CountPending(
	ctx context.Context,
	from contract.PendingCursor,
	full []string,
) (types []contract.PendingType, next contract.PendingCursor, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	err = s.sweep.do(ctx, OpCount, func(c Session) (int, error) {
		return 0, pgx.BeginFunc(c, c, func(tx pgx.Tx) error {
			if _, err := tx.Exec(c, countSetup); err != nil {
				return err
			}
			var err error
			if from.Keyed {
				types, next, err = s.countKeyed(c, tx, from, full)
			} else {
				types, next, err = s.countLanes(c, tx, from)
			}
			return err
		})
	})
	return types, next, err
}

// countLanes counts rows without keys and with permits.
func (s *Store) countLanes(
	ctx context.Context,
	tx pgx.Tx,
	from contract.PendingCursor,
) (types []contract.PendingType, next contract.PendingCursor, err error) {
	rows, _ := tx.Query(ctx, countPendingSQL, pgx.QueryExecModeExec, from.Type, contract.PendingLimit+1, s.countSteps)
	var (
		t          contract.PendingType
		steps, age int64
	)
	_, err = pgx.ForEachRow(rows, []any{&t.Type, &t.Rows, &steps, &age}, func() error {
		t.Oldest = time.Duration(age) * time.Millisecond
		types = append(types, t)
		return nil
	})
	if steps >= s.countSteps {
		return types, contract.PendingCursor{Type: t.Type}, err
	}
	return types, contract.PendingCursor{Keyed: true}, err
}

// countKeyed counts rows with keys and without permits.
func (s *Store) countKeyed(
	ctx context.Context,
	tx pgx.Tx,
	from contract.PendingCursor,
	full []string,
) (types []contract.PendingType, next contract.PendingCursor, err error) {
	var (
		t          contract.PendingType
		steps, age int64
	)
	add := func() {
		t.Keyed = time.Duration(age) * time.Millisecond
		types = append(types, t)
	}
	if from.Classes == 0 {
		rows, _ := tx.Query(ctx, countReturnedSQL, pgx.QueryExecModeExec, contract.PendingLimit+1)
		if _, err := pgx.ForEachRow(rows, []any{&t.Type, &t.Rows, &age}, func() error {
			add()
			return nil
		}); err != nil {
			return nil, next, err
		}
	}
	rows, _ := tx.Query(
		ctx,
		countKeyedSQL,
		pgx.QueryExecModeExec,
		from.Keys,
		from.Type,
		from.Priority,
		contract.PendingLimit+1,
		s.countSteps,
		full,
	)
	next = from
	_, err = pgx.ForEachRow(rows, []any{&next.Keys, &t.Type, &next.Priority, &t.Rows, &steps, &age}, func() error {
		next.Classes++
		add()
		return nil
	})
	if next.Type = t.Type; steps < s.countSteps {
		next = contract.PendingCursor{}
	}
	return types, next, err
}
