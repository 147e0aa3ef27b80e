package sim

import (
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// doFetch reads the heads of lanes in one snapshot.
func (w *world) doFetch(i int32) {
	s := w.statements.all[i]
	s.dbNow = s.txNow
	if s.clientDone || s.answered {
		w.finished(i, contract.OK) // the client no longer waits
		return
	}
	for n := range s.fetch.Lanes {
		lane := &s.fetch.Lanes[n]
		t := int(lane.Type[len(lane.Type)-1] - '0')
		l := &w.table.lanes[t][lane.Priority]
		from := l.head
		if lane.After != (contract.Key{}) {
			from = l.find(contract.Key{RunAt: lane.After.RunAt, ID: lane.After.ID + 1})
		}
		for found := 0; from < len(l.keys) && found < lane.Limit && (!s.fetch.Backfill || l.keys[from].Less(lane.Before)); from++ {
			if k := l.keys[from]; lane.Share.Owns(k.ID) != lane.NonLocal {
				s.found = append(s.found, contract.Candidate{Lane: n, Key: k})
				found++
			}
		}
	}
	w.finished(i, contract.OK)
}

// doClaim follows claimSQL: the share lock on the dispatcher's own row, the row
// locks in id order with SKIP LOCKED, then the commit.
func (w *world) doClaim(i int32) {
	s := w.statements.all[i]
	switch s.phase {
	case started:
		m := w.table.member(s.run)
		if !w.mayShare(i, m) {
			return
		}
		allowed := !m.lost && m.renewedAt+int64(m.lease) > s.txNow && m.epoch == s.epoch
		if w.opt.Break == WithoutLease {
			allowed = true
		}
		if !allowed {
			w.commitClaim(i)
			return
		}
		m.shares++
		s.shares, s.allowed = true, true
		w.lockPending(i)
	case locks:
		w.lockPending(i)
	default:
		w.commitClaim(i)
	}
}

// lockPending locks rows that are pending and due. A slow statement locks them
// in several steps, and other tasks run in between.
func (w *world) lockPending(i int32) {
	s := w.statements.all[i]
	n := len(s.ids)
	if s.slow > 1 {
		n = min(n, s.cursor+4)
	}
	for ; s.cursor < n; s.cursor++ {
		id := s.ids[s.cursor]
		r := w.table.row(id)
		fits := r.status == pending && r.visible <= s.arrived
		if w.opt.Break == WithoutStatus {
			fits = r.status == pending || r.status == running
		}
		if fits && r.lock != 0 && s.uncontended {
			w.restartClaim(i)
			return
		}
		if !fits || r.runAt > s.txNow || !w.lock(i, id, r) {
			w.stats.Skipped++
		}
	}
	if s.cursor < len(s.ids) {
		w.later(i, locks)
		return
	}
	w.later(i, commits)
}

// restartClaim handles an uncontended claim that found a locked row. The claim
// waits for a short time and then starts again with SKIP LOCKED.
func (w *world) restartClaim(i int32) {
	s := w.statements.all[i]
	if s.retries++; s.retries < 20 {
		s.phase = locks
		w.plan(task{at: w.now + millisecond, kind: statementAt, arg: i, incarnation: s.gen})
		return
	}
	w.unlock(i)
	s.uncontended, s.contended, s.allowed = false, true, false
	s.cursor, s.arrived, s.txNow = 0, w.now, w.dbNow()
	w.later(i, started)
}

func (w *world) commitClaim(i int32) {
	s := w.statements.all[i]
	w.stats.Claims++
	m := w.table.member(s.run)
	for _, id := range s.locked {
		r := w.table.row(id)
		w.judge.claimed(w, id, r, s)
		if r.status == pending {
			w.dequeue(id, r)
		}
		r.status, r.dispatcher, r.token, r.claimedAt = running, s.run, s.token, s.txNow
		r.attempt++
		at, _ := slices.BinarySearch(s.ids, id)
		r.fingerprint = s.to[at]
		s.won = append(s.won, w.won(id, r))
	}
	w.stats.Won += len(s.won)
	if s.allowed {
		m.claims = append(m.claims, claimRow{s.token, w.now, slices.Clone(s.ids), slices.Clone(s.to)})
	}
	if len(s.removable) > 0 {
		m.claims = slices.DeleteFunc(m.claims, func(n claimRow) bool { return slices.Contains(s.removable, n.token) })
	}
	v := contract.OK
	if len(s.won) == 0 {
		v = w.refusal(s, m)
	}
	w.finished(i, v)
}

// refusal distinguishes a claim that won nothing from a claim that was refused.
func (w *world) refusal(s *statement, m *member) contract.Verdict {
	switch {
	case w.opt.Break == WithoutLease:
		return contract.OK
	case !m.holdsLease(w.dbNow()):
		return contract.Refused
	case m.epoch != s.epoch:
		s.result.epoch, s.result.outdated = m.epoch, true
		return contract.Refused
	}
	return contract.OK
}

func (w *world) won(id dispatcherd.JobID, r *row) contract.Won {
	return contract.Won{
		ID: id, Attempt: r.attempt, MaxAttempts: r.tries, Failures: r.failures, Crashes: r.crashes,
		Timeout: time.Duration(r.timeoutMS) * time.Millisecond,
	}
}

// doResolve raises the epoch under an exclusive lock, which waits for claims in
// flight. Then it reads the rows with the token.
func (w *world) doResolve(i int32) {
	s := w.statements.all[i]
	m := w.table.member(s.run)
	switch s.phase {
	case started:
		if w.opt.Break == WithoutEpoch {
			s.result.epoch = s.epoch
			w.later(i, releases)
			return
		}
		w.lockAlone(i, m)
	case commits:
		m.epoch++
		s.result.epoch = m.epoch
		w.unlock(i)
		w.later(i, releases)
	default:
		for _, id := range s.ids {
			if r := w.table.row(id); r.status == running && r.dispatcher == s.run && r.token == s.token {
				s.won = append(s.won, w.won(id, r))
			}
		}
		w.finished(i, contract.OK)
	}
}
