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

// unstorable is the error of a job whose result or error Postgres refused.
const unstorable = "the result or error message cannot be stored in Postgres and was dropped"

// maxDelay bounds a retry's delay, so that run_at stays in its domain.
const maxDelay = 365 * 24 * time.Hour

// Finish ends attempts, all in one round trip and one transaction. An item with a
// value that Postgres cannot store (a NUL inside a result) loses its result, which
// its errors then say; the others are not affected.
func (s *Store) Finish(ctx context.Context, req contract.FinishRequest) contract.FinishResult {
	stale, err := s.end(ctx, req)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range req.Items {
			s.records.remove(req.Items[i].ID)
		}
		slices.Sort(stale)
		return contract.FinishResult{Verdict: contract.OK, Stale: stale}
	}
	if !aboutData(err) {
		return contract.FinishResult{Verdict: verdictOf(err)}
	}
	return s.finishApart(ctx, req)
}

// finishApart halves the request until the item whose values Postgres refuses is
// alone, and ends that one without them.
func (s *Store) finishApart(ctx context.Context, req contract.FinishRequest) contract.FinishResult {
	if len(req.Items) == 1 {
		item := req.Items[0]
		if item.Result == nil && item.Error == unstorable {
			// The database forbids the end of this row, which must not affect other rows.
			// It stays running until this dispatcher stops.
			return contract.FinishResult{Verdict: contract.OK, Stale: []dispatcherd.JobID{item.ID}}
		}
		item.Result, item.Error = nil, unstorable
		return s.Finish(ctx, contract.FinishRequest{Items: []contract.Finish{item}, Again: req.Again})
	}
	half := len(req.Items) / 2
	first := s.Finish(ctx, contract.FinishRequest{Items: req.Items[:half], Again: req.Again})
	second := s.Finish(ctx, contract.FinishRequest{Items: req.Items[half:], Again: req.Again})
	if worst := max(first.Verdict, second.Verdict); worst != contract.OK {
		// One half may be executed, so the next request must have Again set.
		return contract.FinishResult{Verdict: contract.Unknown}
	}
	return contract.FinishResult{Verdict: contract.OK, Stale: append(first.Stale, second.Stale...)}
}

// end executes the request and returns the stale items.
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
// that doneSQL did not end.
func (l *connection) sendEnds(ctx context.Context, conn *pgx.Conn, items []contract.Finish, me int32) (ended []dispatcherd.JobID, n int, err error) {
	var batch pgconn.Batch
	for _, group := range [...]struct {
		statement string
		has       func(*contract.Finish) bool
		encode    func([]byte, []contract.Finish, int32) ([]byte, [][]byte)
	}{
		{"done", succeeded, encodeDone},
		{"ended", func(f *contract.Finish) bool { return f.Outcome.Final() && !succeeded(f) }, encodeEnded},
		{"pending", func(f *contract.Finish) bool { return !f.Outcome.Final() }, encodePending},
	} {
		some := only(items, group.has)
		if len(some) == 0 {
			continue
		}
		var params [][]byte
		l.buf, params = group.encode(l.buf[:0], some, me) // the batch copies them
		batch.ExecPrepared(group.statement, params, binary, binary)
	}
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

// succeeded reports whether doneSQL ends the item. A job whose result cannot be
// stored has an error, which endedSQL records.
func succeeded(f *contract.Finish) bool {
	return f.Outcome == contract.Succeeded && f.Error != unstorable
}

// only returns the items that f accepts, without a copy if it accepts all.
func only(items []contract.Finish, f func(*contract.Finish) bool) []contract.Finish {
	first := 0
	for first < len(items) && f(&items[first]) {
		first++
	}
	if first == len(items) {
		return items
	}
	some := slices.Clone(items[:first])
	for i := first; i < len(items); i++ {
		if f(&items[i]) {
			some = append(some, items[i])
		}
	}
	return some
}

func (l *connection) endedBefore(ctx context.Context, conn *pgx.Conn, items []contract.Finish, me int32) ([]dispatcherd.JobID, error) {
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
	rows := execute(ctx, conn, "ended-before", b[:p], b[p:q], int4(me), b[q:])
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

// clean returns a message that Postgres can store: valid UTF-8 without NUL, bounded.
func clean(message string) string {
	message = truncate(message, dispatcherd.MaxErrorLength)
	return strings.ReplaceAll(strings.ToValidUTF8(message, "\uFFFD"), "\x00", "\uFFFD")
}

// appendKeys appends the ids and the attempts; the second array starts at p.
func appendKeys(b []byte, items []contract.Finish) (_ []byte, p int) {
	b = appendHeader(b, oidInt8, len(items))
	for i := range items {
		b = appendInt8(b, int64(items[i].ID))
	}
	p = len(b)
	b = appendHeader(b, oidInt4, len(items))
	for i := range items {
		b = appendInt4(b, int32(items[i].Attempt))
	}
	return b, p
}

func codeOf(o contract.Outcome) int16 {
	return [...]int16{codeDone, codeRetry, codeFailed, codeCancelled, codeReleased, codeCrashed, codeQuarantined, codeIsolated}[o]
}

// encodeEnded appends the parameters of endedSQL to b.
func encodeEnded(b []byte, items []contract.Finish, me int32) (_ []byte, params [][]byte) {
	b, p := appendKeys(b, items)
	q := len(b)
	b = appendHeader(b, oidInt2, len(items))
	for i := range items {
		b = appendInt2(b, codeOf(items[i].Outcome))
	}
	r := len(b)
	b = appendHeader(b, oidText, len(items))
	for i := range items {
		b = appendText(b, items[i].Outcome.String())
	}
	s := len(b)
	b = appendHeader(b, oidText, len(items))
	for i := range items {
		b = appendText(b, clean(items[i].Error))
	}
	return b, [][]byte{b[:p], b[p:q], b[q:r], b[r:s], b[s:], int4(me)}
}

// encodePending appends the parameters of pendingSQL to b.
func encodePending(b []byte, items []contract.Finish, me int32) (_ []byte, params [][]byte) {
	b, params = encodeEnded(b, items, me)
	delays := appendHeader(nil, oidInt8, len(items))
	for i := range items {
		delays = appendInt8(delays, min(max(items[i].Delay, 0), maxDelay).Microseconds())
	}
	return b, append(params, delays)
}
