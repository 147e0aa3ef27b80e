package flowstore

import (
	"encoding/json"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow"
)

// Lists of a flow.Change are JSON arrays, whose members have the names of the fields.
const (
	// batchSQL writes the row of target $1.
	batchSQL = `
UPDATE dispatcherd.batches b SET open = CASE WHEN i."Sealed" THEN i."Open" END, done = i."Done", failed = i."Failed",
	cancelled = i."Cancelled", reason = nullif(i."Reason", ''), cancelled_by = nullif(i."CancelledBy", ''), walk = nullif(i."Walk", ''),
	walked = i."Walked", sealed_at = CASE WHEN i."Sealed" THEN coalesce(sealed_at, clock_timestamp()) END,
	ended_at = CASE WHEN i."Ended" THEN coalesce(ended_at, clock_timestamp()) END
FROM jsonb_to_record($2) AS i ("Sealed" boolean, "Ended" boolean, "Open" int, "Done" int, "Failed" int, "Cancelled" int, "Reason" text,
	"CancelledBy" text, "Walk" text, "Walked" bigint)
WHERE b.id = $1`

	takenSQL = `DELETE FROM dispatcherd.ends WHERE target = $1 AND id = ANY ($2)`

	// restSQL keeps the last $3 jobs of message $2 of target $1, of the first of which part $4 was told.
	restSQL = `
UPDATE dispatcherd.ends SET done = 0, jobs = jobs[cardinality(jobs) - $3 + 1 :], statuses = statuses[cardinality(jobs) - $3 + 1 :],
	sizes = sizes[cardinality(jobs) - $3 + 1 :], part = $4
WHERE target = $1 AND id = $2`

	// nodesSQL writes the counters of nodes $1.
	nodesSQL = `
UPDATE dispatcherd.nodes n SET open = i."Open", bad = i."Bad", inputs = i."Inputs", reason = nullif(i."Reason", ''),
	ready_at = CASE WHEN i."Ready" THEN coalesce(n.ready_at, clock_timestamp()) END
FROM jsonb_to_recordset($1) AS i ("ID" bigint, "Open" int, "Bad" int, "Inputs" bigint, "Reason" text, "Ready" boolean)
WHERE n.id BETWEEN i."ID" AND i."ID"`

	// finals are the records $2 of jobs. A job that is pending has none.
	finals = `(
	SELECT "ID" AS id, nullif("Status", 'pending') AS status, CASE WHEN "Status" <> 'pending' THEN "EndedAt" END AS at, "Size" AS size
	FROM jsonb_to_recordset($2) AS i ("ID" bigint, "Status" dispatcherd.status, "EndedAt" timestamptz, "Size" int)) i`

	// nodeRecordsSQL writes records $2 of nodes of flow $1, and of jobs outside it.
	nodeRecordsSQL = `
WITH node AS (
	UPDATE dispatcherd.nodes n SET status = i.status, finished_at = i.at, size = i.size FROM ` + finals + `
	WHERE n.id BETWEEN i.id AND i.id AND n.flow + 0 = $1
)
UPDATE dispatcherd.edges g SET status = i.status, finished_at = i.at, size = i.size FROM ` + finals + `
WHERE (g.before, g.flow) BETWEEN (i.id, $1) AND (i.id, $1) AND g.linked IS NOT NULL`

	// memberRecordsSQL writes records $2 of members of target $1.
	memberRecordsSQL = `
WITH good AS (
	DELETE FROM dispatcherd.bad_members m USING ` + finals + ` WHERE (m.batch, m.job_id) BETWEEN ($1, i.id) AND ($1, i.id) AND i.status IS NULL
)
INSERT INTO dispatcherd.bad_members SELECT $1, i.id, i.status, i.at FROM ` + finals + ` WHERE i.status IN ('failed', 'cancelled')`

	// linkedSQL says that the ends of jobs $2 will be reported to flow $1.
	linkedSQL = `
WITH live AS (
	UPDATE dispatcherd.jobs_live SET watched = true WHERE id = ANY ($2) AND watched IS DISTINCT FROM true
), waiting AS (
	UPDATE dispatcherd.jobs_waiting SET watched = true WHERE id = ANY ($2) AND watched IS DISTINCT FROM true
)
UPDATE dispatcherd.edges SET linked = true WHERE flow = $1 AND before = ANY ($2)`

	// againSQL makes ended jobs $2 wait, or pending, again. Target $1 knows it.
	againSQL = `
WITH node AS (
	UPDATE dispatcherd.nodes n SET ready_at = NULL FROM jsonb_to_recordset($2) AS i ("ID" bigint) WHERE n.id BETWEEN i."ID" AND i."ID"
)
SELECT dispatcherd.run_again(array_agg("ID"), array_agg("To"), $1)
FROM jsonb_to_recordset($2) AS i ("ID" bigint, "To" dispatcherd.status)`

	// recountSQL counts the dependencies of the nodes of flow $1 in places $2 to $3, and returns how many counters were wrong.
	recountSQL = `
WITH counted AS (
	SELECT n.id, count(*) FILTER (WHERE r.before IS NOT NULL AND r.status IS NULL) AS open,
		count(*) FILTER (WHERE r.status IN ('failed', 'cancelled')) AS bad, coalesce(sum(r.size), 0) AS inputs,
		'dependency ' || min(r.before) FILTER (WHERE r.status = 'failed') || ' failed' AS failed,
		'dependency ' || min(r.before) FILTER (WHERE r.status = 'cancelled') || ' was cancelled' AS cancelled
	FROM dispatcherd.nodes n LEFT JOIN LATERAL (
		SELECT d.id AS before, coalesce(m.status, g.status) AS status, coalesce(m.size, g.size) AS size
		FROM unnest(n.depends_on) AS d (id)
		LEFT JOIN dispatcherd.nodes m ON m.id BETWEEN d.id AND d.id AND m.flow + 0 = $1
		LEFT JOIN dispatcherd.edges g ON m.id IS NULL AND (g.before, g.flow) BETWEEN (d.id, $1) AND (d.id, $1)
	) r ON true
	WHERE n.flow = $1 AND n.place BETWEEN $2 AND $3 AND n.ready_at IS NULL GROUP BY n.id
), wrong AS (
	UPDATE dispatcherd.nodes n SET open = c.open, bad = c.bad, inputs = c.inputs,
		reason = CASE WHEN c.bad > 0 THEN coalesce(n.reason, c.failed, c.cancelled) END
	FROM counted c WHERE n.id BETWEEN c.id AND c.id AND (n.open, n.bad, n.inputs) IS DISTINCT FROM (c.open, c.bad, c.inputs) RETURNING n.open
)
SELECT count(*) FROM wrong`

	// releaseSQL makes waiting jobs $1 pending. Callback $2 gets $3 in its payload. With inputsSQL, a node that takes results gets those of
	// its dependencies, from the rows that the flow has recorded; without, no partition of ended jobs is opened. It notifies dispatchers as
	// notify_dispatchers does, which is no trigger of jobs_live.
	releaseSQL = releaseHead + ` END` + releaseTail

	releaseHead = `
WITH gone AS (
	DELETE FROM dispatcherd.jobs_waiting w USING unnest($1::bigint[]) AS i (id) WHERE w.id BETWEEN i.id AND i.id
	RETURNING w.*, greatest(w.run_at, clock_timestamp()) AS due
), live AS (
	INSERT INTO dispatcherd.jobs_live (id, run_at, first_run_at, created_at, attempt, timeout_ms, priority, max_attempts, type,
		payload, keys, expected_ms, parent, watched, errors, traceparent, backoff)
	SELECT w.id, due, coalesce(first_run_at, due), created_at, attempt, timeout_ms, priority, max_attempts, type,
		CASE WHEN a.addition IS NULL THEN payload
			ELSE (CASE WHEN payload ? 'inputs' THEN payload - '{missing,unsuccessful}'::text[] ELSE payload END
				|| a.addition)::dispatcherd.payload END,
		keys, expected_ms, parent, watched, errors, traceparent, backoff
	FROM gone w CROSS JOIN LATERAL (SELECT CASE WHEN w.id = $2 THEN $3::jsonb `

	releaseTail = ` AS addition) a
	RETURNING id, priority, run_at, type, keys, expected_ms
)
SELECT CASE WHEN keyed THEN pg_notify('dispatcherd', 'keys') END,
	pg_notify('dispatcherd', concat_ws(' ', 'jobs', CASE WHEN n = 1 AND NOT keyed AND due THEN one END))
FROM (
	SELECT count(*) AS n, bool_or(keys IS NOT NULL) AS keyed, bool_and(run_at <= clock_timestamp()) AS due,
		min(concat_ws(' ', id::bigint, concat_ws('/', priority::int, dispatcherd.duration_class(expected_ms)),
			(extract(epoch FROM run_at::timestamptz) * 1000000)::bigint, type::text)) AS one FROM live
) news
WHERE n > 0 AND EXISTS (SELECT FROM dispatcherd.dispatchers WHERE armed) AND dispatcherd.may_notify()`

	inputsSQL = ` ELSE (
		SELECT jsonb_strip_nulls(jsonb_build_object('missing', jsonb_agg(r.name) FILTER (WHERE r.status IS NULL),
				'unsuccessful', jsonb_object_agg(r.name, r.recorded) FILTER (WHERE r.recorded <> 'done')))
			|| jsonb_build_object('inputs', jsonb_object_agg(r.name, r.result))
		FROM dispatcherd.nodes n CROSS JOIN LATERAL (
			SELECT coalesce(m.name, d.id::text) AS name, coalesce(m.status, g.status) AS recorded, j.status, j.result
			FROM unnest(n.depends_on) AS d (id)
			LEFT JOIN dispatcherd.nodes m ON m.id BETWEEN d.id AND d.id AND m.flow + 0 = n.flow
			LEFT JOIN dispatcherd.edges g ON m.id IS NULL AND (g.before, g.flow) BETWEEN (d.id, n.flow) AND (d.id, n.flow)
			LEFT JOIN dispatcherd.jobs j ON j.id BETWEEN d.id AND d.id AND j.status = coalesce(m.status, g.status)
				AND j.finished_at = coalesce(m.finished_at, g.finished_at)
		) r
		WHERE n.id BETWEEN w.id AND w.id AND n.takes_results) END`

	// stopSQL ends pending and waiting jobs $1.
	stopSQL = `
SELECT dispatcherd.end_idle(array_agg("ID"), "Status", CASE WHEN "Status" = 'cancelled' THEN "By" END, array_agg(nullif("Reason", '')))
FROM jsonb_to_recordset($1) AS i ("ID" bigint, "Status" dispatcherd.status, "By" text, "Reason" text) GROUP BY "Status", "By"`

	// sendSQL inserts messages $1.
	sendSQL = `
INSERT INTO dispatcherd.ends (target, jobs, statuses, sizes, walk, at)
SELECT m."Target", j.ids, j.statuses, j.sizes, nullif(m."Walk", ''), coalesce(j.at, now())
FROM jsonb_to_recordset($1) AS m ("Target" bigint, "Jobs" jsonb, "Walk" text) CROSS JOIN LATERAL (
	SELECT array_agg("ID") AS ids, array_agg("Status") AS statuses, array_agg("Size") AS sizes, max("EndedAt") AS at
	FROM jsonb_to_recordset(nullif(m."Jobs", 'null'))
		AS j ("ID" bigint, "Status" dispatcherd.status, "Size" int, "EndedAt" timestamptz)) j`
)

