package claimfake

import (
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// join adds a run of a dispatcher. The former run of its client is lost.
func (s *Statement) join(now int64) State {
	t := s.table
	t.giveUp(s.me)
	d := s.begin
	d.beatAt = now
	t.dispatchers = append(t.dispatchers, &d)
	s.Joined = int32(len(t.dispatchers))
	t.present = append(t.present, s.Joined)
	return s.done(contract.OK)
}

// beginHeartbeat follows claim.Store.Heartbeat: it renews the lease of this dispatcher
// and declares silent dispatchers lost. It reads capacity and cancels,
// and removes the records of claims. A second statement releases the rows of lost
// dispatchers.
func (s *Statement) beginHeartbeat(int64) State {
	if d := s.table.dispatcher(s.me); d.exclusive != nil {
		return s.block(d.exclusive)
	}
	return s.then((*Statement).commitHeartbeat)
}

func (s *Statement) commitHeartbeat(now int64) State {
	s.renew(now)
	lost := s.declareLost()
	s.takeRole(now)
	s.processCancels()
	d := s.table.dispatcher(s.me)
	d.claims = slices.DeleteFunc(d.claims, func(c claimRow) bool { return slices.Contains(s.forget, c.token) })
	if !s.Heartbeat.LeaseLost {
		s.unheld = s.findUnheld()
	}
	if s.table.Skip&CheckRelease == 0 {
		s.lockRunning(lost)
	}
	if len(s.unheld)+len(s.locked) == 0 {
		return s.done(contract.OK)
	}
	return s.then((*Statement).releaseAll)
}

// renew writes the heartbeat of this dispatcher and reads what the other dispatchers wrote.
func (s *Statement) renew(now int64) {
	t := s.table
	d := t.dispatcher(s.me)
	if s.Heartbeat.LeaseLost = !d.holdsLease() || d.beats < s.beat.OldestBeat || d.beats > s.beat.Beat; !s.Heartbeat.LeaseLost {
		d.beatAt, d.beats, d.capacity = now, s.beat.Beat, s.beat.Capacity
		t.observer.Renews(s.me)
	}
	others := map[string]contract.Others{}
	for _, id := range t.present {
		o := t.dispatcher(id)
		if id == s.me || o.lost {
			continue
		}
		s.Heartbeat.Others = append(
			s.Heartbeat.Others,
			contract.Heard{ID: id, BeatAt: o.beatAt, Lease: time.Duration(o.lease) * time.Microsecond},
		)
		for name, n := range o.capacity { // order-free: one sum for each type
			others[name] = add(others[name], n, id < s.me)
		}
	}
	s.Heartbeat.Shares = map[string]contract.Share{}
	for name, o := range others { // order-free: one element for each type
		if n := o.SmallerIDs + o.LargerIDs; n > 0 {
			if s.Heartbeat.OtherCapacity == nil {
				s.Heartbeat.OtherCapacity = map[string]int{}
			}
			s.Heartbeat.OtherCapacity[name] = n
		}
		if share := contract.ShareOf(s.beat.Capacity[name], o); !share.All() {
			s.Heartbeat.Shares[name] = share
		}
	}
}

// add adds the slots of a dispatcher.
func add(o contract.Others, slots int, smaller bool) contract.Others {
	if smaller {
		o.SmallerIDs += slots
	} else {
		o.LargerIDs += slots
	}
	if slots > 0 && (o.Least == 0 || slots < o.Least) {
		o.Least = slots
	}
	return o
}

// declareLost declares silent dispatchers lost that have sent no heartbeat meanwhile. Like
// SKIP LOCKED, it skips a dispatcher with a claim in flight until the next heartbeat. It
// returns all lost dispatchers.
func (s *Statement) declareLost() (lost []int32) {
	t := s.table
	for _, silent := range s.beat.Silent {
		d := t.dispatcher(silent.ID)
		if silent.ID != s.me && !d.lost && d.shares == 0 && d.exclusive == nil && d.beatAt == silent.BeatAt {
			d.lost, d.subscribed = true, false
			t.observer.DeclaresLost(silent.ID)
		}
	}
	for _, id := range t.present {
		if t.dispatcher(id).lost {
			lost = append(lost, id)
		}
	}
	if len(lost) > 0 {
		s.Heartbeat.Waiting |= contract.DispatcherLost
	}
	return lost
}

// takeRole makes the dispatcher the controller if the former one is not alive.
func (s *Statement) takeRole(now int64) {
	t := s.table
	c := &t.controller
	s.Heartbeat.Clock = time.UnixMicro(now)
	if len(t.flows.ends) > 0 && t.Skip&CheckEnds == 0 {
		s.Heartbeat.Waiting |= contract.EndsWait
	}
	if len(t.edited) > 0 || slices.ContainsFunc(t.keyed, (*Row).waits) {
		s.Heartbeat.Waiting |= contract.KeysWait
	}
	if s.Heartbeat.LeaseLost {
		return
	}
	if !t.dispatcher(c.dispatcher).holdsLease() {
		c.dispatcher = s.me
		c.term++
	}
	if c.dispatcher == s.me {
		s.Heartbeat.Term = c.term
	}
}

// processCancels processes the cancel requests. It adds the jobs that run under this
// dispatcher to the result. It cancels the jobs that are pending again, as the service of package operation does soon
// after the heartbeat of the controller.
func (s *Statement) processCancels() {
	t := s.table
	t.cancels = slices.DeleteFunc(t.cancels, func(id dispatcherd.JobID) bool {
		r := t.rows[id]
		switch {
		case r.Status == dispatcherd.Running:
			if r.Dispatcher == s.me {
				s.Heartbeat.Cancels = append(s.Heartbeat.Cancels, id)
			}
			return false
		case r.Status == dispatcherd.Pending && r.lock != nil:
			return false
		case r.Status == dispatcherd.Pending:
			t.dequeue(r)
			t.close(r, dispatcherd.Cancelled)
		}
		return true
	})
	slices.Sort(s.Heartbeat.Cancels)
}

// lockRunning locks the running rows in the claims of some dispatchers. It does not
// wait for locks. It reports whether the statement holds a lock.
func (s *Statement) lockRunning(dispatchers []int32) bool {
	for _, id := range dispatchers {
		for _, c := range s.table.dispatcher(id).claims {
			for _, job := range c.ids {
				if r := s.table.rows[job]; r != nil && r.Status == dispatcherd.Running && r.Dispatcher == id {
					s.lock(r)
				}
			}
		}
	}
	return len(s.locked) > 0
}

// unheldRow is a row that runs under the dispatcher of a heartbeat, but not in its client.
type unheldRow struct {
	id      dispatcherd.JobID
	attempt dispatcherd.Attempt
	token   int64
}

// findUnheld follows ownRowsSQL: it returns the rows that the claims of this dispatcher
// name and that its client does not run.
func (s *Statement) findUnheld() (list []unheldRow) {
	t := s.table
	for _, c := range t.dispatcher(s.me).claims {
		for _, id := range c.ids {
			r := t.rows[id]
			if r != nil && r.Status == dispatcherd.Running && r.Dispatcher == s.me && r.Token == c.token && !s.holds(id, r.Token) {
				list = append(list, unheldRow{id, r.Attempt, r.Token})
			}
		}
	}
	return list
}

// releaseAll releases the rows of lost dispatchers, and then the unheld rows that have not
// changed since.
func (s *Statement) releaseAll(now int64) State {
	t := s.table
	for _, u := range s.unheld {
		r := t.rows[u.id]
		if r.lock != nil || r.Status != dispatcherd.Running || r.Dispatcher != s.me || r.Attempt != u.attempt || r.Token != u.token {
			continue
		}
		t.observer.ReleasesUnheld(r)
		r.note(claim.WhyUnheld)
		t.enqueue(r)
		s.Heartbeat.Unheld = append(s.Heartbeat.Unheld, u.id)
	}
	slices.Sort(s.Heartbeat.Unheld)
	return s.release(now)
}

// release releases the locked rows. It counts a crash unless the dispatcher left.
func (s *Statement) release(int64) State {
	t := s.table
	t.commits++
	released := 0
	for _, r := range s.locked {
		if r.Refused != nil {
			continue
		}
		released++
		crashes, reason := int32(1), "the dispatcher that ran it was lost"
		if t.dispatcher(r.Dispatcher).leaving {
			crashes, reason = 0, ""
		}
		t.observer.Releases(s, r, crashes)
		r.Crashes += crashes
		r.note(reason)
		t.enqueue(r)
	}
	s.Released = released
	if released > 0 && t.Subscribed(0) {
		t.observer.Notified()
	}
	return s.done(contract.OK)
}

// beginLeave follows claim.Store.Leave.
func (s *Statement) beginLeave(int64) State { return s.lockAlone((*Statement).commitLeave) }

func (s *Statement) commitLeave(int64) State {
	d := s.table.dispatcher(s.me)
	d.lost, d.leaving, d.subscribed = true, true, false
	s.unlock()
	s.lockRunning([]int32{s.me})
	return s.then((*Statement).release)
}
