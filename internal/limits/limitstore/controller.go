package limitstore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
	"github.com/jackc/pgx/v5"
)

// Controller sends the statements of the controller about jobs with keys. Begin comes first. All other
// statements that change something do nothing after a later Begin, of any dispatcher.
type Controller struct {
	Do         claim.Connection
	Scan       claim.Connection // of reads of all rows, which take long under an old snapshot
	Dispatcher int32
	Term       int64

	number int64 // of Begin
}

// ErrNotController says that another dispatcher is the controller, or that this one has begun again.
var ErrNotController = errors.New("this dispatcher is no longer the controller")

// beginSQL waits for the statements of the former number, which hold FOR SHARE on the row.
const beginSQL = `
WITH next AS (
	UPDATE dispatcherd.controller SET admissions = admissions + 1 WHERE dispatcher = $1::int AND term = $2::bigint RETURNING admissions
)
SELECT coalesce((SELECT admissions FROM next), 0)`

// Begin makes the statements of all former numbers change nothing. It returns the fence below all fences
// of this number, and the largest id of a waiting row, or 0.
func (c *Controller) Begin(ctx context.Context) (firstFence, lastArrived int64, err error) {
	err = c.Do.Scan(ctx, beginSQL, []any{c.Dispatcher, c.Term}, &c.number)
	switch {
	case err == nil && c.number == 0:
		err = ErrNotController
	case err == nil:
		err = c.Do.Scan(ctx, `SELECT coalesce((SELECT j.id::bigint FROM dispatcherd.jobs_live j WHERE `+waitingJobs+`
			ORDER BY j.fence DESC, j.id + 0 DESC LIMIT 1), 0)`, nil, &lastArrived)
	}
	return c.number << 32, lastArrived, err
}

// role is true while this dispatcher $1 is the controller with number $2. The lock makes Begin wait until
// the statement has ended.
const role = `role AS MATERIALIZED (
	SELECT FROM dispatcherd.controller c WHERE c.dispatcher = $1::int AND c.admissions = $2::bigint FOR SHARE
)`

// MaxLimits bounds the limits that apply. A key whose limit is beyond it admits one job at a time.
const MaxLimits = 100_000

// editsMost bounds the records of edits that one Edits deletes. A heartbeat finds the others.
const editsMost = 10_000

// Edits deletes records of edits and then reads the limits that they name, by key or prefix; nil = there is none any more. edited is
// nil if the caller must read all limits: more than most were edited, or all of them.
func (c *Controller) Edits(ctx context.Context, most int) (edited map[string]*permits.Limit, err error) {
	keys, err := claim.Collect(ctx, c.Do, pgx.RowTo[*string], `WITH `+role+`
		DELETE FROM dispatcherd.operations WHERE EXISTS (SELECT FROM role) AND id = ANY (ARRAY (
			SELECT id FROM dispatcherd.operations WHERE kind = 'limits_edited' LIMIT $3)) RETURNING name`, c.Dispatcher, c.number, editsMost)
	if err != nil || slices.Contains(keys, nil) {
		return nil, err
	}
	edited = make(map[string]*permits.Limit, len(keys))
	for _, key := range keys {
		edited[*key] = nil
	}
	if len(edited) > most {
		return nil, nil
	}
	list, err := c.limits(ctx, `WHERE key = ANY ($1)`, slices.Collect(maps.Keys(edited)))
	for i := range list {
		edited[list[i].Key] = &list[i]
	}
	return edited, err
}

// Limits reads all limits.
func (c *Controller) Limits(ctx context.Context) (list []permits.Limit, err error) {
	return c.limits(ctx, `ORDER BY key LIMIT $1`, MaxLimits)
}

func (c *Controller) limits(ctx context.Context, which string, arg any) (list []permits.Limit, err error) {
	return claim.Collect(ctx, c.Do, pgx.RowToStructByPos[permits.Limit], `SELECT key, coalesce(capacity, -1), coalesce(rate, 0),
		coalesce((extract(epoch FROM per) * 1000000)::bigint, 0), (scope = 'dispatcher')::int, (on_retry = 'wait')::int
		FROM dispatcherd.limits `+which, arg)
}