// queue adds the statements that write a change.
func (r *Result) queue(batch *pgx.Batch, c *flow.Change) {
	b := &c.Batch
	write := func(n int, sql string, args ...any) {
		if n > 0 {
			batch.Queue(sql, args...)
		}
	}
	write(len(c.Taken), takenSQL, b.ID, c.Taken)
	if m := c.Rest; m != nil {
		batch.Queue(restSQL, b.ID, m.ID, len(m.Jobs), m.Part)
	}
	if b.Kind != "" {
		batch.Queue(batchSQL, b.ID, b)
	}
	write(len(c.Nodes), nodesSQL, c.Nodes)
	records := memberRecordsSQL
	if b.Kind == contract.FlowKind {
		records = nodeRecordsSQL
	}
	write(len(c.Records), records, b.ID, c.Records)
	write(len(c.Linked), linkedSQL, b.ID, c.Linked)
	write(len(c.Again), againSQL, b.ID, c.Again)
	if c.Recount[1] > 0 {
		batch.Queue(recountSQL, b.ID, c.Recount[0], c.Recount[1]).QueryRow(func(row pgx.Row) error {
			wrong := 0
			err := row.Scan(&wrong)
			if c.Repairs {
				r.Wrong += wrong
			}
			return err
		})
	}
	if len(c.Release) > 0 {
		var addition []byte
		if slices.Contains(c.Release, b.ID) {
			addition, _ = json.Marshal(map[string]any{"batch": map[string]int64{"id": int64(b.ID), // numbers have a text
				"total": int64(b.Done + b.Failed + b.Cancelled), "done": int64(b.Done), "failed": int64(b.Failed), "cancelled": int64(b.Cancelled)}})
		}
		release := releaseSQL
		if c.Inputs {
			release = releaseHead + inputsSQL + releaseTail
		}
		batch.Queue(release, c.Release, b.ID, addition)
	}
	write(len(c.Stop), stopSQL, c.Stop)
	write(len(c.Ask), `INSERT INTO dispatcherd.operations (kind, target, who) SELECT 'cancel', unnest($1::bigint[]), $2`, c.Ask, b.CancelledBy)
	r.OthersTold = r.OthersTold || len(c.Send)+len(c.Stop)+len(c.Again) > 0
	if c.Look {
		c.Send = append(c.Send, flow.Message{Target: b.ID})
	}
	write(len(c.Send), sendSQL, c.Send)
	r.Left, r.Busy, r.Wrong, r.Retried = c.Left(), c.Busy, r.Wrong+c.Wrong, r.Retried+len(c.Again)
}
