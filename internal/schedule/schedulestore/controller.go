package schedulestore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
	"github.com/jackc/pgx/v5"
)

// Controller sends the statements of the controller. Those that make ticks, start queued ones, delete
// records of edits or write the column error do nothing unless the dispatcher is the controller in Term. Expire is
// not fenced: what it deletes and cancels does not depend on who calls it.
type Controller struct {
	Do         claim.Connection
	Dispatcher int32
	Term       int64
}

// role is true while the dispatcher $1 is the controller in term $2. The lock makes the next
// controller wait until the statement has ended.
const role = `role AS MATERIALIZED (
	SELECT c.term FROM dispatcherd.controller c WHERE c.dispatcher = $1::int AND c.term = $2::bigint FOR SHARE
)`

// Row is a schedule as the plan needs it.
type Row struct {
	contract.SchedulePlan

	Handled *time.Time // high-water mark: all occasions up to it are handled; nil = none
	Queued  bool       // ticks wait for the end of a run
}

// planColumns are the columns of contract.SchedulePlan, by name, of schedule s.
const planColumns = `s.id, s.name, s.kind, coalesce(s.spec, '') AS spec,
	coalesce((extract(epoch FROM s.every) * 1000000000)::bigint, 0) AS every, s.time_zone,
	(extract(epoch FROM s.jitter) * 1000000000)::bigint AS jitter, s.starts_at, s.ends_at, coalesce(s.once, '') AS once,
	(extract(epoch FROM s.catch_up) * 1000000000)::bigint AS catch_up, s.catch_up_most, s.paused, coalesce(s.error, '') AS error,
		s.version, s.since`

// handled is the high-water mark of schedule s.
const handled = `(SELECT max(t.planned_at) FROM dispatcherd.ticks t WHERE t.schedule_id = s.id AND t.planned_at IS NOT NULL)`

// rowColumns are the columns of Row, by name.
const rowColumns = planColumns + `,
	` + handled + ` AS handled,
	EXISTS (SELECT FROM dispatcherd.ticks t WHERE t.schedule_id = s.id AND t.outcome = 'queued') AS queued`

// page bounds the rows that one statement reads.
const page = 5000

// Load reads schedules in the order of their ids, from the first one above after. If it returns
// no rows, there are no more.
func (c Controller) Load(ctx context.Context, after int64) (rows []Row, err error) {
	return claim.Collect(ctx, c.Do, pgx.RowToStructByName[Row],
		`SELECT `+rowColumns+` FROM dispatcherd.schedules s WHERE s.id > $1 ORDER BY s.id LIMIT $2`, after, page)
}

// Start reads what startup schedules run once for.
func (c Controller) Start(ctx context.Context, appVersion string) (start schedule.Start, err error) {
	start.AppVersion = appVersion
	err = c.Do.Scan(ctx, `SELECT coalesce(founder, id) FROM dispatcherd.dispatchers WHERE id = $1`, []any{c.Dispatcher}, &start.Founder)
	return start, err
}

// WorkerTypes reads the types of the startup-worker schedules, also of paused ones. Every dispatcher
// may call it.
func (c Controller) WorkerTypes(ctx context.Context) (types []string, err error) {
	return claim.Collect(ctx, c.Do, pgx.RowTo[string], `SELECT DISTINCT type::text FROM dispatcherd.schedules WHERE kind = 'startup-worker'`)
}

// editsMost bounds the records of edits that one call reads.
const editsMost = 1000

// Edits deletes records of edits, and then reads the schedules that they name and those of again, by id; nil = the schedule was deleted.
// more says that there may be further records. Only the controller of the term deletes records, and tells the other dispatchers by
// edits_read. It leaves out records that an open transaction changes. After an error the records may be deleted.
func (c Controller) Edits(ctx context.Context, again []int64) (edited map[int64]*Row, more bool, err error) {
	ids, err := claim.Collect(ctx, c.Do, pgx.RowTo[int64], `WITH role AS (
			UPDATE dispatcherd.controller SET edits_read = edits_read + 1 WHERE dispatcher = $1::int AND term = $2::bigint
				AND EXISTS (SELECT FROM dispatcherd.operations WHERE kind = 'schedule_edited') RETURNING term
		), read AS MATERIALIZED (
			SELECT e.ctid FROM dispatcherd.operations e WHERE e.kind = 'schedule_edited' AND EXISTS (SELECT FROM role)
			ORDER BY e.target LIMIT $3 FOR UPDATE SKIP LOCKED
		) DELETE FROM dispatcherd.operations WHERE ctid = ANY (ARRAY (SELECT ctid FROM read)) RETURNING target`,
		c.Dispatcher, c.Term, editsMost)
	more = len(ids) == editsMost
	ids = append(ids, again...)
	if err != nil || len(ids) == 0 {
		return nil, more, err
	}
	edited = make(map[int64]*Row, len(ids))
	for _, id := range ids {
		edited[id] = nil
	}
	rows, err := claim.Collect(ctx, c.Do, pgx.RowToStructByName[Row],
		`SELECT `+rowColumns+` FROM dispatcherd.schedules s WHERE s.id = ANY ($1::bigint[])`, ids)
	for i := range rows {
		edited[rows[i].ID] = &rows[i]
	}
	return edited, more, err
}