// Held is a row with a fence.
type Held struct {
	permits.Permit

	Returned bool  // it is pending again; Fence is positive nevertheless
	Ago      int64 // microseconds since the start of a row that runs, at the time of the read, or less
}

// Held reads all rows with a fence.
func (c *Controller) Held(ctx context.Context) (list []Held, err error) {
	return claim.Collect(ctx, c.Scan, pgx.RowToStructByNameLax[Held], `SELECT id::bigint, keys, type::text, priority::smallint,
		(extract(epoch FROM run_at) * 1000000)::bigint AS run_at, abs(fence) AS fence, fence < 0 AS returned, status = 'running' AS started,
		coalesce(dispatcher, admitted_to, 0) AS dispatcher,
		coalesce((extract(epoch FROM clock_timestamp() - started_at) * 1000000)::bigint, 0) AS ago
		FROM dispatcherd.jobs_live WHERE keys IS NOT NULL AND fence IS NOT NULL`)
}

// Waiting is a waiting row.
type Waiting struct {
	permits.Class
	permits.Job

	Whole bool // Rest are all other rows of the class that wait, in order; only of Heads, which may not know them
	Rest  []permits.Job
}

// waitingJobs is true for row j that waits for permits.
const waitingJobs = `j.keys IS NOT NULL AND j.fence IS NULL`

// Arrived reads waiting rows with ids above after in the order of their ids, up to most, and whether limits
// were edited. A row with a smaller id may be committed later: Heads finds it.
func (c *Controller) Arrived(ctx context.Context, after int64, most int) (list []Waiting, edited bool, err error) {
	// The planner does not know that fence is constant, so the order names it.
	list, err = claim.Collect(ctx, c.Do, waitingRow, `SELECT j.id::bigint, j.keys, j.type::text, j.priority::smallint,
		(extract(epoch FROM j.run_at) * 1000000)::bigint FROM dispatcherd.jobs_live j
		WHERE `+waitingJobs+` AND j.id + 0 > $1::bigint ORDER BY j.fence, j.id + 0 LIMIT $2`, after, most)
	if err == nil {
		err = c.Do.Scan(ctx, `SELECT EXISTS (SELECT FROM dispatcherd.operations WHERE kind = 'limits_edited')`, nil, &edited)
	}
	return list, edited, err
}

func waitingRow(row pgx.CollectableRow) (w Waiting, err error) {
	return w, row.Scan(&w.ID, &w.Keys, &w.Type, &w.Priority, &w.RunAt)
}

// headsSQL reads the first job of each class after a class, with one index descent for each.
const headsSQL = `
WITH RECURSIVE head AS (
	(SELECT j.id::bigint AS id, j.keys, j.type::text AS type, j.priority::smallint AS priority, j.run_at::timestamptz AS run_at, 1 AS n
		FROM dispatcherd.jobs_live j WHERE ` + waitingJobs + ` AND (j.keys, j.type, j.priority) > ($1::text, $2::text, $3::smallint)
		ORDER BY j.keys, j.type, j.priority, j.run_at, j.id + 0 LIMIT 1)
	UNION ALL
	SELECT next.*, h.n + 1 FROM head h CROSS JOIN LATERAL (
		SELECT j.id::bigint, j.keys, j.type::text, j.priority::smallint, j.run_at::timestamptz
		FROM dispatcherd.jobs_live j WHERE ` + waitingJobs + ` AND (j.keys, j.type, j.priority) > (h.keys, h.type, h.priority)
		ORDER BY j.keys, j.type, j.priority, j.run_at, j.id + 0 LIMIT 1
	) next WHERE h.n < $4::int
)
SELECT id, keys, type, priority, (extract(epoch FROM run_at) * 1000000)::bigint FROM head`

// scanSQL reads the jobs of all classes after a class, in the order of the classes and their jobs.
const scanSQL = `
SELECT j.id::bigint, j.keys, j.type::text, j.priority::smallint, (extract(epoch FROM j.run_at) * 1000000)::bigint
FROM dispatcherd.jobs_live j WHERE ` + waitingJobs + ` AND (j.keys, j.type, j.priority) > ($1::text, $2::text, $3::smallint)
ORDER BY j.keys, j.type, j.priority, j.run_at, j.id + 0 LIMIT $4`

