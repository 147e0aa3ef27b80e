package claim

// This file holds every statement that fetches, claims, finishes or adopts jobs. Each
// connection prepares its statements once, under their names.
//
// The planner must choose the primary key for each lookup by id, independent of the
// statistics. Postgres makes a plan once per connection, perhaps while the table is
// empty, and then keeps it. Three things force this choice: BETWEEN conditions with
// equal bounds, the conditions "> 0" on parameters, and id + 0 as an order (see
// docs/explanation/storage.md).
//
// Parameters are arrays of the same length, one element per job, unless the
// comment says otherwise.

// statement is one prepared statement.
type statement struct {
	name string
	use  string // what it is for
	sql  string
}

// statements are the statements of one connection.
type statements []statement

var (
	claimStatements = statements{
		{"claim", "takes rows without waiting for a lock: the usual case", claimSQL},
		{"claim-contended", "takes rows and skips locked ones: used while other dispatchers win rows of the same claims", claimContendedSQL},
		ownLeaseStatement,
		{"resolve", "reads what a claim with an unknown outcome took", resolveSQL},
	}
	loadStatements = statements{
		{"load", "reads the payloads that a claim did not return", loadSQL},
	}
	finishStatements = statements{
		{"done", "moves succeeded jobs out of the hot table", doneSQL},
		{"ended", "moves jobs that end in any other way out of the hot table", endedSQL},
		{"pending", "makes running jobs pending again", pendingSQL},
		{"ended-before", "finds what an earlier copy of a finish has ended", endedBeforeSQL},
		{"patience", "sets the lock timeout of a finish that met no locked row", patienceSQL},
	}
	fetchStatements = statements{
		{"fetch", "reads the heads of lanes of rows without an expected duration", fetchSQL},
		{"fetch-named", "reads the heads of all lanes, and lists those of rows with an expected duration", fetchNamedSQL},
	}
	adoptStatements = statements{
		{"adopt", "takes over running rows that workers offer to resume", adoptSQL},
		ownLeaseStatement,
	}
)

// ownLeaseStatement is sent after a claim or an adoption that took no rows. It
// reads whether the statement was allowed to take rows.
var ownLeaseStatement = statement{"own-lease", "returns the epoch of a dispatcher that holds its lease", ownLeaseSQL}

const (
	ownLeaseSQL = `SELECT epoch FROM dispatcherd.dispatchers WHERE id = $1::int AND incarnation = $2::uuid AND ` + holdsLease
	// holdsLease is true until another dispatcher declares this one lost. Each use also
	// compares the incarnation: an earlier state of the table may be restored, and only
	// the incarnation proves that the row belongs to this process.
	holdsLease = `lost_at IS NULL AND NOT leaving`
)

// Columns of a job. Each list exists once, but the SQL functions that move rows
// (migrations/schema/7_flow_operations.sql) have lists of their own, which a test
// compares with these. A new column of a job belongs to keptColumns or endColumns. If
// a claim needs the column, it also belongs to wonColumns. If operators see it, it
// also belongs to jobColumns (read.go) and to contract.Job.
const (
	// keptColumns are copied unchanged when a row moves out of the hot table.
	keptColumns = `id, run_at, first_run_at, created_at, attempt, timeout_ms, priority, max_attempts, type, keys, expected_ms,
		fence, parent, unique_key, watched, traceparent, backoff, started_at, payload`
	// endColumns are the other columns of a row that has ended, without result. The
	// end may change their values.
	endColumns = `failures, crashes, errors, status, dispatcher, finished_at, cancelled_by, log, placement`
	// wonColumns are the columns that a claim returns. See readWon.
	wonColumns = `id, attempt, coalesce(max_attempts, 0), failures, crashes, coalesce(timeout_ms, 0), ` + otherLane + `, ` + timeLeft + `,
		coalesce(fence, 0), ` + withPermits + `, coalesce(CASE WHEN watched THEN -coalesce(parent, id) ELSE parent END, 0),
		traceparent, backoff, ` + smallPayload
	// pendingAgain resets the columns that a claim and progress reports have set. A job with keys
	// gives back its permits: the controller reads negative fences.
	pendingAgain = `status = 'pending', dispatcher = NULL, token = NULL, started_at = NULL, progress = NULL,
		fence = -abs(fence), admitted_to = NULL`
	// ready is true for row j without keys and with permits. With unnamed or named it is the predicate of one of the indexes of lanes.
	ready   = `(j.keys IS NULL OR j.fence > 0)`
	unnamed = `j.expected_ms IS NULL`
	named   = `j.expected_ms IS NOT NULL`
	class   = `dispatcherd.duration_class(j.expected_ms)` // of a row that is named
	// claimable is true for a row that dispatcher $3 may claim. coalesce keeps the planner from the index of lanes.
	claimable = `status = 'pending' AND (run_at <= now()) IS TRUE
		AND (keys IS NULL OR coalesce(fence, 0) > 0 AND coalesce(admitted_to, $3) = $3)`
)