// MaxTicks bounds the ticks of one statement.
const MaxTicks = 1000

// Make makes at most MaxTicks ticks and returns their outcomes. If its outcome is unknown, Make may be repeated: each occasion gets one
// tick. If Postgres refuses a tick, no tick of its schedule is made, because a later one would let the high-water mark pass it.
func (c Controller) Make(ctx context.Context, ticks []schedule.Tick) ([]contract.MadeTick, error) {
	results, err := c.apply(ctx, schedule.Requests(ticks))
	made := make([]contract.MadeTick, len(ticks))
	for i := range ticks {
		if r := results[ticks[i].Schedule]; r != nil {
			made[i], r.made = r.made[0], r.made[1:]
		}
	}
	return made, err
}

// apply decides about requests and writes the decisions. A schedule whose ticks Postgres refuses stops no others. The results are by
// schedule. There are none if the dispatcher is not the controller.
func (c Controller) apply(ctx context.Context, requests []schedule.Request) (map[int64]*result, error) {
	results := map[int64]*result{}
	without := func(r schedule.Request, m contract.MadeTick) {
		results[r.Schedule] = &result{slices.Repeat([]contract.MadeTick{m}, len(r.Ticks)), Started{Schedule: r.Schedule, Waiting: true}}
	}
	rest, err := claim.Apart(requests, time.Now().Add(claim.RepeatTime), func(part []schedule.Request) error {
		return c.Do(ctx, func(conn claim.Session) (int, error) {
			some, err := session{c.Dispatcher, c.Term}.apply(conn, conn, part)
			maps.Copy(results, some)
			return len(part), err
		})
	}, func(r schedule.Request, err error) {
		without(r, contract.MadeTick{Outcome: contract.TickRefused, Err: whyRefused(err)})
	})
	for _, r := range rest { // there was no time
		without(r, contract.MadeTick{Outcome: contract.TickLocked})
	}
	return results, err
}

// whyRefused returns why Postgres refuses a tick, without its message: readers see it, and a message may contain the payload, which they
// may not see.
func whyRefused(err error) error {
	pg := dsn.ErrorOf(err)
	switch {
	case pg.Code == "":
		return err
	case pg.ConstraintName != "":
		return fmt.Errorf("constraint %s, SQLSTATE %s", pg.ConstraintName, pg.Code)
	}
	return fmt.Errorf("SQLSTATE %s; the log of Postgres says why", pg.Code)
}

// runsSQL reads the last runs of schedules $1. After the clock was set back, the last tick is not the one that
// was made at the latest time, so runs that may not have ended come first. Of these the last end counts: it may be that of an earlier run,
// which was retried. The end of a run is in one of the partitions since its begin; a day more allows for a clock that was set back.
const runsSQL = `
SELECT i.id, t.made_at IS NOT NULL, EXISTS (
		SELECT FROM dispatcherd.schedule_runs r JOIN dispatcherd.jobs_live j ON j.id BETWEEN r.job_id AND r.job_id WHERE r.schedule_id = i.id),
	coalesce((SELECT max(e.finished_at) FROM unnest(t.jobs) AS r (id) CROSS JOIN LATERAL (
		SELECT j.finished_at FROM dispatcherd.jobs j WHERE j.id = r.id AND j.status IN ('done', 'failed', 'cancelled')
			AND j.finished_at >= t.made_at - interval '1 day' LIMIT 1) e), '0001-01-01T00:00:00Z')
FROM unnest($1::bigint[]) AS i (id) LEFT JOIN LATERAL (
	SELECT coalesce(nullif(ARRAY (SELECT r.job_id FROM dispatcherd.schedule_runs r WHERE r.schedule_id = i.id
		ORDER BY r.job_id DESC LIMIT 100), '{}'), ARRAY[t.job_id]) AS jobs, t.made_at
	FROM dispatcherd.ticks t WHERE t.schedule_id = i.id AND t.job_id IS NOT NULL ORDER BY t.made_at DESC LIMIT 1
) t ON true`

// LastRuns reads the last runs of intervals, at most MaxTicks of them.
func (c Controller) LastRuns(ctx context.Context, ids []int64) (runs []schedule.Run, err error) {
	return claim.Collect(ctx, c.Do, pgx.RowToStructByPos[schedule.Run], runsSQL, ids)
}

// Started is a queued tick that has become a run.
type Started struct {
	Schedule, Job int64 // Job is 0 if nothing was started
	Waiting       bool  // further ticks wait
}

// StartQueued starts the next queued tick of each schedule whose runs have ended.
// A job that Postgres refuses stops no others.
func (c Controller) StartQueued(ctx context.Context, ids []int64) (started []Started, err error) {
	requests := make([]schedule.Request, len(ids))
	for i, id := range ids {
		requests[i].Schedule = id
	}
	results, err := c.apply(ctx, requests)
	for _, r := range results { // order-free: the caller gets a set
		started = append(started, r.started)
	}
	return started, err
}