// longClass is the number of jobs of a class, on average, from which an index descent for each class is cheaper than a read of all jobs.
const longClass = 16

// Heads reads the first waiting job of each class after a class, in the order of the classes, up to most. If classes have few jobs, it
// reads all of them.
func (c *Controller) Heads(ctx context.Context, after permits.Class, most int) (list []Waiting, err error) {
	for sql := scanSQL; ; {
		read, err := claim.Collect(ctx, c.Scan, waitingRow, sql, after.Keys, after.Type, after.Priority, most)
		had := len(list)
		for _, w := range read {
			if n := len(list); n > had && list[n-1].Class == w.Class {
				list[n-1].Rest = append(list[n-1].Rest, w.Job)
				continue
			}
			w.Whole = sql == scanSQL
			list = append(list, w)
		}
		if err == nil && len(read) == most {
			last := &list[len(list)-1]
			last.Whole, last.Rest = false, nil // others may follow
			after = last.Class
		}
		if err != nil || len(read) < most || len(list) >= most {
			return list[:min(len(list), most)], err
		}
		if longClass*(len(list)-had) < most {
			sql = headsSQL
		}
	}
}

// refillSQL reads the next jobs, up to $2 of each, that answer the Refills $1.
const refillSQL = `
SELECT r.place, next.due, next.ids
FROM ROWS FROM (jsonb_to_recordset($1) AS ("Keys" text, "Type" text, "Priority" smallint, "After" jsonb)) WITH ORDINALITY
	AS r (keys, type, priority, after, place)
CROSS JOIN LATERAL (
	SELECT array_agg((extract(epoch FROM run_at) * 1000000)::bigint) AS due, array_agg(id::bigint) AS ids FROM (
		SELECT j.run_at, j.id FROM dispatcherd.jobs_live j
		WHERE ` + waitingJobs + ` AND j.keys = r.keys AND j.type = r.type AND j.priority = r.priority
			AND (j.run_at, j.id + 0) > (timestamptz 'epoch' + (r.after ->> 'RunAt')::bigint * interval '1 microsecond', (r.after ->> 'ID')::bigint)
		ORDER BY j.run_at, j.id + 0 LIMIT $2::int
	) jobs
) next
WHERE next.ids IS NOT NULL`

// Refill reads jobs that follow, up to most of each class, in order. The result has one element per refill.
func (c *Controller) Refill(ctx context.Context, refills []permits.Refill, most int) (jobs [][]permits.Job, err error) {
	jobs = make([][]permits.Job, len(refills))
	_, err = claim.Collect(ctx, c.Do, func(row pgx.CollectableRow) (place int, err error) {
		var due, ids []int64
		if err = row.Scan(&place, &due, &ids); err == nil {
			for i := range ids {
				jobs[place-1] = append(jobs[place-1], permits.Job{RunAt: due[i], ID: ids[i]})
			}
		}
		return place, err
	}, refillSQL, refills, most)
	return jobs, err
}

// admitSQL writes fence $4 and dispatcher $5 into those of the rows $3 that wait or have returned. A locked row
// makes it fail after impatient. $6 are the Starts. A notification names the rows to other dispatchers, up to 40
// of them; of more rows they scan.
const admitSQL = `
WITH ` + role + `, admitted AS (
	UPDATE dispatcherd.jobs_live j SET fence = $4::bigint, admitted_to = nullif($5::int, 0), admitted_at = clock_timestamp()
	WHERE j.id = ANY ($3::bigint[]) AND ` + admissible + ` RETURNING ` + admittedColumns + `
)` + countSQL

