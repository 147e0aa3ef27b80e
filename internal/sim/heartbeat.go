package sim

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// doBeat follows claim.Store.Heartbeat: renew the own lease, declare the silent
// lost, read what is new, and then, in a statement of its own, release what
// the lost were running.
func (w *world) doHeartbeat(i int32) {
	s := w.statements.all[i]
	switch s.phase {
	case started:
		if w.mayShare(i, w.table.member(s.run)) {
			w.later(i, commits)
		}
	case commits:
		w.renew(s)
		w.declareLost(s)
		w.processCancels(s)
		if !w.lockLost(i, func(run int32) bool { return w.table.member(run).lost }) {
			w.finished(i, contract.OK)
			return
		}
		w.later(i, releases)
	default:
		s.result.released = w.releaseLocked(s, w.crashesOf)
		w.stats.TakenOver += s.result.released
		w.finished(i, contract.OK)
	}
}

// renew writes the own heartbeat and reads what the others offer.
func (w *world) renew(s *statement) {
	t := &w.table
	m := t.member(s.run)
	s.result.leaseLost = m.lost || m.leaving
	if !s.result.leaseLost {
		m.renewedAt, m.capacity = w.dbNow(), s.capacity
	}
	var others [maxTypes]contract.Others
	for _, run := range t.present {
		o := t.member(run)
		if run == s.run || !o.holdsLease(w.dbNow()) {
			continue
		}
		for n := range w.scale.types {
			if o.capacity[n] > 0 {
				if s.result.otherCapacity == nil {
					s.result.otherCapacity = map[string]int{}
				}
				s.result.otherCapacity[w.typeNames[n]] += int(o.capacity[n])
				if least := &others[n].Least; *least == 0 || int(o.capacity[n]) < *least {
					*least = int(o.capacity[n])
				}
				if run < s.run {
					others[n].SmallerIDs += int(o.capacity[n])
				} else {
					others[n].LargerIDs += int(o.capacity[n])
				}
			}
		}
	}
	s.result.shares = map[string]contract.Share{}
	for n := range w.scale.types {
		name := w.typeNames[n]
		if share := contract.ShareOf(int(s.capacity[n]), others[n]); !share.All() {
			s.result.shares[name] = share
		}
	}
}

// declareLost marks dispatchers whose lease has run out. One with a claim in
// flight is left for the next beat, as SKIP LOCKED does.
func (w *world) declareLost(s *statement) {
	t := &w.table
	for _, run := range t.present {
		m := t.member(run)
		if run != s.run && !m.lost && m.shares == 0 && m.exclusive == 0 && m.renewedAt+int64(m.lease) < w.dbNow() {
			m.lost, m.subscribed = true, false
			w.judge.declaredLost(w, run)
		}
		s.result.lost = s.result.lost || m.lost
	}
}

// settleCancels tells of cancelled jobs that run here, and cancels those that
// are pending again.
func (w *world) processCancels(s *statement) {
	t := &w.table
	t.cancels = slices.DeleteFunc(t.cancels, func(id dispatcherd.JobID) bool {
		r := t.row(id)
		switch {
		case r.status == running:
			if r.dispatcher == s.run {
				s.result.cancels = append(s.result.cancels, id)
			}
			return false
		case r.status == pending && r.lock != 0:
			return false
		case r.status == pending:
			w.dequeue(id, r)
			w.close(r, cancelled)
		}
		return true
	})
	slices.Sort(s.result.cancels)
}

// lockLost locks the rows that claims of some dispatchers took and that still
// run, without waiting. It reports whether there are any.
func (w *world) lockLost(i int32, whose func(run int32) bool) bool {
	if w.opt.Break == WithoutTakeover {
		return false
	}
	s := w.statements.all[i]
	t := &w.table
	for _, run := range t.present {
		if !whose(run) {
			continue
		}
		for _, n := range t.member(run).claims {
			for _, id := range n.ids {
				if r := t.row(id); r.status == running && r.dispatcher == run {
					w.lock(i, id, r)
				}
			}
		}
	}
	return len(s.locked) > 0
}

// blame is how many crashes a job counts whose dispatcher was lost.
func (*world) crashesOf(m *member) int32 {
	if m.leaving {
		return 0
	}
	return 1
}

// releaseLocked gives back the locked rows and returns how many they were.
func (w *world) releaseLocked(s *statement, crashesOf func(*member) int32) int {
	for _, id := range s.locked {
		r := w.table.row(id)
		crashes := crashesOf(w.table.member(r.dispatcher))
		w.judge.released(w, id, r, s, crashes)
		r.crashes += crashes
		w.makePending(id, r)
	}
	if len(s.locked) > 0 && w.table.subscribed(0) {
		w.notify()
	}
	return len(s.locked)
}

// doLeave follows claim.Store.Leave.
func (w *world) doLeave(i int32) {
	s := w.statements.all[i]
	m := w.table.member(s.run)
	switch s.phase {
	case started:
		w.lockAlone(i, m)
	case commits:
		m.lost, m.subscribed = true, false
		w.unlock(i)
		w.lockLost(i, func(run int32) bool { return run == s.run })
		w.later(i, releases)
	default:
		s.result.released = w.releaseLocked(s, func(*member) int32 { return 0 })
		w.finished(i, contract.OK)
	}
}

// sweep is claim.Store.Sweep at one instant: it forgets lost dispatchers of
// which no row runs any more. A row that runs under one of them and that none
// of its notes names would never have been released.
func (w *world) sweep() {
	t := &w.table
	owned := make([]bool, len(t.members)+1)
	for n := range t.rows {
		if r := &t.rows[n]; r.status == running {
			owned[r.dispatcher] = true
			if m := t.member(r.dispatcher); m.lost && !m.names(dispatcherd.JobID(n+1)) {
				w.violate("job %d runs under lost dispatcher %d, and no claim of it names the job", n+1, r.dispatcher)
			}
		}
	}
	t.present = slices.DeleteFunc(t.present, func(run int32) bool {
		m := t.member(run)
		if !m.lost || owned[run] || m.shares > 0 || m.exclusive != 0 {
			return false
		}
		m.claims = nil
		return true
	})
}

// lives reports whether a dispatcher's lease holds.
func (m *member) holdsLease(dbNow int64) bool { return !m.lost && m.renewedAt+int64(m.lease) > dbNow }

func (m *member) names(id dispatcherd.JobID) bool {
	return slices.ContainsFunc(m.claims, func(n claimRow) bool { return holds(n.ids, id) })
}