// KeepTicks is how long ticks are kept; those of startup-worker schedules, after the worker was last
// seen connected. The last planned tick of a schedule, which is its high-water mark, and the ticks of
// startup schedules are kept as long as the schedule.
const KeepTicks = 30 * 24 * time.Hour

// expireSQL reads $2 ticks, and those made at the same time as the last one, that were made after $1 and
// KeepTicks ago. It deletes those that need not be kept, and returns the time of the last one and their number.
// It also deletes ended runs of startup-worker schedules, and at the beginning, those of all schedules: a tick
// does not find each of them.
const expireSQL = `
WITH seen AS MATERIALIZED (
	SELECT t.schedule_id, t.occasion, t.made_at FROM dispatcherd.ticks t
	WHERE t.made_at > $1::timestamptz AND t.made_at < now() - $3::interval ORDER BY t.made_at FETCH FIRST $2 ROWS WITH TIES
), old AS MATERIALIZED (
	SELECT t.schedule_id, t.occasion FROM seen JOIN dispatcherd.ticks t ON t.schedule_id = seen.schedule_id AND t.occasion = seen.occasion
	WHERE (t.planned_at < (SELECT max(o.planned_at) FROM dispatcherd.ticks o WHERE o.schedule_id = t.schedule_id AND o.planned_at IS NOT NULL)
			OR t.planned_at IS NULL AND t.occasion !~ '^(start:|version:|ever$)' AND coalesce(t.renewed_at < now() - $3::interval, true)
			OR NOT EXISTS (SELECT FROM dispatcherd.schedules s WHERE s.id = t.schedule_id))
		AND (t.outcome <> 'queued' OR NOT EXISTS (SELECT FROM dispatcherd.schedules s WHERE s.id = t.schedule_id))
	FOR UPDATE OF t SKIP LOCKED
), gone AS (
	DELETE FROM dispatcherd.ticks t USING old o WHERE t.schedule_id = o.schedule_id AND t.occasion = o.occasion
), worker_runs AS (
	DELETE FROM dispatcherd.schedule_runs r USING dispatcherd.schedules s WHERE s.kind = 'startup-worker' AND r.schedule_id = s.id
		AND NOT EXISTS (SELECT FROM dispatcherd.jobs_live j WHERE j.id BETWEEN r.job_id AND r.job_id)
), other_runs AS (
	DELETE FROM dispatcherd.schedule_runs r WHERE $1 < 'epoch'
		AND NOT EXISTS (SELECT FROM dispatcherd.jobs_live j WHERE j.id BETWEEN r.job_id AND r.job_id)
)
SELECT coalesce(max(made_at), greatest($1, 'epoch')), count(*) FROM seen`

// Expire deletes old ticks of a portion of at least MaxTicks that were made after an instant. next is the instant
// for the next call. more says that there are more of them now. With the zero instant, it also reads the ticks
// that earlier calls have kept, and cancels runs as [Schedules.CancelOrphans] does; otherwise
// only those of schedules that exist. So the cost of a call depends on the ticks that have become old.
func (c Controller) Expire(ctx context.Context, after time.Time) (next time.Time, more bool, err error) {
	orphans := cancelWorkerRunsSQL
	if after.IsZero() {
		orphans = cancelOrphansSQL
	}
	var n int
	if err = c.Do.Scan(ctx, expireSQL, []any{after, MaxTicks, KeepTicks}, &next, &n); err == nil {
		_, err = c.Do.Exec(ctx, orphans)
	}
	return next, n >= MaxTicks, err
}

// Problem says why a version of a schedule does not run; an empty reason means that it does.
type Problem struct {
	Schedule, Version int64
	Reason            string
}

// Report writes the column error of schedules. It skips locked ones and returns them.
func (c Controller) Report(ctx context.Context, problems []Problem) (locked []int64, err error) {
	return claim.Collect(ctx, c.Do, pgx.RowTo[int64], `WITH `+role+`, wrong AS MATERIALIZED (
				SELECT s.id, s.version, nullif(p."Reason", '') AS reason
				FROM jsonb_to_recordset($3) AS p ("Schedule" bigint, "Version" bigint, "Reason" text)
				JOIN dispatcherd.schedules s ON s.id = p."Schedule" AND s.version = p."Version"
				WHERE EXISTS (SELECT FROM role) AND s.error IS DISTINCT FROM nullif(p."Reason", '')
			), problem AS MATERIALIZED (
				SELECT s.id, w.reason FROM wrong w JOIN dispatcherd.schedules s ON s.id = w.id AND s.version = w.version ORDER BY 1
				FOR NO KEY UPDATE OF s SKIP LOCKED
			), written AS (
				UPDATE dispatcherd.schedules s SET error = p.reason FROM problem p WHERE s.id = p.id
			) SELECT w.id FROM wrong w WHERE w.id NOT IN (SELECT p.id FROM problem p)`,
		c.Dispatcher, c.Term, problems)
}