// admitFreeSQL does the same and leaves out locked rows. It takes a quarter more time.
const admitFreeSQL = `
WITH ` + role + `, free AS MATERIALIZED (
	SELECT j.ctid FROM dispatcherd.jobs_live j WHERE j.id = ANY ($3::bigint[]) AND ` + admissible + ` ORDER BY j.id + 0
	FOR UPDATE OF j SKIP LOCKED
), admitted AS (
	UPDATE dispatcherd.jobs_live j SET fence = $4::bigint, admitted_to = nullif($5::int, 0), admitted_at = clock_timestamp()
	FROM free f WHERE j.ctid = f.ctid
	RETURNING ` + admittedColumns + `
)` + countSQL

const (
	// admissible is true for row j that waits or has returned, while this dispatcher is the controller. coalesce keeps the
	// planner from the indexes of jobs with keys, which it would read from end to end.
	admissible      = `coalesce(j.keys, '') <> '' AND j.status = 'pending' AND (j.fence IS NULL OR j.fence < 0) AND EXISTS (SELECT FROM role)`
	admittedColumns = `j.id::bigint AS id, j.expected_ms AS expected, j.type::text AS type, j.priority::int AS priority,
		j.run_at::timestamptz AS run_at`
	countSQL = `, counted AS (
	INSERT INTO dispatcherd.key_starts AS k (key, dispatcher, part, cost, expires)
	SELECT s."Key", s."Dispatcher", timestamptz 'infinity', sum(s."Cost"),
		now() + max(s."Per") * interval '1 microsecond' + interval '366 days'
	FROM jsonb_to_recordset($6) AS s ("Key" text, "Dispatcher" int, "Cost" bigint, "Per" bigint)
	WHERE EXISTS (SELECT FROM role) GROUP BY 1, 2 ORDER BY 1, 2
	ON CONFLICT (key, dispatcher, part) DO UPDATE SET cost = k.cost + excluded.cost, expires = excluded.expires
), notified AS MATERIALIZED (
	SELECT pg_notify('dispatcherd', CASE WHEN a.n > 40 THEN 'jobs' ELSE concat('admitted ', $5::int, a.rows) END) FROM (
		SELECT count(*) AS n, string_agg(concat_ws(' ', E'\n' || r.id, concat_ws('/', r.priority, dispatcherd.duration_class(r.expected)),
			(extract(epoch FROM r.run_at) * 1000000)::bigint, r.type), '') AS rows FROM (SELECT * FROM admitted LIMIT 41) r
	) a WHERE a.n > 0 AND EXISTS (SELECT FROM dispatcherd.dispatchers WHERE armed AND id <> $1) AND dispatcherd.may_notify()
)
SELECT EXISTS (SELECT FROM role), (SELECT array_agg(id) FROM admitted), (SELECT array_agg(coalesce(expected, 0)) FROM admitted),
	(SELECT count(*) FROM notified)`
)

// Admit writes the fences of the rows of one decision and records what they may start. It returns the ids of those that got them, with
// their duration classes. The others are gone, or locked by another session. It returns ErrNotController if it changed nothing.
func (c *Controller) Admit(ctx context.Context, list []permits.Permit) (admitted map[int64]dispatcherd.DurationClass, err error) {
	admitted = make(map[int64]dispatcherd.DurationClass, len(list))
	groups := map[int32][]permits.Permit{} // by dispatcher
	for i := range list {
		groups[list[i].Dispatcher] = append(groups[list[i].Dispatcher], list[i])
	}
	for _, group := range groups {
		if err := c.admit(ctx, admitted, group); err != nil {
			return admitted, err
		}
	}
	return admitted, nil
}

// admit writes the fence of rows for the same dispatcher and adds them to admitted.
func (c *Controller) admit(ctx context.Context, admitted map[int64]dispatcherd.DurationClass, group []permits.Permit) error {
	ids, starts := make([]int64, len(group)), []permits.Start{}
	for i := range group {
		ids[i], starts = group[i].ID, append(starts, group[i].Counted...)
	}
	slices.Sort(ids)
	return c.Do(ctx, func(conn claim.Session) (int, error) {
		var found []int64
		var expected []int32 // milliseconds
		var is bool
		args := []any{c.Dispatcher, c.number, ids, group[0].Fence, group[0].Dispatcher, starts}
		scan := claim.ScanRow(&is, &found, &expected, nil)
		var batch pgx.Batch // one transaction
		batch.Queue(impatient)
		batch.Queue(admitSQL, args...).QueryRow(scan)
		err := conn.SendBatch(conn, &batch).Close()
		if claim.AnswerCode(err) == lockNotGranted {
			found = nil
			err = scan(conn.QueryRow(conn, admitFreeSQL, args...))
		}
		if err == nil && !is {
			err = ErrNotController
		}
		for i, id := range found {
			admitted[id] = dispatcherd.ClassOf(time.Duration(expected[i]) * time.Millisecond)
		}
		return len(found), err
	})
}

