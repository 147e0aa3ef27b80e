package claimfake

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// lockPolls is how many milliseconds a claim waits for row locks before it starts again
// and skips locked rows.
const lockPolls = 20

// beginClaim follows claimSQL. It takes the share lock on the row of its dispatcher. The
// next phases lock the rows in the order of ids, and commit.
func (s *Statement) beginClaim(now int64) State {
	t := s.table
	d := t.dispatcher(s.me)
	if d.exclusive != nil {
		return s.block(d.exclusive)
	}
	s.allowed = (d.holdsLease() || t.Skip&CheckLease != 0) && (d.epoch == s.epoch || t.Skip&(CheckEpoch|CheckLease) != 0)
	if !s.allowed {
		return s.commitClaim(now)
	}
	s.share(d)
	return s.lockPending(s.began)
}

// lockPending locks rows that are pending and due.
func (s *Statement) lockPending(int64) State {
	ids := s.claim.IDs
	end := len(ids)
	if s.Portion > 0 {
		end = min(end, s.cursor+s.Portion)
	}
	for ; s.cursor < end; s.cursor++ {
		r := s.table.rows[ids[s.cursor]]
		if r == nil || !s.mayClaim(r) {
			continue
		}
		if r.Refused != nil {
			s.Claimed.Unclaimable = append(s.Claimed.Unclaimable, contract.Unclaimable{ID: r.ID, Reason: r.Refused.Error()})
			continue
		}
		if !s.lock(r) && !s.contended {
			return s.pollLock()
		}
	}
	if s.cursor < len(ids) {
		return s.then((*Statement).lockPending)
	}
	return s.then((*Statement).commitClaim)
}

// mayClaim reports whether the statement sees a row as pending and due.
func (s *Statement) mayClaim(r *Row) bool {
	pending := r.Status == dispatcherd.Pending && r.since <= s.snapshot
	if s.table.Skip&CheckStatus != 0 {
		pending = r.Status == dispatcherd.Pending || r.Status == dispatcherd.Running
	}
	return pending && r.RunAt <= s.began && (r.permitted() && r.admits(s.me) || s.table.Skip&CheckPermit != 0)
}

// pollLock waits for a locked row for a short time, and then starts again with SKIP LOCKED.
func (s *Statement) pollLock() State {
	if s.polls++; s.polls < lockPolls {
		s.next = (*Statement).lockPending
		return Polling
	}
	s.unlock()
	s.contended, s.met, s.cursor, s.began, s.Claimed.Unclaimable = true, true, 0, 0, nil
	return s.then((*Statement).beginClaim)
}

func (s *Statement) commitClaim(now int64) State {
	t := s.table
	d := t.dispatcher(s.me)
	if s.allowed {
		t.commits++
		d.claims = append(d.claims, claimRow{s.token, t.commits, s.claim.IDs, s.claim.Sessions})
	}
	for _, r := range s.locked {
		t.observer.Claims(s, r)
		if r.Status == dispatcherd.Pending {
			t.dequeue(r)
		}
		at, _ := slices.BinarySearch(s.claim.IDs, r.ID)
		r.Status, r.Dispatcher, r.Token, r.Session, r.claimedAt = dispatcherd.Running, s.me, s.token, s.claim.Sessions[at], s.began
		r.Attempt++
		s.take(r, now)
	}
	if s.Claimed.Rows() == 0 && t.Skip&CheckLease == 0 && (!d.holdsLease() || d.epoch != s.epoch && t.Skip&CheckEpoch == 0) {
		s.Claimed.OldEpoch = d.holdsLease()
		s.epoch = d.epoch
		return s.done(contract.Refused)
	}
	return s.done(contract.OK)
}

// beginResolve raises the epoch under an exclusive lock, which waits for claims in flight.
// Then it reads the rows with the token.
func (s *Statement) beginResolve(int64) State {
	if s.table.Skip&CheckEpoch != 0 {
		return s.then((*Statement).readClaimed)
	}
	return s.lockAlone((*Statement).raiseEpoch)
}

func (s *Statement) raiseEpoch(int64) State {
	if d := s.table.dispatcher(s.me); !d.replaced {
		d.epoch++
		s.epoch = d.epoch
	}
	s.unlock()
	return s.then((*Statement).readClaimed)
}

func (s *Statement) readClaimed(now int64) State {
	for _, id := range s.claim.IDs {
		if r := s.table.rows[id]; r != nil && r.Status == dispatcherd.Running && r.Dispatcher == s.me && r.Token == s.token {
			s.take(r, now)
		}
	}
	return s.done(contract.OK)
}