// otherLane is NULL if the row has type $5 and priority $6. Otherwise it is the priority
// as one character, counted from 1, and the type. A column that is NULL costs little.
const otherLane = `CASE WHEN type <> $5::text OR priority <> $6::smallint THEN chr(priority + 1) || type END`

// timeLeft is the time until the deadline in milliseconds, or NULL without a deadline.
const timeLeft = `CASE WHEN deadline IS NOT NULL THEN
	least(greatest(floor(extract(epoch FROM deadline - clock_timestamp()) * 1000), -1), 2000000000)::int END`

// withPermits is for how long the row has had its permits, in milliseconds, or NULL.
const withPermits = `CASE WHEN fence > 0 THEN (extract(epoch FROM clock_timestamp() - admitted_at) * 1000)::bigint END`

// smallPayload is the payload as Postgres sends jsonb, if it takes at most $4 bytes uncompressed, and at
// most an eighth of that if it is compressed. The functions do not read the TOAST table. So a
// payload that cannot be read does not stop the claims of other rows. A number of jsonb may be
// thousands of times longer as text, and Postgres converts such a row for half a second. So the
// claim converts payloads for payloadTime only. It converts them here, because Postgres sends
// what RETURNING returns after the statement has ended, without regard to its timeout.
//
//nolint:dupword // two expressions end together
const smallPayload = `CASE WHEN clock_timestamp() < statement_timestamp() + ` + payloadTime + ` THEN
	CASE WHEN pg_column_compression(payload) IS NULL THEN
	CASE WHEN pg_column_size(payload) <= $4::int THEN jsonb_send(payload) END
	WHEN pg_column_size(payload) <= $4 / 8 THEN
	CASE WHEN pg_column_size(payload #> '{}') <= $4 THEN jsonb_send(payload) END END END`

// payloadTime is the time for which one statement converts payloads to text.
const payloadTime = `interval '500 ms'`

// claimSQL takes the pending and due rows among ids: $1 ids, $2 token, $3 this
// dispatcher, $4 see smallPayload, $5 and $6 see otherLane, $7 the dispatcher's epoch,
// $8 session fingerprints, $9 the dispatcher's incarnation. $10 to $13 say where the ids
// lie, see idRanges: a bit for each place, and low, high and base of each range.
//
// The statement holds a share lock on the row of this dispatcher. So no session can
// declare the dispatcher lost before the claim has ended. IS TRUE keeps the planner
// from looking for due rows in the index of lanes. A locked row makes the statement
// fail after lockPatience.
const claimSQL = claimRecord + `)` + claimUpdate + `
FROM unnest($11::bigint[], $12::bigint[], $13::bigint[]) AS r (low, high, base)
WHERE id BETWEEN r.low AND r.high AND r.low > 0 AND r.high > 0 AND get_bit($10::bytea, id - r.base) = 1
	AND ` + claimable + ` AND EXISTS (SELECT FROM me)
RETURNING ` + wonColumns

// claimContendedSQL does the same as claimSQL, with parameters $1 to $9. It locks
// rows in the order of their ids and skips locked rows. So two dispatchers neither
// wait for each other nor deadlock. A row that the statement has locked cannot
// change, so its ctid stays valid. Several statements may name the same token: see
// rowByRow.
const claimContendedSQL = claimRecord + `
	ON CONFLICT (dispatcher, token) DO UPDATE SET ids = claims.ids || EXCLUDED.ids, sessions = claims.sessions || EXCLUDED.sessions
), free AS MATERIALIZED (
	SELECT ctid FROM dispatcherd.jobs_live
	WHERE id = ANY ($1) AND ` + claimable + ` AND EXISTS (SELECT FROM me)
	ORDER BY id FOR UPDATE SKIP LOCKED
)` + claimUpdate + `
WHERE ctid = ANY (ARRAY (SELECT ctid FROM free)) AND status = 'pending'
RETURNING ` + wonColumns

