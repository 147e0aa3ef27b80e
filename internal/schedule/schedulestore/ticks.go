package schedulestore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
)

// Ticks are made in one transaction: lockSQL, factsSQL, the decision in Go (schedule.Decide), and ticksSQL. The locks of the schedules
// order the transactions, so the facts hold until ticksSQL has written the decision. If the answer is lost, the transaction is repeated,
// and the facts then contain its ticks.

// planSQL and the form of the statements make the plans independent of the statistics. A plan that was made while a table was small would
// later read it completely. So rows are found by a sub-select for each element of an array, and changed by their ctid: a join could begin
// with the table. A row that was changed meanwhile has its outcome checked again, in a form that no index has.
const planSQL = `SELECT set_config(name, 'off', true)
FROM unnest('{enable_seqscan,enable_bitmapscan,enable_hashjoin,enable_mergejoin}'::text[]) AS s (name)`

const lockSQL = `SELECT s.id FROM dispatcherd.schedules s WHERE s.id = ANY ($1::bigint[]) ORDER BY s.id FOR NO KEY UPDATE SKIP LOCKED`

// forgetSQL deletes those of the first $2 runs of schedules $1 that have ended, and returns the schedules of which all had ended. The
// caller has locked the schedules, so that no retry makes such a run pending at the same time.
const forgetSQL = `
WITH ended AS MATERIALIZED (
	SELECT s.id, r.ctid AS place FROM unnest($1::bigint[]) AS s (id) CROSS JOIN LATERAL (
		SELECT o.ctid, o.job_id FROM dispatcherd.schedule_runs o WHERE o.schedule_id = s.id ORDER BY o.job_id LIMIT $2::int) r
	WHERE (SELECT j.id FROM dispatcherd.jobs_live j WHERE j.id = r.job_id) IS NULL
), gone AS (
	DELETE FROM dispatcherd.schedule_runs r WHERE r.ctid = ANY (ARRAY (SELECT e.place FROM ended e))
)
SELECT e.id FROM ended e GROUP BY e.id HAVING count(*) = $2::int`

// factsSQL reads the facts about schedules $1. It counts at most $2 queued ticks of each. A deleted schedule has no row.
const factsSQL = `
SELECT s.id, s.version, s.paused, s.overlap, CASE WHEN s.kind = 'cron' THEN ` + handled + ` END AS handled,
	(SELECT count(*) FROM (SELECT FROM dispatcherd.schedule_runs r WHERE r.schedule_id = s.id LIMIT 1000) bounded) AS open,
	(SELECT count(*) FROM (SELECT FROM dispatcherd.ticks q WHERE q.schedule_id = s.id AND q.outcome = 'queued' LIMIT $2::int) bounded)
		AS queued, coalesce(n.occasion, '') AS next, n.reason IS NOT NULL AS cancels
FROM unnest($1::bigint[]) AS i (id) CROSS JOIN LATERAL (SELECT * FROM dispatcherd.schedules s WHERE s.id = i.id OFFSET 0) s
LEFT JOIN LATERAL (
	SELECT q.occasion, q.reason FROM dispatcherd.ticks q WHERE q.schedule_id = s.id AND q.outcome = 'queued'
	ORDER BY q.run_at, q.occasion LIMIT 1
) n ON true`

// existSQL returns those of the occasions $2 of schedules $1 that have a tick. The order makes it use the primary key.
const existSQL = `
SELECT i.schedule_id, i.occasion FROM unnest($1::bigint[], $2::text[]) AS i (schedule_id, occasion)
WHERE (SELECT t.occasion FROM dispatcherd.ticks t WHERE t.schedule_id = i.schedule_id AND t.occasion >= i.occasion
	ORDER BY t.schedule_id, t.occasion LIMIT 1) = i.occasion`

