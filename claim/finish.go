package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// finishPatience is how long a finish waits for a lock before it looks for locked rows. No
// slot waits for a finish, so it is longer than lockPatience. With busy processors, waits for
// the extension of a table exceed 20 ms, and the finish would repeat its work.
const finishPatience = 100 * time.Millisecond

// maxDelay bounds a retry's delay, so that run_at stays in its domain.
const maxDelay = 365 * 24 * time.Hour

// Finish ends attempts, usually in one round trip and one transaction. An item that
// Postgres refuses, or whose row another transaction has locked, is deferred, and the others end. If the
// statement reaches its timeout, it is repeated item by item as well: a row moves with its payload, so large
// payloads on a slow disk may be the cause. What is not ended in time is deferred, too.
func (s *Store) Finish(ctx context.Context, req contract.FinishRequest) contract.FinishResult {
	var res contract.FinishResult
	postpone := func(f contract.Finish, reason string) {
		res.Deferred = append(res.Deferred, contract.Deferred{ID: f.ID, Reason: reason})
	}
	err := s.record(ctx, req.Items, &req, &res)
	if AboutRow(err) || isCode(err, timedOut) {
		ended := 0
		var rest []contract.Finish
		rest, err = alone(req.Items, time.Now().Add(RepeatTime), func(f contract.Finish) error {
			err := s.record(ctx, []contract.Finish{f}, &req, &res)
			if err == nil {
				ended++
			}
			return err
		}, func(f contract.Finish, err error) { postpone(f, reasonOf(err)) })
		reason := timeOver
		if isCode(err, timedOut) {
			reason, err = reasonOf(err), nil
		}
		for _, f := range rest {
			postpone(f, reason)
		}
		if err != nil && ended > 0 {
			return contract.FinishResult{Verdict: contract.Unknown} // the repetition finds what has ended
		}
	}
	if err != nil {
		return contract.FinishResult{Verdict: verdictOf(err)}
	}
	slices.Sort(res.Stale)
	slices.SortFunc(res.Deferred, func(a, b contract.Deferred) int { return cmp.Compare(a.ID, b.ID) })
	return res
}

// record ends items in one transaction and adds the stale and the locked ones to the
// result.
func (s *Store) record(ctx context.Context, items []contract.Finish, req *contract.FinishRequest, res *contract.FinishResult) error {
	var stale []dispatcherd.JobID
	var locked []contract.Deferred
	free, me := items, s.me.Load()
	err := s.finish.do(ctx, OpFinish, func(ctx context.Context, conn *pgx.Conn) (n int, err error) {
		stale, err = end(ctx, conn, ending{items: items, me: me, again: req.Again})
		if !isCode(err, lockNotGranted) {
			return len(items) - len(stale), err
		}
		ids, attempts := make([]int64, len(items)), make([]int32, len(items))
		for i := range items {
			ids[i], attempts[i] = int64(items[i].ID), int32(items[i].Attempt)
		}
		if locked, err = findLocked(ctx, conn, ids, attempts, me); err != nil {
			return 0, err
		}
		free = slices.DeleteFunc(slices.Clone(items), func(f contract.Finish) bool {
			return slices.ContainsFunc(locked, func(d contract.Deferred) bool { return d.ID == f.ID })
		})
		if len(free) > 0 {
			stale, err = end(ctx, conn, ending{items: free, me: me, again: req.Again, patient: true})
		}
		return len(free) - len(stale), err
	})
	if err != nil {
		return err
	}
	res.Stale, res.Deferred = append(res.Stale, stale...), append(res.Deferred, locked...)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range free {
		s.records.Remove(free[i].ID)
	}
	return nil
}

// findLocked returns those of the rows of a dispatcher that another transaction has locked.
func findLocked(ctx context.Context, conn *pgx.Conn, ids []int64, attempts []int32, of int32) (locked []contract.Deferred, err error) {
	var d contract.Deferred
	rows, err := conn.Query(ctx, lockedSQL, ids, attempts, of)
	if err != nil {
		return nil, err
	}
	_, err = pgx.ForEachRow(rows, []any{&d.ID, &d.Holder}, func() error {
		d.Reason = "several transactions have locked the row"
		if d.Holder != 0 {
			d.Reason = fmt.Sprintf("the row is locked by the session with process id %d", d.Holder)
		}
		locked = append(locked, d)
		return nil
	})
	return locked, err
}

// ending is one transaction that ends items, all of which are different jobs.
type ending struct {
	items   []contract.Finish
	me      int32 // this dispatcher
	again   bool  // as in contract.FinishRequest
	patient bool  // wait for locks as long as patienceSQL says, instead of finishPatience
}

