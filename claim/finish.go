package claim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// unstorable is the error of a job whose result or error Postgres refused.
const unstorable = "the result or error message cannot be stored in Postgres and was dropped"

// maxDelay bounds a retry's delay, so that run_at stays in its domain.
const maxDelay = 365 * 24 * time.Hour

// Finish ends attempts in one round trip and one transaction. If Postgres cannot
// store the values of an item (a result with NUL), Finish drops the result and
// records this in the job's errors. Other items are not affected.
func (s *Store) Finish(ctx context.Context, req contract.FinishRequest) contract.FinishResult {
	stale, err := s.end(ctx, req)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range req.Items {
			s.records.Remove(req.Items[i].ID)
		}
		slices.Sort(stale)
		return contract.FinishResult{Verdict: contract.OK, Stale: stale}
	}
	if !aboutData(err) {
		return contract.FinishResult{Verdict: verdictOf(err)}
	}
	return s.finishApart(ctx, req)
}

// finishApart halves the request until it finds the item whose values Postgres
// rejects, and ends that item without them.
func (s *Store) finishApart(ctx context.Context, req contract.FinishRequest) contract.FinishResult {
	if len(req.Items) == 1 {
		item := req.Items[0]
		if item.Result == nil && item.Error == unstorable {
			// The database rejects the end of this row even without its values. The row
			// counts as stale, so that other rows end. It stays running until this
			// dispatcher stops.
			return contract.FinishResult{Verdict: contract.OK, Stale: []dispatcherd.JobID{item.ID}}
		}
		item.Result, item.Error = nil, unstorable
		return s.Finish(ctx, contract.FinishRequest{Items: []contract.Finish{item}, Again: req.Again})
	}
	half := len(req.Items) / 2
	first := s.Finish(ctx, contract.FinishRequest{Items: req.Items[:half], Again: req.Again})
	second := s.Finish(ctx, contract.FinishRequest{Items: req.Items[half:], Again: req.Again})
	if worst := max(first.Verdict, second.Verdict); worst != contract.OK {
		// One half may have been executed, so the next request must have Again set.
		return contract.FinishResult{Verdict: contract.Unknown}
	}
	return contract.FinishResult{Verdict: contract.OK, Stale: append(first.Stale, second.Stale...)}
}

// end executes the request and returns the stale items.
func (s *Store) end(ctx context.Context, req contract.FinishRequest) ([]dispatcherd.JobID, error) {
	var stale []dispatcherd.JobID
	err := s.finish.do(ctx, OpFinish, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		ended, n, err := sendEnds(ctx, conn, req.Items, s.me.Load())
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
			before, err := endedBefore(ctx, conn, req.Items, s.me.Load())
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

// sendEnds sends up to three statements as one pipeline, which Postgres treats as one
// transaction. It returns how many items were ended. doneSQL returns only a number,
// so ended contains only the ids that the other statements ended.
func sendEnds(ctx context.Context, conn *pgx.Conn, items []contract.Finish, me int32) (ended []dispatcherd.JobID, n int, err error) {
	groups := [...]struct {
		statement string
		encode    func([]contract.Finish, int32) [][]byte
	}{{"done", encodeDone}, {"ended", encodeEnded}, {"pending", encodePending}}
	var sizes [len(groups)]int
	for i := range items {
		sizes[groupOf(&items[i])]++
	}
	var batch pgconn.Batch
	for g, to := range groups {
		some := items // usually all jobs have succeeded
		if sizes[g] < len(items) {
			some = slices.DeleteFunc(slices.Clone(items), func(f contract.Finish) bool { return groupOf(&f) != g })
		}
		if sizes[g] > 0 {
			batch.ExecPrepared(to.statement, to.encode(some, me), binary, binary)
		}
	}
	results := conn.PgConn().ExecBatch(ctx, &batch)
	var bad error
	for results.NextResult() {
		rows := results.ResultReader()
		for rows.NextRow() {
			ids, err := readInt8s[dispatcherd.JobID](rows.Values()[0])
			ended, bad = append(ended, ids...), errors.Join(bad, err)
		}
		if tag, _ := rows.Close(); tag.Insert() { // results.Close returns the same error
			n += int(tag.RowsAffected())
		}
	}
	if err := results.Close(); err != nil {
		return nil, 0, err
	}
	return ended, n + len(ended), bad
}

// groupOf returns the index of the statement of sendEnds that ends the item. A job
// whose result cannot be stored gets an error message. doneSQL records no messages,
// so endedSQL ends that job.
func groupOf(f *contract.Finish) int {
	switch {
	case !f.Outcome.Final():
		return 2
	case f.Outcome != contract.Succeeded || f.Error == unstorable:
		return 1
	}
	return 0
}

// endedBefore returns which of the items an earlier copy of the request has ended.
func endedBefore(ctx context.Context, conn *pgx.Conn, items []contract.Finish, me int32) (before []dispatcherd.JobID, err error) {
	ids, attempts, back := make([]dispatcherd.JobID, len(items)), make([]dispatcherd.Attempt, len(items)), make([]bool, len(items))
	for i := range items {
		ids[i], attempts[i], back[i] = items[i].ID, items[i].Attempt, !items[i].Outcome.Final()
	}
	err = conn.QueryRow(ctx, "ended-before", ids, attempts, me, back).Scan(&before)
	return before, err
}

// clean returns a message that Postgres can store: valid UTF-8 without NUL, limited
// in length.
func clean(message string) string {
	message = truncate(message, dispatcherd.MaxErrorLength)
	return strings.ReplaceAll(strings.ToValidUTF8(message, "\uFFFD"), "\x00", "\uFFFD")
}

func finishID(f *contract.Finish) int64 { return int64(f.ID) }

// encodeEnded returns the parameters of endedSQL.
func encodeEnded(items []contract.Finish, me int32) [][]byte {
	return [][]byte{
		int8s(items, finishID),
		int4s(items, func(f *contract.Finish) int32 { return int32(f.Attempt) }),
		texts(items, func(f *contract.Finish) string { return f.Outcome.String() }),
		texts(items, func(f *contract.Finish) string { return clean(f.Error) }),
		int4(me),
	}
}

// encodePending returns the parameters of pendingSQL.
func encodePending(items []contract.Finish, me int32) [][]byte {
	delay := func(f *contract.Finish) int64 { return min(max(f.Delay, 0), maxDelay).Microseconds() }
	return append(encodeEnded(items, me), int8s(items, delay))
}