// ticksSQL writes decisions: the ticks $3, with the jobs of those that run, and the changes $4. Dispatcher $1 writes only as the controller
// in term $2, or is 0. The result has an empty row if it has written, and a row for each tick that was inserted or has become a run.
const ticksSQL = `
WITH ` + role + `, fence AS MATERIALIZED (
	SELECT FROM (VALUES (1)) one WHERE $1 = 0 OR EXISTS (SELECT FROM role)
), decided AS MATERIALIZED (
	SELECT d.*, CASE WHEN d."Outcome" = 'run' THEN nextval('dispatcherd.job_ids') END AS job FROM fence CROSS JOIN
		jsonb_to_recordset($3) AS d ("Schedule" bigint, "Occasion" text, "Outcome" text, "Reason" text, "Planned" timestamptz,
			"RunAt" timestamptz, "Missed" int)
), changed AS MATERIALIZED (
	SELECT c.* FROM fence CROSS JOIN
		jsonb_to_recordset($4) AS c ("Schedule" bigint, "Start" text, "Replace" boolean, "Cancel" boolean, "Record" boolean)
), made AS (
	INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome, reason, planned_at, run_at, job_id, missed)
	SELECT d."Schedule", d."Occasion", d."Outcome", nullif(d."Reason", ''), nullif(d."Planned", '0001-01-01T00:00:00Z'),
		greatest(d."RunAt", now()), d.job, nullif(d."Missed", 0)
	FROM decided d ON CONFLICT DO NOTHING RETURNING schedule_id, occasion, job_id, run_at
), started AS (
	UPDATE dispatcherd.ticks t SET outcome = 'run', reason = NULL, job_id = nextval('dispatcherd.job_ids')
	WHERE t.outcome || '' = 'queued' AND t.ctid = ANY (ARRAY (
		SELECT q.ctid FROM changed c CROSS JOIN LATERAL (
			SELECT o.ctid FROM dispatcherd.ticks o WHERE o.schedule_id = c."Schedule" AND o.occasion = c."Start" AND o.outcome = 'queued'
			ORDER BY o.run_at, o.occasion LIMIT 1) q WHERE c."Start" <> ''))
	RETURNING t.schedule_id, t.occasion, t.job_id, t.run_at
), written AS (
	SELECT * FROM made UNION ALL SELECT * FROM started
), job AS (
	INSERT INTO dispatcherd.jobs (id, type, payload, priority, max_attempts, timeout_ms, expected_ms, keys, run_at)
	SELECT w.job_id, s.type, s.payload, s.priority, s.max_attempts, s.timeout_ms, s.expected_ms, s.keys, coalesce(w.run_at, now())
	FROM written w CROSS JOIN LATERAL (SELECT * FROM dispatcherd.schedules o WHERE o.id = w.schedule_id OFFSET 0) s
	WHERE w.job_id IS NOT NULL ORDER BY w.job_id
), run AS (
	INSERT INTO dispatcherd.schedule_runs SELECT w.schedule_id, w.job_id FROM written w WHERE w.job_id IS NOT NULL
), replaced AS (
	UPDATE dispatcherd.ticks t SET outcome = 'skipped', reason = '` + schedule.ReplacedReason + `'
	WHERE t.outcome || '' = 'queued' AND t.ctid = ANY (ARRAY (SELECT q.ctid FROM changed c CROSS JOIN LATERAL (
		SELECT o.ctid FROM dispatcherd.ticks o WHERE o.schedule_id = c."Schedule" AND o.outcome = 'queued' OFFSET 0) q WHERE c."Replace"))
), cancelled AS (
	INSERT INTO dispatcherd.operations (kind, target, who) SELECT 'cancel', r.job_id, 'schedule' FROM changed c CROSS JOIN LATERAL (
		SELECT o.job_id FROM dispatcherd.schedule_runs o WHERE o.schedule_id = c."Schedule"
			AND (SELECT x.id FROM dispatcherd.operations x WHERE x.kind = 'cancel' AND x.target = o.job_id LIMIT 1) IS NULL
		ORDER BY o.job_id LIMIT 1000) r
	WHERE c."Cancel"
), recorded AS (
	INSERT INTO dispatcherd.operations (kind, target) SELECT 'schedule_edited', c."Schedule" FROM changed c WHERE c."Record"
	ON CONFLICT (kind, target) WHERE kind IN ('schedule_edited', 'limits_edited') DO UPDATE SET id = DEFAULT RETURNING 1
), announced AS (
	SELECT pg_notify('dispatcherd', 'edits') FROM (SELECT FROM recorded LIMIT 1) one WHERE dispatcherd.may_notify()
)
SELECT w.schedule_id, w.occasion, coalesce(w.job_id, 0) FROM written w
UNION ALL
SELECT 0, '', 0 FROM fence WHERE (SELECT count(*) FROM announced) >= 0`

// insertion is a tick of ticksSQL.
type insertion struct {
	schedule.Tick
	schedule.Decided
}

// change is what ticksSQL changes besides: the queued tick that starts, whether the queued ones are replaced and the open runs cancelled,
// and whether the schedule is recorded for the controller, because another session has queued a tick.
type change struct {
	Schedule                int64
	Start                   string
	Replace, Cancel, Record bool
}

// result is what became of a request.
type result struct {
	made    []contract.MadeTick // one for each requested tick
	started Started
}

// session is who makes ticks: the controller in a term or, with dispatcher 0, an operator.
type session struct {
	dispatcher int32
	term       int64
}

// apply decides about requests of different schedules and writes the decisions, in one transaction. The results are by schedule. There
// are none if the dispatcher is not the controller in its term.
func (s session) apply(ctx context.Context, db claim.DB, requests []schedule.Request) (results map[int64]*result, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		facts, err := readFacts(ctx, tx, requests)
		if err != nil {
			return err
		}
		decisions := make([]schedule.Decision, len(requests))
		for i := range requests {
			decisions[i] = schedule.Decide(facts[requests[i].Schedule], &requests[i])
		}
		results, err = s.write(ctx, tx, requests, decisions)
		return err
	})
	return results, err
}