// end executes a transaction and returns the stale items.
func end(ctx context.Context, conn *pgx.Conn, e ending) (stale []dispatcherd.JobID, err error) {
	ended, n, err := e.send(ctx, conn)
	if err != nil || n == len(e.items) {
		return nil, err
	}
	open := make(map[dispatcherd.JobID]struct{}, len(e.items))
	for i := range e.items {
		open[e.items[i].ID] = struct{}{}
	}
	remove(open, ended)
	if e.again || len(ended) < n {
		before, err := endedBefore(ctx, conn, e.items, e.me)
		if err != nil {
			return nil, err
		}
		remove(open, before)
	}
	return slices.Collect(maps.Keys(open)), nil
}
func remove(set map[dispatcherd.JobID]struct{}, ids []dispatcherd.JobID) {
	for _, id := range ids {
		delete(set, id)
	}
}

// send sends up to four statements as one pipeline, which Postgres treats as one
// transaction. It returns how many items were ended. doneSQL returns only a number,
// so ended contains only the ids that the other statements ended.
func (e *ending) send(ctx context.Context, conn *pgx.Conn) (ended []dispatcherd.JobID, n int, err error) {
	groups := [...]struct {
		statement string
		encode    func(*ending, []contract.Finish) [][]byte
	}{{"done", (*ending).done}, {"ended", (*ending).ended}, {"pending", (*ending).pending}}
	var sizes [len(groups)]int
	for i := range e.items {
		sizes[e.groupOf(&e.items[i])]++
	}
	var batch pgconn.Batch
	if e.patient {
		batch.ExecPrepared("patience", nil, nil, nil)
	}
	for g, to := range groups {
		if sizes[g] == 0 {
			continue
		}
		some := e.items // usually all jobs have succeeded
		if sizes[g] < len(e.items) {
			some = slices.DeleteFunc(slices.Clone(e.items), func(f contract.Finish) bool { return e.groupOf(&f) != g })
		}
		batch.ExecPrepared(to.statement, to.encode(e, some), binary, binary)
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

// groupOf returns the index of the statement that ends the item. doneSQL records no messages
// and no logs, so endedSQL ends a succeeded job that has one.
func (e *ending) groupOf(f *contract.Finish) int {
	switch {
	case !f.Outcome.Final():
		return 2
	case f.Outcome != contract.Succeeded || f.Error != "" || f.Log != "":
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

// done returns the parameters of doneSQL.
func (e *ending) done(items []contract.Finish) [][]byte { return encodeDone(items, e.me) }

// ended returns the parameters of endedSQL.
func (e *ending) ended(items []contract.Finish) [][]byte {
	return append(e.common(items), texts(items, func(f *contract.Finish) string { return string(f.Result) }))
}

// pending returns the parameters of pendingSQL.
func (e *ending) pending(items []contract.Finish) [][]byte {
	delay := func(f *contract.Finish) int64 { return min(max(f.Delay, 0), maxDelay).Microseconds() }
	return append(e.common(items), int8s(items, delay))
}

// common returns the parameters that endedSQL and pendingSQL have in common.
func (e *ending) common(items []contract.Finish) [][]byte {
	return [][]byte{
		int8s(items, finishID),
		int4s(items, func(f *contract.Finish) int32 { return int32(f.Attempt) }),
		texts(items, func(f *contract.Finish) string { return f.Outcome.String() }),
		texts(items, func(f *contract.Finish) string { return clean(f.Error) }),
		int4(e.me),
		texts(items, func(f *contract.Finish) string { return string(appendPlacement(nil, f.Placement)) }),
		texts(items, logOf),
	}
}

// appendPlacement appends a placement as JSON, or nothing for nil. The text is ASCII, so a
// database with any encoding can store it.
func appendPlacement(b []byte, p *contract.Placement) []byte {
	if p == nil {
		return b
	}
	number := func(name string, v float64) { b = strconv.AppendFloat(append(b, name...), v, 'f', -1, 64) }
	b = appendASCII(append(b, `{"worker":"`...), p.Worker)
	b = strconv.AppendInt(append(b, `","slot":`...), int64(p.Slot), 10)
	number(`,"waited_seconds":`, p.Waited)
	number(`,"ran_seconds":`, p.Ran)
	number(`,"score":{"base":`, p.Score.Base)
	number(`,"age":`, p.Score.Age)
	number(`,"rarity":`, p.Score.Rarity)
	if p.Score.Brevity != 0 {
		number(`,"brevity":`, p.Score.Brevity)
	}
	b = append(b, '}')
	if p.WaitedFor != "" {
		b = append(append(append(b, `,"waited_for":"`...), p.WaitedFor...), '"')
	}
	return append(b, '}')
}

// logOf returns a log as a JSON string, or nothing if there is none. Like a placement it is
// ASCII, and it contains no NUL, so Postgres never refuses it.
func logOf(f *contract.Finish) string {
	if f.Log == "" {
		return ""
	}
	return string(append(appendASCII([]byte{'"'}, strings.ReplaceAll(f.Log, "\x00", "\uFFFD")), '"'))
}

// appendASCII appends the content of a JSON string.
func appendASCII(b []byte, s string) []byte {
	for _, r := range s {
		switch r1, r2 := utf16.EncodeRune(r); {
		case r >= ' ' && r <= '~' && r != '"' && r != '\\':
			b = append(b, byte(r))
		case r > 0xffff:
			b = fmt.Appendf(b, `\u%04x\u%04x`, r1, r2)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return b
}
