package claimfake

import (
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// beginAdopt follows adoptSQL. It takes the share lock on the row of its dispatcher and
// checks the offers. The next phase locks the rows and checks the offers again. A row that
// passes only the first check is busy.
func (s *Statement) beginAdopt(int64) State {
	t := s.table
	d := t.dispatcher(s.me)
	if d.exclusive != nil {
		return s.block(d.exclusive)
	}
	if t.Skip&CheckMembership != 0 || d.holdsLease() {
		s.share(d)
		s.allowed = true
		for n := range s.adopt.Jobs {
			if s.mayAdopt(&s.adopt.Jobs[n]) {
				s.picked = append(s.picked, n)
			}
		}
	}
	return s.then((*Statement).lockOffered)
}

// mayAdopt reports whether an offer matches its row. The row must run under the offered
// attempt. In addition its claim must have recorded the session, or an earlier copy of the
// request must have adopted the row.
func (s *Statement) mayAdopt(o *contract.ResumeOffer) bool {
	t := s.table
	r := t.rows[o.ID]
	if r == nil || r.Status != dispatcherd.Running || r.Attempt != o.Attempt && t.Skip&CheckAttempt == 0 || o.From == 0 {
		return false
	}
	if t.Skip&CheckFingerprint != 0 || r.Dispatcher == s.me && r.Token == s.token {
		return true
	}
	for _, c := range t.dispatcher(r.Dispatcher).claims {
		if c.token != r.Token || c.commit > s.snapshot {
			continue
		}
		at, found := slices.BinarySearch(c.ids, o.ID)
		return found && (follows(o, c.sessions[at]) || t.Skip&CheckGeneration != 0 && c.sessions[at]>>16 == o.From>>16)
	}
	return false
}

// follows reports whether a row that records the given fingerprint may be taken.
// The row must record the session in which the execution began, or an earlier
// resume offer of this execution. If a later offer superseded this one, the row
// records the later fingerprint and may not be taken.
func follows(o *contract.ResumeOffer, recorded contract.Fingerprint) bool {
	return recorded == o.From || o.To.Supersedes(recorded, o.From)
}

func (s *Statement) lockOffered(int64) State {
	s.picked = slices.DeleteFunc(s.picked, func(n int) bool {
		o := &s.adopt.Jobs[n]
		if s.lock(s.table.rows[o.ID]) && s.mayAdopt(o) {
			return false
		}
		s.Adopted.Busy = append(s.Adopted.Busy, o.ID)
		return true
	})
	return s.then((*Statement).commitAdopt)
}

func (s *Statement) commitAdopt(now int64) State {
	t := s.table
	d := t.dispatcher(s.me)
	t.commits++
	for _, n := range s.picked {
		o := &s.adopt.Jobs[n]
		r := t.rows[o.ID]
		t.observer.Adopts(s, o, r)
		r.Dispatcher, r.Token, r.Session = s.me, s.token, o.To
		s.Adopted.Jobs = append(s.Adopted.Jobs, contract.Adopted{
			Won: r.won(), RunAt: r.RunAt,
			Ran: (time.Duration(max(0, now-r.claimedAt)) * time.Microsecond).Truncate(time.Millisecond),
		})
	}
	if s.allowed && !slices.ContainsFunc(d.claims, func(c claimRow) bool { return c.token == s.token }) {
		record := claimRow{token: s.token, commit: t.commits}
		for _, o := range s.adopt.Jobs {
			record.ids, record.sessions = append(record.ids, o.ID), append(record.sessions, o.To)
		}
		d.claims = append(d.claims, record)
	}
	if len(s.Adopted.Jobs)+len(s.Adopted.Busy) == 0 && t.Skip&CheckMembership == 0 && !d.holdsLease() {
		return s.done(contract.Refused)
	}
	return s.done(contract.OK)
}

// beginHandOver follows claim.Store.HandOver.
func (s *Statement) beginHandOver(int64) State { return s.lockAlone((*Statement).commitHandOver) }

func (s *Statement) commitHandOver(now int64) State {
	t := s.table
	t.HandOver(now, s.me, time.Duration(s.hold)*time.Microsecond)
	s.unlock()
	if t.Skip&CheckHold != 0 && s.lockRunning([]int32{s.me}) {
		return s.then((*Statement).release)
	}
	return s.done(contract.OK)
}