// forgetMost bounds the runs of a schedule that one statement checks for their end: first few, so that many open runs do not make it
// slow, and more only while all of them have ended.
var forgetMost = []int{100, 1000, 10_000}

// readFacts locks schedules, forgets runs that have ended, and reads the facts.
func readFacts(ctx context.Context, tx pgx.Tx, requests []schedule.Request) (facts map[int64]*schedule.Facts, err error) {
	ids := make([]int64, len(requests))
	var schedules []int64 // of each tick
	var occasions []string
	for i := range requests {
		ids[i] = requests[i].Schedule
		for k := range requests[i].Ticks {
			schedules, occasions = append(schedules, ids[i]), append(occasions, requests[i].Ticks[k].Occasion)
		}
	}
	queued := 2 // to know whether a tick waits after one that starts
	if len(occasions) > 0 {
		queued = schedule.MaxQueued
	}
	var locked []int64
	var batch pgx.Batch
	batch.Queue(planSQL)
	batch.Queue(lockSQL, ids).Query(claim.ReadRows(&locked, pgx.RowTo[int64]))
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, err
	}
	for i, rest := 0, locked; i == 0 || len(rest) > 0 && i < len(forgetMost); i++ {
		batch = pgx.Batch{}
		batch.Queue(forgetSQL, rest, forgetMost[i]).Query(claim.ReadRows(&rest, pgx.RowTo[int64]))
		batch.Queue(factsSQL, ids, queued).Query(func(rows pgx.Rows) (err error) {
			facts, err = collectFacts(rows)
			return err
		})
		batch.Queue(existSQL, schedules, occasions).Query(func(rows pgx.Rows) error {
			var id int64
			var occasion string
			_, err := pgx.ForEachRow(rows, []any{&id, &occasion}, func() error {
				if f := facts[id]; f != nil {
					f.Made[occasion] = true
				}
				return nil
			})
			return err
		})
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return nil, err
		}
	}
	for _, id := range locked {
		if f := facts[id]; f != nil {
			f.Locked = false
		}
	}
	return facts, nil
}

// collectFacts reads the result of factsSQL. All schedules count as locked by others, and no occasion as made.
func collectFacts(rows pgx.Rows) (map[int64]*schedule.Facts, error) {
	type row struct {
		ID int64
		schedule.Facts
	}
	list, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByNameLax[row])
	facts := make(map[int64]*schedule.Facts, len(list))
	for _, r := range list {
		r.Locked, r.Made = true, map[string]bool{}
		facts[r.ID] = &r.Facts
	}
	return facts, err
}

// write sends decisions and returns the results.
func (s session) write(
	ctx context.Context, tx pgx.Tx, requests []schedule.Request, decisions []schedule.Decision,
) (results map[int64]*result, err error) {
	type place struct {
		schedule int64
		occasion string
	}
	ticks, changes := []insertion{}, make([]change, len(requests))
	for i, d := range decisions {
		n := len(ticks)
		for k, t := range d.Ticks {
			if written(t.Outcome) {
				ticks = append(ticks, insertion{requests[i].Ticks[k], t})
			}
		}
		tell := s.dispatcher == 0 && d.Waiting && len(ticks) > n // a tick that the controller does not know may wait
		changes[i] = change{requests[i].Schedule, d.Start, d.Replace, d.Cancel, tell}
	}
	jobs := map[place]int64{}
	rows, _ := tx.Query(ctx, ticksSQL, s.dispatcher, s.term, ticks, changes)
	var at place
	var job int64
	_, err = pgx.ForEachRow(rows, []any{&at.schedule, &at.occasion, &job}, func() error {
		jobs[at] = job
		return nil
	})
	if _, held := jobs[place{}]; err != nil || !held {
		return nil, err
	}
	results = make(map[int64]*result, len(requests))
	for i, d := range decisions {
		id := requests[i].Schedule
		r := &result{started: Started{Schedule: id, Job: jobs[place{id, d.Start}], Waiting: d.Waiting}}
		for k, t := range d.Ticks {
			m := contract.MadeTick{Outcome: t.Outcome}
			if written(t.Outcome) {
				var found bool
				if m.Job, found = jobs[place{id, requests[i].Ticks[k].Occasion}]; !found {
					m.Outcome = contract.TickExists // another session has inserted it without the lock
				}
			}
			r.made = append(r.made, m)
		}
		results[id] = r
	}
	return results, nil
}

// written says whether an outcome is that of a tick.
func written(outcome string) bool {
	return outcome != contract.TickExists && outcome != contract.TickChanged && outcome != contract.TickLocked
}