const (
	claimRecord = `
WITH me AS MATERIALIZED (
	SELECT id FROM dispatcherd.dispatchers
	WHERE id = $3::int AND incarnation = $9::uuid AND epoch = $7::int AND ` + holdsLease + `
	FOR KEY SHARE
), record AS (
	INSERT INTO dispatcherd.claims (dispatcher, token, ids, sessions) SELECT id, $2, $1::bigint[], $8::bigint[] FROM me`
	claimUpdate = `
UPDATE dispatcherd.jobs_live
SET status = 'running', attempt = attempt + 1, dispatcher = $3, token = $2::bigint, started_at = now()`
)

// resolveSQL reads the rows among ids $1 that still run under dispatcher $3 and that
// the claim with token $2 took; $4 see smallPayload, $5 and $6 see otherLane.
const resolveSQL = `
SELECT ` + wonColumns + ` FROM dispatcherd.jobs_live
WHERE id = ANY ($1::bigint[]) AND status = 'running' AND dispatcher = $3::int AND token = $2::bigint`

// loadSQL reads payloads of running rows: $1 ids, $2 attempts, $3 this dispatcher, $4 the
// bytes of all payloads in the table. It returns id and text. It always reads the first
// payload. It reads a further one only within payloadTime, and while the sum of their sizes is
// at most $4; otherwise the text is NULL. The sum is in the order of i.id: for the order of
// j.id the planner may read the complete index.
const loadSQL = `
SELECT id, CASE
	WHEN upto = size OR upto <= $4::bigint AND clock_timestamp() < statement_timestamp() + ` + payloadTime + `
	THEN payload::text END
FROM (
	SELECT j.id, j.payload, pg_column_size(j.payload) AS size, sum(pg_column_size(j.payload)) OVER (ORDER BY i.id) AS upto
	FROM unnest($1::bigint[], $2::int[]) AS i (id, attempt) JOIN dispatcherd.jobs_live j ON ` + isItem + `
	WHERE j.status = 'running' AND j.dispatcher = $3::int
) sized`

// isItem joins row j with item i of a list of (id, attempt).
const isItem = `j.id BETWEEN i.id AND i.id AND i.id > 0 AND j.attempt = i.attempt`

// doneSQL ends succeeded jobs. Places and ranges are explained at idRanges: $1 the
// attempt of each place, $2 this dispatcher, $3 all results one after the other, $4
// where the result of each place begins and ends in $3, $5 to $7 low, high and base
// of each range. $8 and $9 are the placements, like the results. A place with noAttempt is
// not in the request. An empty result or placement means that the job has none. The
// statement returns no ids, because returning them costs as much as finding the rows. The
// command tag contains the number of rows.
//
//nolint:dupword // two columns are NULL
const doneSQL = `
WITH gone AS (
	DELETE FROM dispatcherd.jobs_live j USING unnest($5::bigint[], $6::bigint[], $7::bigint[]) AS r (low, high, base)
	WHERE j.id BETWEEN r.low AND r.high AND r.low > 0 AND r.high > 0 AND j.attempt = ($1::int[])[j.id - r.base + 1]
		AND j.dispatcher = $2::int AND j.status = 'running'
	RETURNING ` + keptColumns + `, failures, crashes, errors, j.id - r.base + 1 AS place
), recorded AS (
	INSERT INTO dispatcherd.ends (target, done, jobs, statuses, sizes)
	SELECT parent, count(*) FILTER (WHERE watched IS NULL), array_agg(id::bigint ORDER BY id) FILTER (WHERE watched IS NOT NULL),
		array_agg('done'::dispatcherd.status) FILTER (WHERE watched IS NOT NULL),
		array_agg(coalesce(($4::int[])[place + 1] - ($4::int[])[place], 0) ORDER BY id) FILTER (WHERE watched IS NOT NULL)
	FROM gone WHERE parent IS NOT NULL GROUP BY parent
	UNION ALL
	SELECT id, 0, ARRAY[id::bigint], '{done}', ARRAY[coalesce(($4::int[])[place + 1] - ($4::int[])[place], 0)] FROM gone WHERE watched
)
INSERT INTO dispatcherd.jobs_done (` + keptColumns + `, ` + endColumns + `, result)
SELECT ` + keptColumns + `, failures, crashes, errors, 'done', $2, now(), NULL, NULL,
	CASE WHEN ($9::int[])[place + 1] > ($9::int[])[place] THEN convert_from(
		substring($8::bytea, ($9::int[])[place] + 1, ($9::int[])[place + 1] - ($9::int[])[place]), 'UTF8')::json END,
	CASE WHEN ($4::int[])[place + 1] > ($4::int[])[place] THEN convert_from(
		substring($3::bytea, ($4::int[])[place] + 1, ($4::int[])[place + 1] - ($4::int[])[place]), 'UTF8')::json END
FROM gone`

