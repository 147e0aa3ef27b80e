package claim

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The three ways an attempt ends, one statement each, sent together and carried
// out in one transaction. All have the same fence (id, attempt, dispatcher,
// running) and answer with the ids they changed.

// isItem says that item i is about job j. Bounds instead of an equation, and what
// holds of every item, because the planner must see under all circumstances that
// it is cheaper to descend for an id than to read the whole index, also while
// there is next to nothing in it: it would keep to that plan when a million rows
// have arrived.
const isItem = `j.id BETWEEN i.id AND i.id AND i.id > 0 AND j.attempt = i.attempt`

// doneSQL: $1 ids, $2 attempts, $3 results, $4 this dispatcher. Final rows leave
// the hot table in the same statement. Every row is copied where one part of the
// statement hands it to the next, so each is handed over once.
const doneSQL = `
WITH gone AS (
	DELETE FROM dispatcherd.jobs_live j USING unnest($1::bigint[], $2::int[], $3::json[]) AS i (id, attempt, result)
	WHERE ` + isItem + ` AND j.dispatcher = $4::int AND j.status = 'running'
	RETURNING j.id, j.run_at, j.created_at, j.attempt, j.timeout_ms, j.priority, j.max_attempts, j.failures, j.crashes,
		j.type, j.payload, j.started_at, j.errors, i.result AS outcome
), kept AS (
	INSERT INTO dispatcherd.jobs_done (id, run_at, created_at, attempt, status, dispatcher, timeout_ms, priority,
		max_attempts, failures, crashes, type, payload, started_at, finished_at, result, errors)
	SELECT id, run_at, created_at, attempt, 'done', $4, timeout_ms, priority,
		max_attempts, failures, crashes, type, payload, started_at, now(), outcome, errors
	FROM gone
	RETURNING id
)
SELECT array_agg(id::bigint) FROM kept`

// Codes of outcomes in SQL.
const (
	codeFailed      = 1
	codeCancelled   = 2
	codeQuarantined = 3
	codeRetry       = 4
	codeReleased    = 5
	codeCrashed     = 6
	codeParted      = 7
)

// appendError adds what happened to the last nine errors. It is part of
// statements whose job is j and whose item is i.
const appendError = `CASE WHEN i.error = '' THEN j.errors ELSE
	CASE WHEN jsonb_array_length(j.errors) >= 10 THEN j.errors - 0 ELSE coalesce(j.errors, '[]') END
	|| jsonb_build_object('attempt', j.attempt, 'at', now(), 'outcome', i.name, 'error', i.error) END`

// endedSQL: $1 ids, $2 attempts, $3 codes, $4 names of outcomes, $5 errors, $6 this dispatcher.
// A request to cancel goes with the job: what is left of it would cancel the job
// again if it is retried before the next beat.
const endedSQL = `
WITH item AS MATERIALIZED (
	SELECT * FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::text[], $5::text[]) AS i (id, attempt, code, name, error)
), gone AS (
	DELETE FROM dispatcherd.jobs_live j USING item i
	WHERE ` + isItem + ` AND j.dispatcher = $6::int AND j.status = 'running'
	RETURNING j.*, i.code, ` + appendError + ` AS all_errors
), failed AS (
	INSERT INTO dispatcherd.jobs_failed (id, run_at, created_at, attempt, status, dispatcher, timeout_ms, priority,
		max_attempts, failures, crashes, type, payload, started_at, finished_at, errors)
	SELECT id, run_at, created_at, attempt, 'failed', dispatcher, timeout_ms, priority, max_attempts,
		least(failures + (code = 1)::int, 32767), least(crashes + (code = 3)::int, 32767), type, payload, started_at, now(), all_errors
	FROM gone WHERE code <> 2
), cancelled AS (
	INSERT INTO dispatcherd.jobs_cancelled (id, run_at, created_at, attempt, status, dispatcher, timeout_ms, priority,
		max_attempts, failures, crashes, type, payload, started_at, finished_at, errors)
	SELECT id, run_at, created_at, attempt, 'cancelled', dispatcher, timeout_ms, priority,
		max_attempts, failures, crashes, type, payload, started_at, now(), all_errors
	FROM gone WHERE code = 2
), settled AS (
	DELETE FROM dispatcherd.cancels WHERE job_id IN (SELECT id FROM gone)
)
SELECT array_agg(id::bigint) FROM gone`