// impatient bounds the wait for a locked row. Locks of the notification queue and of growing tables also take that long on a
// busy server, so admitFreeSQL, which meets no row locks, and all other statements wait as long as the session permits.
const impatient = `SELECT set_config('lock_timeout', '20ms', true)`

// lockNotGranted is the SQLSTATE of a statement that reached the lock timeout.
const lockNotGranted = "55P03"

// withdrawSQL makes pending rows with the fences of the permits $3 wait again. A row that was admitted may have run and returned
// meanwhile; then its fence is negative.
const withdrawSQL = `
WITH ` + role + `, free AS MATERIALIZED (
	SELECT j.ctid, i."Retry" <> 0 AS returned FROM jsonb_to_recordset($3) AS i ("ID" bigint, "Fence" bigint, "Retry" bigint)
	JOIN dispatcherd.jobs_live j ON j.id BETWEEN i."ID" AND i."ID" AND i."ID" > 0
	WHERE j.status = 'pending' AND j.fence = i."Fence" AND EXISTS (SELECT FROM role) ORDER BY j.id + 0 FOR UPDATE OF j SKIP LOCKED
), waits AS (
	UPDATE dispatcherd.jobs_live j SET fence = CASE WHEN f.returned THEN -abs(j.fence) END, admitted_to = NULL FROM free f
	WHERE j.ctid = f.ctid RETURNING j.id::bigint AS id
)
SELECT EXISTS (SELECT FROM role), (SELECT array_agg(id) FROM waits)`

// Withdraw makes pending rows wait again, which were admitted or, with negative fences, have returned. It returns their
// ids. The others have started, are gone, or are locked. Retries count as returned: they keep their precedence.
func (c *Controller) Withdraw(ctx context.Context, list []permits.Permit) (withdrawn map[int64]bool, err error) {
	withdrawn = make(map[int64]bool, len(list))
	var found []int64
	var is bool
	err = c.Do.Scan(ctx, withdrawSQL, []any{c.Dispatcher, c.number, list}, &is, &found)
	if err == nil && !is {
		err = ErrNotController
	}
	for _, id := range found {
		withdrawn[id] = true
	}
	return withdrawn, err
}

// Type states the slots of a type in the cluster.
type Type struct {
	Slots       int
	Dispatchers []int32 // ascending
}

// Types reads the slots of all dispatchers by type. A type whose rows are paused has none, so its jobs get no permits and give back
// those that they do not use.
func (c *Controller) Types(ctx context.Context) (types map[string]Type, err error) {
	err = c.Do.Scan(ctx, `SELECT coalesce(json_object_agg(key, row_to_json(found)), '{}') FROM (
			SELECT t.key, sum(t.value::bigint)::bigint AS slots, array_agg(d.id ORDER BY d.id) AS dispatchers
			FROM dispatcherd.dispatchers d, jsonb_each_text(d.capacity) t
			WHERE `+claim.Alive+` AND t.value::bigint > 0
				AND NOT EXISTS (SELECT FROM dispatcherd.types p WHERE p.type = t.key AND p.paused IN ('all', 'queued')
					AND (p.paused_until IS NULL OR p.paused_until > clock_timestamp()))
			GROUP BY t.key) found`, nil, &types)
	return types, err
}

// Notify tells the controller, on another dispatcher, that jobs with keys have ended.
func (c *Controller) Notify(ctx context.Context) error {
	_, err := c.Do.Exec(ctx, `SELECT pg_notify('dispatcherd', 'keys') WHERE dispatcherd.may_notify()`)
	return err
}