// appendError and appendPlacedError append the error of item i to the errors of job j and
// keep the last ten.
const (
	appendError       = keptErrors + newError + ` END`
	appendPlacedError = keptErrors + placedError + ` END`
	keptErrors        = `CASE WHEN i.error = '' THEN j.errors ELSE
	CASE WHEN jsonb_array_length(j.errors) >= 10 THEN j.errors - 0 ELSE coalesce(j.errors, '[]') END
	|| `
)

// newError is the error of item i.
const newError = `jsonb_build_object('attempt', j.attempt, 'started_at', j.started_at, 'at', now(), 'outcome', i.outcome, 'error', i.error)`

// placedError is the error of item i with the placement of the attempt, if it has one.
const placedError = `jsonb_strip_nulls(` + newError + ` || jsonb_build_object('placement', nullif(i.placement, '')::jsonb))`

// endedSQL permanently ends jobs that did not succeed or that have a log: $1 ids, $2 attempts, $3 outcomes, $4 errors, $5 this
// dispatcher, $6 placements, $7 logs and $8 results. An empty text means that the job has none.
// The statement also removes requests to cancel the jobs: a
// remaining request would cancel a job after its retry. An array names the jobs, because
// a join would read the complete rows of gone.
const endedSQL = `
WITH item AS MATERIALIZED (
	SELECT * FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $6::text[], $7::text[], $8::text[])
		AS i (id, attempt, outcome, error, placement, log, result)
), gone AS (
	DELETE FROM dispatcherd.jobs_live j USING item i
	WHERE ` + isItem + ` AND j.dispatcher = $5::int AND j.status = 'running'
	RETURNING j.*, i.outcome, nullif(i.result, '')::json AS new_result, nullif(i.placement, '')::json AS placed,
		nullif(i.log, '')::json AS new_log, ` + appendPlacedError + ` AS all_errors
), final AS (
	SELECT id, parent, watched, (CASE outcome WHEN 'quarantined' THEN 'failed' ELSE outcome END)::dispatcherd.status AS status,
		coalesce(octet_length(new_result::text), 0) AS size FROM gone
), recorded AS (
	INSERT INTO dispatcherd.ends (target, jobs, statuses, sizes)
	SELECT parent, array_agg(id::bigint ORDER BY id), array_agg(status ORDER BY id), array_agg(size ORDER BY id) FROM final
	WHERE parent IS NOT NULL GROUP BY parent
	UNION ALL SELECT id, ARRAY[id::bigint], ARRAY[status], ARRAY[size] FROM final WHERE watched
), done AS (
	INSERT INTO dispatcherd.jobs_done (` + keptColumns + `, ` + endColumns + `, result)
	SELECT ` + keptColumns + `, failures, crashes, all_errors, 'done', dispatcher, now(), NULL, new_log, placed, new_result
	FROM gone WHERE outcome = 'done'
), failed AS (
	INSERT INTO dispatcherd.jobs_failed (` + keptColumns + `, ` + endColumns + `)
	SELECT ` + keptColumns + `, least(failures + (outcome = 'failed')::int, 32767),
		least(crashes + (outcome = 'quarantined')::int, 32767), all_errors,
		'failed', dispatcher, now(), NULL, new_log, placed FROM gone WHERE outcome IN ('failed', 'quarantined')
), cancelled AS (
	INSERT INTO dispatcherd.jobs_cancelled (` + keptColumns + `, ` + endColumns + `)
	SELECT ` + keptColumns + `, failures, crashes, all_errors, 'cancelled', dispatcher, now(),
		(SELECT min(who) FROM dispatcherd.operations c WHERE c.kind = 'cancel' AND c.target = gone.id), new_log, placed
	FROM gone WHERE outcome = 'cancelled'
), settled AS (
	DELETE FROM dispatcherd.operations WHERE kind = 'cancel' AND target = ANY (ARRAY (SELECT id FROM gone))
)
SELECT array_agg(id::bigint) FROM gone`

