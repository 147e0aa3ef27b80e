package sim

import (
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/shell"
)

func (h *host) submitAdopt(r *contract.AdoptRequest) {
	i, s := h.world.statement(opAdopt, h)
	s.adopt = r
	s.token = readToken(r.Token)
	for n := range r.Jobs {
		s.ids = append(s.ids, r.Jobs[n].ID)
		s.to = append(s.to, r.Jobs[n].To)
	}
	h.submit(i, s)
}

// reportAdopt passes the answer to the core.
func (h *host) reportAdopt(s *statement) {
	ev := event.Adopted{Request: s.adopt, Result: contract.AdoptResult{Verdict: s.verdict}}
	if s.verdict == contract.OK {
		h.claimRecords.addAdopted(s)
		ev.Result.Jobs, ev.Result.Busy = slices.Clone(s.taken), slices.Clone(s.busy)
		h.world.stats.Busy += len(s.busy)
	}
	ev.Result = h.lease.Adopted(h.time(), ev.Result)
	h.step(ev)
	if shell.TookOver(ev.Request, &ev.Result) {
		h.adopted = true
		if !h.beating {
			h.heartbeat()
		}
	}
}

// addAdopted follows package claim: if a row was renewed, the end of its job
// may already be recorded.
func (m *claimRecords) addAdopted(s *statement) {
	for n := range s.taken {
		id := s.taken[n].ID
		at, _ := slices.BinarySearch(s.ids, id)
		if !s.adopt.Jobs[at].Renewal || int(id) <= len(m.byJob) && m.byJob[id-1] != 0 {
			s.won = append(s.won, s.taken[n].Won)
		}
	}
	m.add(s.token, s.won)
}

// doAdopt follows adoptSQL: the share lock on the dispatcher's own row, a check
// of the offers, then the row locks and a second check. Rows that passed the
// first check and cannot be had are busy.
func (w *world) doAdopt(i int32) {
	s := w.statements.all[i]
	switch s.phase {
	case started:
		m := w.table.member(s.run)
		if !w.mayShare(i, m) {
			return
		}
		if w.opt.Break == WithoutMembership || m.holdsLease(s.txNow) && !m.leaving {
			m.shares++
			s.shares, s.allowed = true, true
			for n := range s.adopt.Jobs {
				if w.offerValid(s, n) {
					s.picked = append(s.picked, int32(n))
				}
			}
		}
		w.later(i, locks)
	case locks:
		w.lockAdopted(i)
	default:
		w.commitAdopt(i)
	}
}

// offerValid reports whether an offer matches its row: the attempt is the
// running one, and the claim recorded the session, or an earlier copy of the
// request adopted the row.
func (w *world) offerValid(s *statement, n int) bool {
	p := &s.adopt.Jobs[n]
	r := w.table.row(p.ID)
	if r == nil || r.status != running || r.attempt != p.Attempt && w.opt.Break != WithoutAttempt || p.From == 0 {
		return false
	}
	if w.opt.Break == WithoutFingerprint || r.dispatcher == s.run && r.token == s.token {
		return true
	}
	for _, claim := range w.table.member(r.dispatcher).claims {
		if claim.token != r.token || claim.written > s.arrived {
			continue
		}
		at, found := slices.BinarySearch(claim.ids, p.ID)
		return found && (p.Follows(claim.sessions[at]) || w.opt.Break == WithoutGeneration && session(claim.sessions[at]) == session(p.From))
	}
	return false
}

func (w *world) lockAdopted(i int32) {
	s := w.statements.all[i]
	s.picked = slices.DeleteFunc(s.picked, func(n int32) bool {
		id := s.ids[n]
		if w.lock(i, id, w.table.row(id)) && w.offerValid(s, int(n)) {
			return false
		}
		s.busy = append(s.busy, id)
		return true
	})
	w.later(i, commits)
}

func (w *world) commitAdopt(i int32) {
	s := w.statements.all[i]
	m := w.table.member(s.run)
	for _, n := range s.picked {
		p := &s.adopt.Jobs[n]
		r := w.table.row(p.ID)
		w.judge.adopted(w, p, r, s)
		r.dispatcher, r.token, r.fingerprint = s.run, s.token, p.To
		if !p.Renewal {
			w.stats.Adopted++
		}
		s.taken = append(s.taken, contract.Adopted{
			Won: w.won(p.ID, r), Type: w.typeNames[r.typ], Priority: r.priority, RunAt: r.runAt,
			Ran: max(0, moment(w.dbNow()-r.claimedAt)).duration().Truncate(time.Millisecond),
		})
	}
	if s.allowed && !slices.ContainsFunc(m.claims, func(n claimRow) bool { return n.token == s.token }) {
		m.claims = append(m.claims, claimRow{s.token, w.now, slices.Clone(s.ids), slices.Clone(s.to)})
	}
	v := contract.OK
	if len(s.taken)+len(s.busy) == 0 && w.opt.Break != WithoutMembership && (!m.holdsLease(w.dbNow()) || m.leaving) {
		v = contract.Refused
	}
	w.finished(i, v)
}

// doHandOver follows claim.Store.HandOver.
func (w *world) doHandOver(i int32) {
	s := w.statements.all[i]
	m := w.table.member(s.run)
	switch s.phase {
	case started:
		w.lockAlone(i, m)
	case commits:
		if !m.lost {
			m.leaving, m.subscribed, m.capacity = true, false, [maxTypes]int32{}
			m.renewedAt, m.lease = w.dbNow(), w.detach.window
			m.epoch++
			w.judge.handsOver(w, s.run)
		}
		w.unlock(i)
		if w.opt.Break == WithoutHold && w.lockLost(i, func(run int32) bool { return run == s.run }) {
			w.later(i, releases)
			return
		}
		w.finished(i, contract.OK)
	default:
		s.result.Released = w.releaseLocked(s, w.crashesOf)
		w.finished(i, contract.OK)
	}
}
