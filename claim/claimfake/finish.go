package claimfake

import (
	"cmp"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// beginFinish follows the three statements that end attempts. It checks the items in the
// snapshot. The next phases wait for the row locks, and check the items again before the
// commit.
func (s *Statement) beginFinish(now int64) State {
	items := s.finish.Items
	for group := range 3 {
		for n := range items {
			if groupOf(items[n].Outcome) == group && s.mayFinish(&items[n]) {
				s.picked = append(s.picked, n)
			}
		}
	}
	s.applied = make([]bool, len(items))
	return s.lockEnding(now)
}

// groupOf numbers the statements of a finish in the order in which they are sent.
func groupOf(o contract.Outcome) int {
	switch {
	case o == contract.Succeeded:
		return 0
	case o.Final():
		return 1
	}
	return 2
}

// mayFinish implements fencing: the attempt must be the running one of this dispatcher.
func (s *Statement) mayFinish(f *contract.Finish) bool {
	r := s.table.rows[f.ID]
	return r != nil && r.Status == dispatcherd.Running &&
		(r.Attempt == f.Attempt && r.Dispatcher == s.me || s.table.Skip&CheckFence != 0)
}

// lockEnding locks the rows. If another statement has locked a row for a short time, the
// statement starts again and leaves out the locked rows.
func (s *Statement) lockEnding(int64) State {
	for ; s.cursor < len(s.picked); s.cursor++ {
		r := s.table.rows[s.finish.Items[s.picked[s.cursor]].ID]
		switch {
		case r.Refused != nil:
			s.postpone(r.ID, r.Refused.Error())
		case s.lock(r):
		case s.contended:
			s.postpone(r.ID, "the row is locked")
		default:
			if s.polls++; s.polls < lockPolls {
				s.next = (*Statement).lockEnding
				return Polling
			}
			s.unlock()
			s.contended, s.cursor, s.picked, s.Finished.Deferred = true, 0, s.picked[:0], nil
			return s.then((*Statement).beginFinish)
		}
	}
	return s.then((*Statement).commitFinish)
}

// postpone leaves an item out.
func (s *Statement) postpone(id dispatcherd.JobID, reason string) {
	s.Finished.Deferred = append(s.Finished.Deferred, contract.Deferred{ID: id, Reason: reason})
}

func (s *Statement) postponed(id dispatcherd.JobID) bool {
	return slices.ContainsFunc(s.Finished.Deferred, func(d contract.Deferred) bool { return d.ID == id })
}

func (s *Statement) commitFinish(now int64) State {
	t := s.table
	t.commits++
	notifies := false
	for _, n := range s.picked {
		f := &s.finish.Items[n]
		if !s.mayFinish(f) || s.postponed(f.ID) {
			continue
		}
		r := t.rows[f.ID]
		t.observer.Finishes(s, f, r)
		t.end(now, f, r)
		notifies = notifies || !f.Outcome.Final() && f.Delay == 0
		s.applied[n] = true
	}
	for n := range s.finish.Items {
		if f := &s.finish.Items[n]; !s.applied[n] && !s.postponed(f.ID) && (!s.finish.Again || !s.endedBefore(f)) {
			s.Finished.Stale = append(s.Finished.Stale, f.ID)
		}
	}
	slices.SortFunc(s.Finished.Deferred, func(a, b contract.Deferred) int { return cmp.Compare(a.ID, b.ID) })
	if notifies && t.Subscribed(s.me) {
		t.observer.Notified()
	}
	return s.done(contract.OK)
}

// endedBefore follows endedBeforeSQL. It reports whether an earlier copy of the request has
// ended the attempt.
func (s *Statement) endedBefore(f *contract.Finish) bool {
	r := s.table.rows[f.ID]
	switch {
	case r == nil || r.Attempt != f.Attempt:
		return false
	case f.Outcome.Final():
		return r.Status.Final() && r.Dispatcher == s.me
	}
	return r.Status == dispatcherd.Pending
}

// end applies one outcome to a running row.
func (t *Table) end(now int64, f *contract.Finish, r *Row) {
	r.note(f.Error)
	switch f.Outcome {
	case contract.Retry, contract.FailedFinal:
		r.Failures++
	case contract.Crashed, contract.Isolated, contract.Quarantined:
		r.Crashes++
	}
	switch f.Outcome {
	case contract.Succeeded:
		r.Result = slices.Clone(f.Result)
		t.close(r, dispatcherd.Done)
	case contract.FailedFinal, contract.Quarantined:
		t.close(r, dispatcherd.Failed)
	case contract.Cancelled:
		t.close(r, dispatcherd.Cancelled)
	case contract.Retry, contract.Isolated:
		r.RunAt = now + max(f.Delay, 0).Microseconds()
		t.enqueue(r)
	case contract.Crashed, contract.Released:
		t.enqueue(r)
	}
}

// RecordProgress does the same as claim.Store.Progress.
func (t *Table) RecordProgress(dispatcher int32, items []claim.Progress) {
	for _, p := range items {
		if r := t.rows[p.ID]; r != nil && r.Status == dispatcherd.Running && r.Attempt == p.Attempt && r.Dispatcher == dispatcher {
			r.Progress = []byte(p.JSON)
		}
	}
}