// pendingSQL makes jobs pending again: $1 ids, $2 attempts, $3 outcomes, $4 errors,
// $5 this dispatcher, $6 placements, $7 logs as for
// endedSQL, $8 delays in microseconds. After a delay, first_run_at keeps the time at which the job was first due.
// It notifies other dispatchers if a job may run at once.
const pendingSQL = `
WITH item AS MATERIALIZED (
	SELECT * FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $6::text[], $7::text[], $8::bigint[])
		AS i (id, attempt, outcome, error, placement, log, delay)
), back AS (
	UPDATE dispatcherd.jobs_live j
	SET ` + pendingAgain + `, log = nullif(i.log, '')::json,
		run_at = CASE WHEN i.outcome IN ('retry', 'isolated') THEN now() + i.delay * interval '1 microsecond' ELSE j.run_at END,
		first_run_at = CASE WHEN i.outcome IN ('retry', 'isolated') THEN coalesce(j.first_run_at, j.run_at) ELSE j.first_run_at END,
		failures = least(j.failures + (i.outcome = 'retry')::int, 32767),
		crashes = least(j.crashes + (i.outcome IN ('crashed', 'isolated'))::int, 32767),
		errors = ` + appendPlacedError + `
	FROM item i
	WHERE ` + isItem + ` AND j.dispatcher = $5::int AND j.status = 'running'
	RETURNING j.id, i.delay
), notification AS MATERIALIZED (
	SELECT pg_notify('dispatcherd', 'jobs') FROM (SELECT FROM back WHERE delay = 0 LIMIT 1) due
	WHERE EXISTS (SELECT FROM dispatcherd.dispatchers WHERE armed AND id <> $5) AND dispatcherd.may_notify()
)
SELECT array_agg(id::bigint) FROM back CROSS JOIN (SELECT count(*) FROM notification) notified`

// patienceSQL sets the lock timeout for the second try of a finish. The first try reached
// the shorter finishPatience. The second try omits the jobs that another transaction has
// locked. Any other lock is held for a short time only, for example by a commit with a
// notification.
const patienceSQL = `SELECT set_config('lock_timeout', '1s', true)`

// lockedSQL finds those of the running jobs that another transaction has locked: $1 ids, $2
// attempts, $3 dispatcher. It returns the process id of the session that
// holds the lock, or 0 if several sessions hold it. The locks that the statement itself
// takes end with it.
const lockedSQL = `
WITH free AS MATERIALIZED (
	SELECT j.id FROM unnest($1::bigint[], $2::int[]) AS i (id, attempt) JOIN dispatcherd.jobs_live j ON ` + isItem + `
	WHERE j.dispatcher = $3::int AND j.status = 'running' ORDER BY j.id + 0 FOR UPDATE OF j SKIP LOCKED
), holder AS MATERIALIZED (
	SELECT transactionid, pid FROM pg_locks WHERE locktype = 'transactionid' AND granted
)
SELECT j.id::bigint, coalesce((SELECT pid FROM holder h WHERE h.transactionid = j.xmax LIMIT 1), 0)
FROM unnest($1, $2) AS i (id, attempt) JOIN dispatcherd.jobs_live j ON ` + isItem + `
WHERE j.dispatcher = $3 AND j.status = 'running' AND j.id NOT IN (SELECT id FROM free)`

// endedBeforeSQL finds the jobs that an earlier copy of the same request has ended:
// $1 ids, $2 attempts, $3 this dispatcher, $4 whether the outcome makes the row
// pending instead of moving it out of the hot table. If $4 does not fit the status of
// the row, another dispatcher has ended the attempt.
const endedBeforeSQL = `
SELECT array_agg(j.id::bigint) FROM unnest($1::bigint[], $2::int[], $4::boolean[]) AS i (id, attempt, back)
JOIN dispatcherd.jobs j ON ` + isItem + `
WHERE CASE j.status WHEN 'running' THEN false WHEN 'pending' THEN i.back ELSE NOT i.back AND j.dispatcher = $3::int END`