// backSQL: as endedSQL, and $7 delays in microseconds. A job that may run at
// once rings for other dispatchers that sit idle.
const backSQL = `
WITH item AS MATERIALIZED (
	SELECT * FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::text[], $5::text[], $7::bigint[])
		AS i (id, attempt, code, name, error, delay)
), back AS (
	UPDATE dispatcherd.jobs_live j
	SET status = 'pending', dispatcher = NULL, token = NULL, started_at = NULL, progress = NULL,
		run_at = CASE WHEN i.code IN (4, 7) THEN now() + i.delay * interval '1 microsecond' ELSE j.run_at END,
		failures = least(j.failures + (i.code = 4)::int, 32767),
		crashes = least(j.crashes + (i.code IN (6, 7))::int, 32767),
		errors = ` + appendError + `
	FROM item i
	WHERE ` + isItem + ` AND j.dispatcher = $6::int AND j.status = 'running'
	RETURNING j.id, i.delay
), bell AS MATERIALIZED (
	SELECT pg_notify('dispatcherd_jobs', '') FROM (SELECT FROM back WHERE delay = 0 LIMIT 1) due
	WHERE EXISTS (SELECT FROM dispatcherd.dispatchers WHERE armed AND id <> $6)
)
SELECT array_agg(id::bigint), (SELECT count(*) FROM bell) FROM back`

// againSQL finds what an earlier copy of the same request has ended: $1 ids, $2
// attempts, $3 this dispatcher, $4 whether the outcome leads back to pending (1)
// or out of the hot table (0): a row that got elsewhere was ended by another.
const againSQL = `
SELECT array_agg(j.id::bigint) FROM unnest($1::bigint[], $2::int[], $4::smallint[]) AS i (id, attempt, back)
JOIN dispatcherd.jobs j ON ` + isItem + `
WHERE CASE j.status WHEN 'running' THEN false WHEN 'pending' THEN i.back = 1 ELSE i.back = 0 AND j.dispatcher = $3::int END`

// maxDelay bounds a retry's delay, so that run_at stays in its domain.
const maxDelay = 365 * 24 * time.Hour

// Finish ends attempts, all in one round trip and one transaction. Values that
// Postgres cannot store (a NUL inside a result) cost that item its result, which
// the row's errors then say, never the others their end.
func (s *Store) Finish(ctx context.Context, req contract.FinishRequest) contract.FinishResult {
	stale, err := s.end(ctx, req)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range req.Items {
			s.marks.remove(req.Items[i].ID)
		}
		slices.Sort(stale)
		return contract.FinishResult{Verdict: contract.OK, Stale: stale}
	}
	if !aboutData(err) {
		return contract.FinishResult{Verdict: verdictOf(err)}
	}
	return s.finishApart(ctx, req)
}

// finishApart halves the request until the item is alone whose values Postgres
// refuses, and ends that one without them.
func (s *Store) finishApart(ctx context.Context, req contract.FinishRequest) contract.FinishResult {
	if len(req.Items) == 1 {
		item := req.Items[0]
		if item.Result == nil && item.Error == unstorable {
			// Something in the database forbids this very row's end. It must not keep
			// the others from theirs; its row stays running until this dispatcher leaves.
			return contract.FinishResult{Verdict: contract.OK, Stale: []dispatcherd.JobID{item.ID}}
		}
		item.Result, item.Error = nil, unstorable
		return s.Finish(ctx, contract.FinishRequest{Items: []contract.Finish{item}, Again: req.Again})
	}
	half := len(req.Items) / 2
	first := s.Finish(ctx, contract.FinishRequest{Items: req.Items[:half], Again: req.Again})
	second := s.Finish(ctx, contract.FinishRequest{Items: req.Items[half:], Again: req.Again})
	if worst := max(first.Verdict, second.Verdict); worst != contract.OK {
		// One half may be carried out, so only Again makes the next try right.
		return contract.FinishResult{Verdict: contract.Unknown}
	}
	return contract.FinishResult{Verdict: contract.OK, Stale: append(first.Stale, second.Stale...)}
}

