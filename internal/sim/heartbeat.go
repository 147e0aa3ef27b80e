package sim

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// doHeartbeat follows claim.Store.Heartbeat: it renews the own lease, declares
// dispatchers with an expired lease lost, and reads capacity and cancels. A
// second statement releases the rows of lost dispatchers.
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
		s.result.Released = w.releaseLocked(s, w.crashesOf)
		w.stats.TakenOver += s.result.Released
		w.finished(i, contract.OK)
	}
}

// renew writes the own heartbeat and reads the capacity of the other
// dispatchers.
func (w *world) renew(s *statement) {
	t := &w.table
	m := t.member(s.run)
	s.result.LeaseLost = m.lost || m.leaving
	if !s.result.LeaseLost {
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
				if s.result.OtherCapacity == nil {
					s.result.OtherCapacity = map[string]int{}
				}
				s.result.OtherCapacity[w.typeNames[n]] += int(o.capacity[n])
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
	s.result.Shares = map[string]contract.Share{}
	for n := range w.scale.types {
		name := w.typeNames[n]
		if share := contract.ShareOf(int(s.capacity[n]), others[n]); !share.All() {
			s.result.Shares[name] = share
		}
	}
}

// declareLost declares dispatchers with an expired lease lost. A dispatcher
// with a claim in flight is left for the next heartbeat, as with SKIP LOCKED.
func (w *world) declareLost(s *statement) {
	t := &w.table
	for _, run := range t.present {
		m := t.member(run)
		if run != s.run && !m.lost && m.shares == 0 && m.exclusive == 0 && m.renewedAt+int64(m.lease) < w.dbNow() {
			m.lost, m.subscribed = true, false
			w.judge.declaredLost(w, run)
		}
		s.result.Lost = s.result.Lost || m.lost
	}
}

// processCancels returns the cancelled jobs that run under this dispatcher, and
// cancels those that are pending again.
func (w *world) processCancels(s *statement) {
	t := &w.table
	t.cancels = slices.DeleteFunc(t.cancels, func(id dispatcherd.JobID) bool {
		r := t.row(id)
		switch {
		case r.status == running:
			if r.dispatcher == s.run {
				s.result.Cancels = append(s.result.Cancels, id)
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
	slices.Sort(s.result.Cancels)
}

// lockLost locks the running rows that the claims of some dispatchers took,
// without waiting. It reports whether there are any.
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

// crashesOf returns how many crashes a job of a lost dispatcher counts.
func (*world) crashesOf(m *member) int32 {
	if m.leaving {
		return 0
	}
	return 1
}

// releaseLocked releases the locked rows and returns their number.
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
		s.result.Released = w.releaseLocked(s, func(*member) int32 { return 0 })
		w.finished(i, contract.OK)
	}
}

// sweep follows claim.Store.Sweep at one instant: it removes lost dispatchers
// without running rows. It is a violation if a row runs under a lost dispatcher
// and no claim of that dispatcher lists it, because such a row is never
// released.
func (w *world) sweep() {
	t := &w.table
	owned := make([]bool, len(t.members)+1)
	for n := range t.rows {
		if r := &t.rows[n]; r.status == running {
			owned[r.dispatcher] = true
			if m := t.member(r.dispatcher); m.lost && !m.names(dispatcherd.JobID(n+1)) {
				w.violate("job %d runs under lost dispatcher %d, and no claim of this dispatcher lists it", n+1, r.dispatcher)
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

// holdsLease reports whether the lease of a dispatcher holds.
func (m *member) holdsLease(dbNow int64) bool { return !m.lost && m.renewedAt+int64(m.lease) > dbNow }

func (m *member) names(id dispatcherd.JobID) bool {
	return slices.ContainsFunc(m.claims, func(n claimRow) bool { return holds(n.ids, id) })
}