// fetchSQL reads the heads of lanes of rows without an expected duration, with one short index scan and one result row per
// lane. Row 0 is the database clock. The parameters are:
//
//   - $1 types, $2 priorities
//   - $3 and $4 the cursor (run_at, id), after which rows are read
//   - $5 limits
//   - $6 and $7 the lowest and the highest number of the share, $8 whether to read
//     the rows outside the share instead, $9 the block size of the share, or a
//     negative number for all rows
//   - $10 and $11 the key (run_at, id) before which rows are read
//   - $12 and $13, not arrays: whether to leave out rows that a transaction in progress has locked, and this dispatcher
//
// Within a lane, (run_at, id) is the order of the score under any weights. So the
// first rows of a lane are exactly the rows with the highest scores. A backfill scan
// ends at the key in $10 and $11. Without this end it would also read the later dead
// index entries, which a held snapshot keeps.
const fetchSQL = fetchLanes + `)
	WITH ORDINALITY AS l (type, priority, after_run_at, after_id, most, low, high, outside, block, before_run_at, before_id, lane)` +
	headOfLane + `
		SELECT j.run_at, j.id FROM dispatcherd.jobs_live j WHERE ` + unnamed + ofLane + endOfFetch

// fetchNamedSQL does the same for all lanes: $14 are their classes, a negative number for rows without an expected duration. Row -n
// lists the lanes of type n of $15 with an expected duration, as 8 × priority + class. It skips from lane to lane in the index, from the
// last one on, and reads the last row of each, which is the least likely to have ended. For one lane without an expected
// duration it takes a quarter longer than fetchSQL.
const fetchNamedSQL = fetchLanes + `, $14::smallint[])
	WITH ORDINALITY AS l (type, priority, after_run_at, after_id, most, low, high, outside, block, before_run_at, before_id, class, lane)` +
	headOfLane + `
		(SELECT j.run_at, j.id FROM dispatcherd.jobs_live j WHERE l.class < 0 AND ` + unnamed + ofLane + `)
		UNION ALL
		(SELECT j.run_at, j.id FROM dispatcherd.jobs_live j WHERE l.class >= 0 AND ` + named + ` AND ` + class + ` = l.class` + ofLane + `)` +
	endOfFetch + `
UNION ALL
SELECT -t.place::int, NULL, ARRAY (
	WITH RECURSIVE lane (priority, class) AS (
		SELECT 11::smallint, 0::smallint
		UNION ALL
		SELECT next.priority, next.class FROM lane n CROSS JOIN LATERAL (
			SELECT j.priority::smallint AS priority, ` + class + ` AS class FROM dispatcherd.jobs_live j
			WHERE j.type = t.type AND ` + mayRun + ` AND ` + named + ` AND (j.priority, ` + class + `) < (n.priority, n.class)
			ORDER BY j.priority DESC, ` + class + ` DESC LIMIT 1
		) next
	)
	SELECT 8 * priority::bigint + class FROM lane WHERE priority <= 10
)
FROM unnest($15::text[]) WITH ORDINALITY AS t (type, place)`

const (
	fetchLanes = `
SELECT 0, ARRAY[now()], NULL::bigint[]
UNION ALL
SELECT lane::int, due, ids
FROM unnest($1::text[], $2::smallint[], $3::timestamptz[], $4::bigint[], $5::int[], $6::int[], $7::int[], $8::boolean[], $9::int[],
	$10::timestamptz[], $11::bigint[]`
	headOfLane = `
CROSS JOIN LATERAL (
	SELECT array_agg(run_at::timestamptz) AS due, array_agg(id::bigint) AS ids
	FROM (`
	endOfFetch = `
	) head
) heads
WHERE ids IS NOT NULL`
)

// mayRun is true for row j that dispatcher $13 may claim when it is due.
const mayRun = `j.status = 'pending' AND ` + ready + ` AND coalesce(j.admitted_to, $13::int) = $13`