// end carries out the request and returns the stale items.
func (s *Store) end(ctx context.Context, req contract.FinishRequest) ([]dispatcherd.JobID, error) {
	var stale []dispatcherd.JobID
	err := s.finish.do(ctx, OpFinish, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		ended, n, err := s.finish.sendEnds(ctx, conn, req.Items, s.me.Load())
		if err != nil {
			return 0, err
		}
		if n == len(req.Items) {
			return n, nil
		}
		open := make(map[dispatcherd.JobID]struct{}, len(req.Items))
		for i := range req.Items {
			open[req.Items[i].ID] = struct{}{}
		}
		remove(open, ended)
		if req.Again || len(ended) < n {
			before, err := s.finish.endedBefore(ctx, conn, req.Items, s.me.Load())
			if err != nil {
				return 0, err
			}
			remove(open, before)
		}
		for id := range open {
			stale = append(stale, id)
		}
		return len(req.Items) - len(stale), nil
	})
	return stale, err
}

func remove(set map[dispatcherd.JobID]struct{}, ids []dispatcherd.JobID) {
	for _, id := range ids {
		delete(set, id)
	}
}

// sendEnds sends up to three statements as one pipeline, which Postgres treats
// as one transaction. It returns how many items were ended, and the ids of those
// that a statement for stretches did not end.
func (l *link) sendEnds(ctx context.Context, conn *pgx.Conn, items []contract.Finish, me int32) (ended []dispatcherd.JobID, n int, err error) {
	var batch pgconn.Batch
	add := func(statement string, of func(contract.Outcome) bool, encode func([]byte, []contract.Finish, int32) [][]byte) {
		some := items
		if !all(items, of) {
			some = only(items, of)
		}
		if len(some) == 0 {
			return
		}
		var params [][]byte
		if statement == "done" {
			params = l.encodeDenseDone(some, me)
		}
		if params != nil {
			batch.ExecPrepared(nameOf(params, 4, "dense-done", "stretches-done"), params, binary, binary)
		} else {
			params = encode(l.buf[:0], some, me)
			batch.ExecPrepared(statement, params, binary, binary)
		}
	}
	if len(items) == 1 && dropped(&items[0]) {
		batch.ExecPrepared("dropped", encodeDropped(&items[0], me), binary, binary)
		items = nil
	}
	add("done", func(o contract.Outcome) bool { return o == contract.Succeeded }, l.encodeDone)
	add("ended", func(o contract.Outcome) bool { return o.Final() && o != contract.Succeeded }, l.encodeEnded)
	add("back", func(o contract.Outcome) bool { return !o.Final() }, l.encodeBack)
	results := conn.PgConn().ExecBatch(ctx, &batch)
	var bad error
	for results.NextResult() {
		rows := results.ResultReader()
		for rows.NextRow() {
			if err := readInt8s(rows.Values()[0], func(_ int, id int64) { ended = append(ended, dispatcherd.JobID(id)) }); err != nil {
				bad = err
			}
		}
		if tag, _ := rows.Close(); tag.Insert() { // its error comes again when all are closed
			n += int(tag.RowsAffected())
		}
	}
	if err := results.Close(); err != nil {
		return nil, 0, err
	}
	return ended, n + len(ended), bad
}

func all(items []contract.Finish, of func(contract.Outcome) bool) bool {
	for i := range items {
		if !of(items[i].Outcome) {
			return false
		}
	}
	return true
}

func only(items []contract.Finish, of func(contract.Outcome) bool) []contract.Finish {
	var some []contract.Finish
	for i := range items {
		if of(items[i].Outcome) {
			some = append(some, items[i])
		}
	}
	return some
}

func (l *link) endedBefore(ctx context.Context, conn *pgx.Conn, items []contract.Finish, me int32) ([]dispatcherd.JobID, error) {
	b, p := appendKeys(nil, items)
	q := len(b)
	b = appendHeader(b, oidInt2, len(items))
	for i := range items {
		back := int16(1)
		if items[i].Outcome.Final() {
			back = 0
		}
		b = appendInt2(b, back)
	}
	rows := execute(ctx, conn, "again", b[:p], b[p:q], int4(me), b[q:])
	var (
		before []dispatcherd.JobID
		bad    error
	)
	for rows.NextRow() {
		bad = readInt8s(rows.Values()[0], func(_ int, id int64) { before = append(before, dispatcherd.JobID(id)) })
	}
	if _, err := rows.Close(); err != nil {
		return nil, err
	}
	return before, bad
}

// clean makes a message that Postgres takes: valid UTF-8 without NUL, bounded.
func clean(message string) string {
	message = truncate(message, dispatcherd.MaxErrorLength)
	return strings.ReplaceAll(strings.ToValidUTF8(message, "\uFFFD"), "\x00", "\uFFFD")
}
