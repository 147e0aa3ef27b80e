package sim

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// doFinish follows the three statements that end attempts: a first check in the
// snapshot, the row locks, which it waits for, and a second check after
// locking.
func (w *world) doFinish(i int32) {
	s := w.statements.all[i]
	switch s.phase {
	case started:
		for class := range 3 {
			for n := range s.items {
				if classOf(s.items[n].Outcome) == class && w.fits(s, &s.items[n]) {
					s.picked = append(s.picked, int32(n))
				}
			}
		}
		w.lockEnding(i)
	case locks:
		w.lockEnding(i)
	default:
		w.commitFinish(i)
	}
}

// classOf numbers the statements of a finish in the order in which they are
// sent.
func classOf(o contract.Outcome) int {
	switch {
	case o == contract.Succeeded:
		return 0
	case o.Final():
		return 1
	}
	return 2
}

// fits implements fencing: the attempt must be the running one of this
// dispatcher.
func (w *world) fits(s *statement, f *contract.Finish) bool {
	r := w.table.row(f.ID)
	if w.opt.Break == WithoutFence {
		return r.status == running
	}
	return r.status == running && r.attempt == f.Attempt && r.dispatcher == s.run
}

func (w *world) lockEnding(i int32) {
	s := w.statements.all[i]
	for ; s.cursor < len(s.picked); s.cursor++ {
		id := s.items[s.picked[s.cursor]].ID
		r := w.table.row(id)
		if !w.lock(i, id, r) {
			s.phase = locks
			w.waitForLock(i, r.lock)
			return
		}
	}
	w.later(i, commits)
}

func (w *world) commitFinish(i int32) {
	s := w.statements.all[i]
	w.stats.Finishes += len(s.items)
	notifies := false
	for _, n := range s.picked {
		f := &s.items[n]
		if !w.fits(s, f) {
			continue
		}
		r := w.table.row(f.ID)
		w.judge.finished(w, r, f, s)
		w.judge.releasedRunning(w, r, f, s)
		w.end(f, r)
		notifies = notifies || !f.Outcome.Final() && f.Delay == 0
		f.Outcome |= applied
	}
	for n := range s.items {
		f := &s.items[n]
		if f.Outcome&applied == 0 && (!s.again || !w.endedByCopy(s, f)) {
			s.stale = append(s.stale, f.ID)
			w.stats.Stale++
		}
	}
	if notifies && w.table.subscribed(s.run) {
		w.notify()
	}
	w.finished(i, contract.OK)
}

// applied marks the items of a statement that changed their row.
const applied contract.Outcome = 0x80

// endedByCopy follows againSQL: an earlier copy of the request may have ended
// the attempt.
func (w *world) endedByCopy(s *statement, f *contract.Finish) bool {
	r := w.table.row(f.ID)
	return r.attempt == f.Attempt && (r.status == pending || r.status.final() && r.dispatcher == s.run)
}

// end applies one outcome to a row.
func (w *world) end(f *contract.Finish, r *row) {
	switch f.Outcome {
	case contract.Succeeded:
		w.close(r, done)
	case contract.FailedFinal:
		r.failures++
		w.close(r, failed)
	case contract.Cancelled:
		w.close(r, cancelled)
	case contract.Quarantined:
		r.crashes++
		w.close(r, failed)
	case contract.Retry:
		r.failures++
		r.runAt = w.dbNow() + f.Delay.Microseconds()
		w.makePending(f.ID, r)
	case contract.Isolated:
		r.crashes++
		r.runAt = w.dbNow() + f.Delay.Microseconds()
		w.makePending(f.ID, r)
	case contract.Crashed:
		r.crashes++
		w.makePending(f.ID, r)
	case contract.Released:
		w.makePending(f.ID, r)
	}
}

// makePending makes a running row pending again.
func (w *world) makePending(id dispatcherd.JobID, r *row) {
	r.dispatcher, r.token = 0, 0
	w.enqueue(id, r)
}