// ofLane selects the rows j of lane l.
const ofLane = `
			AND j.type = l.type AND j.priority = l.priority AND ` + mayRun + `
			AND (j.run_at, j.id + 0) > (l.after_run_at, l.after_id)
			AND (j.run_at, j.id + 0) < (l.before_run_at, l.before_id)
			AND (NOT $12::boolean OR j.xmax::text = '0' OR j.xmax <> ALL (` + running + `) AND NOT dispatcherd.has_locker(j.xmax, ` + running + `))
			AND (l.block < 0 OR ((j.id + 0 >> l.block & 65535) * 40503 & 65535 BETWEEN l.low AND l.high) <> l.outside)
		ORDER BY j.run_at, j.id + 0 LIMIT l.most`

// running are the transactions in progress.
const running = `ARRAY (SELECT transactionid FROM pg_locks WHERE locktype = 'transactionid' AND granted)`

// adoptSQL takes over rows that still run under the attempts of the ResumeOffers $1: $2
// token, $3 and $4 this dispatcher and its incarnation, $5 the offers of all parts of the request.
// The former dispatcher may be alive: its later reports are stale.
//
// A claim records the session of each job, and the row contains the token of its
// claim. So a worker can only resume what was sent to a session whose nonce it knows.
// Rows that already contain token $2 were taken by an earlier copy of the request.
// The statement skips locked rows and returns them without values.
const adoptSQL = `
WITH me AS MATERIALIZED (
	SELECT id FROM dispatcherd.dispatchers WHERE id = $3::int AND incarnation = $4::uuid AND ` + holdsLease + `
	FOR KEY SHARE
), offered AS MATERIALIZED (
	SELECT j.id::bigint AS id` + offeredRows + `
), held AS MATERIALIZED (
	SELECT j.ctid` + offeredRows + `
	ORDER BY j.id + 0 FOR UPDATE OF j SKIP LOCKED
), record AS (
	INSERT INTO dispatcherd.claims (dispatcher, token, ids, sessions) SELECT me.id, $2, array_agg(a."ID"), array_agg(a."To")
	FROM me, json_to_recordset($5) AS a ("ID" bigint, "To" bigint) GROUP BY me.id
	ON CONFLICT (dispatcher, token) DO NOTHING
), taken AS (
UPDATE dispatcherd.jobs_live SET dispatcher = $3, token = $2
WHERE ctid = ANY (ARRAY (SELECT ctid FROM held)) AND status = 'running'
RETURNING id::bigint, attempt::int, coalesce(max_attempts::int, 0) AS max_attempts, coalesce(backoff, '') AS backoff,
	failures::int, crashes::int, coalesce(timeout_ms::int, 0) AS timeout,
	type::text, priority::int, (extract(epoch FROM run_at) * 1000000)::bigint AS due,
	greatest((extract(epoch FROM now() - started_at) * 1000)::bigint, 0) AS ran, coalesce(fence, 0) AS fence,
		coalesce(expected_ms, 0) AS expected
)
SELECT id, attempt, max_attempts, failures, crashes, timeout, type, priority, due, ran, fence, expected, backoff FROM taken
UNION ALL
SELECT id, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0, '' FROM offered WHERE id NOT IN (SELECT id FROM taken)`

// offeredRows are the rows that may be taken according to the statement's snapshot.
// Locking a row checks the condition again. The condition on the fingerprint is the
// same as in follows in package claimfake.
const offeredRows = `
	FROM ROWS FROM (json_to_recordset($1) AS ("ID" bigint, "Attempt" int, "From" bigint, "To" bigint)) AS i (id, attempt, origin, recorded)
	JOIN dispatcherd.jobs_live j ON ` + isItem + `
	WHERE j.status = 'running' AND EXISTS (SELECT FROM me) AND i.origin <> 0 AND (
		(j.dispatcher = $3 AND j.token = $2::bigint) OR EXISTS (
			SELECT FROM dispatcherd.claims c, LATERAL (SELECT c.sessions[array_position(c.ids, j.id::bigint)] AS session) claimed
			WHERE c.dispatcher = j.dispatcher AND c.token = j.token AND (claimed.session = i.origin
				OR i.recorded <> i.origin AND i.recorded >> 16 = i.origin >> 16 AND claimed.session >> 16 = i.origin >> 16
				AND claimed.session & 65535 < i.recorded & 65535)))`
