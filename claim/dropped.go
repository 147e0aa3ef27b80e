package claim

import "github.com/dispatcherd/dispatcherd/internal/contract"

// unstorable stands in the row of a job whose result or error Postgres refused.
const unstorable = "the result or error message cannot be stored in Postgres and was dropped"

// droppedSQL is doneSQL for one job whose result was dropped, and says so in its
// errors: $1 id, $2 attempt, $3 name of the outcome, $4 error, $5 this dispatcher.
const droppedSQL = `
WITH gone AS (
	DELETE FROM dispatcherd.jobs_live j USING (SELECT $1::bigint AS id, $2::int AS attempt, $3::text AS name, $4::text AS error) i
	WHERE ` + isItem + ` AND j.dispatcher = $5::int AND j.status = 'running'
	RETURNING j.*, ` + appendError + ` AS all_errors
), kept AS (
	INSERT INTO dispatcherd.jobs_done (id, run_at, created_at, attempt, status, dispatcher, timeout_ms, priority,
		max_attempts, failures, crashes, type, payload, started_at, finished_at, errors)
	SELECT id, run_at, created_at, attempt, 'done', $5, timeout_ms, priority,
		max_attempts, failures, crashes, type, payload, started_at, now(), all_errors
	FROM gone
	RETURNING id
)
SELECT array_agg(id::bigint) FROM kept`

// dropped reports a job that was done and whose result cannot be stored. Such an
// item is alone in its request.
func dropped(item *contract.Finish) bool {
	return item.Outcome == contract.Succeeded && item.Error == unstorable
}

// encodeDropped makes the parameters of droppedSQL.
func encodeDropped(item *contract.Finish, me int32) [][]byte {
	return [][]byte{int8b(int64(item.ID)), int4(int32(item.Attempt)), []byte(item.Outcome.String()), []byte(item.Error), int4(me)}
}
