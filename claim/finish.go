package claim

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

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
	if AboutRow(err) || AnswerCode(err) == timedOut {
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
		if AnswerCode(err) == timedOut {
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
	err := s.finish.do(ctx, OpFinish, func(c Session) (n int, err error) {
		stale, err = end(c, ending{items: items, me: me, again: req.Again})
		if AnswerCode(err) != lockNotGranted {
			return len(items) - len(stale), err
		}
		if locked, err = findLocked(c, items, me); err != nil {
			return 0, err
		}
		free = slices.DeleteFunc(slices.Clone(items), func(f contract.Finish) bool {
			return slices.ContainsFunc(locked, func(d contract.Deferred) bool { return d.ID == f.ID })
		})
		if len(free) > 0 {
			stale, err = end(c, ending{items: free, me: me, again: req.Again, patient: true})
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
func findLocked(c Session, items []contract.Finish, of int32) (locked []contract.Deferred, err error) {
	var d contract.Deferred
	rows, err := c.Query(c, lockedSQL, idsOf(items), attemptsOf(items), of)
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
func end(c Session, e ending) (stale []dispatcherd.JobID, err error) {
	ended, n, err := e.send(c)
	if err != nil || n == len(e.items) {
		return nil, err
	}
	if e.again || len(ended) < n {
		before, err := endedBefore(c, e.items, e.me)
		if err != nil {
			return nil, err
		}
		ended = append(ended, before...)
	}
	slices.Sort(ended)
	for i := range e.items {
		if _, found := slices.BinarySearch(ended, e.items[i].ID); !found {
			stale = append(stale, e.items[i].ID)
		}
	}
	return stale, nil
}

// send sends up to four statements as one pipeline, which Postgres treats as one
// transaction. It returns how many items were ended. doneSQL returns only a number,
// so ended contains only the ids that the other statements ended.
func (e *ending) send(c Session) (ended []dispatcherd.JobID, n int, err error) {
	var groups [3][]contract.Finish
	for _, f := range e.items {
		g := e.groupOf(&f)
		groups[g] = append(groups[g], f)
	}
	var batch pgx.Batch
	if e.patient {
		batch.Queue("patience")
	}
	if done := groups[0]; len(done) > 0 {
		batch.Queue("done", encodeDone(done, e.me)...).Exec(func(tag pgconn.CommandTag) error {
			n = int(tag.RowsAffected())
			return nil
		})
	}
	read := func(row pgx.Row) error {
		var ids []dispatcherd.JobID
		err := row.Scan(&ids)
		ended = append(ended, ids...)
		return err
	}
	if final := groups[1]; len(final) > 0 {
		results := column(final, func(f *contract.Finish) string { return string(f.Result) })
		batch.Queue("ended", append(e.common(final), results)...).QueryRow(read)
	}
	if back := groups[2]; len(back) > 0 {
		delays := column(back, func(f *contract.Finish) int64 { return min(max(f.Delay, 0), maxDelay).Microseconds() })
		batch.Queue("pending", append(e.common(back), delays)...).QueryRow(read)
	}
	if err := c.SendBatch(c, &batch).Close(); err != nil {
		return nil, 0, err
	}
	return ended, n + len(ended), nil
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
func endedBefore(c Session, items []contract.Finish, me int32) (before []dispatcherd.JobID, err error) {
	back := column(items, func(f *contract.Finish) bool { return !f.Outcome.Final() })
	err = c.QueryRow(c, "ended-before", idsOf(items), attemptsOf(items), me, back).Scan(&before)
	return before, err
}

// clean returns a message that Postgres can store: valid UTF-8 without NUL, limited
// in length.
func clean(message string) string {
	message = truncate(message, dispatcherd.MaxErrorLength)
	return strings.ReplaceAll(strings.ToValidUTF8(message, "\uFFFD"), "\x00", "\uFFFD")
}

func idsOf(items []contract.Finish) []int64 {
	return column(items, func(f *contract.Finish) int64 { return int64(f.ID) })
}

func attemptsOf(items []contract.Finish) []int32 {
	return column(items, func(f *contract.Finish) int32 { return int32(f.Attempt) })
}

// common returns the parameters that endedSQL and pendingSQL have in common.
func (e *ending) common(items []contract.Finish) []any {
	return []any{
		idsOf(items), attemptsOf(items),
		column(items, func(f *contract.Finish) string { return f.Outcome.String() }),
		column(items, func(f *contract.Finish) string { return clean(f.Error) }),
		e.me,
		column(items, func(f *contract.Finish) string { return string(placementOf(f)) }),
		column(items, func(f *contract.Finish) string {
			if f.Log == "" {
				return ""
			}
			return string(ascii(strings.ReplaceAll(f.Log, "\x00", "\uFFFD")))
		}),
	}
}

// placementOf returns the placement as JSON, or nothing if there is none.
func placementOf(f *contract.Finish) []byte {
	if f.Placement == nil {
		return nil
	}
	return ascii(f.Placement)
}

// ascii returns a value as JSON that contains only ASCII, so a database with any encoding can store it.
func ascii(v any) (b []byte) {
	text, _ := json.Marshal(v) // texts and numbers have a form
	for _, r := range string(text) {
		if r < utf8.RuneSelf {
			b = append(b, byte(r))
		} else if r1, r2 := utf16.EncodeRune(r); r > 0xffff {
			b = fmt.Appendf(b, `\u%04x\u%04x`, r1, r2)
		} else {
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return b
}
