package actor

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// Operators pause types and drain workers.
//
// While the rows of a type are paused, the backlog does not know the type. So its lanes are not read, none of its rows is a candidate, and
// other decisions neither wait for it nor become slower. A reservation whose claim is not sent is given up. If a claim in flight wins rows
// of the type, they are released, which counts no attempt. Running jobs continue. The age of a job counts from its run_at also while its
// type is paused, so after the pause the oldest jobs go first. A paused job does not wait in the sense of the overtaking window.
//
// While the requests of a type are paused, they wait in their queues, which no decision looks at. A request is refused at once if it cannot
// start before its deadline: if the pause ends later, or without an end is known. A patient request waits as long as it would wait for a
// worker.
//
// A drained slot stays registered, but it gets no job and is no capacity. If only some of its types are drained, the slot is registered
// anew with the other types as soon as it has no job. If it gets types back, it serves the present ones until then.

// controls are what operators have set.
type controls struct {
	Controlled // the last event

	at      timing.Instant               // of the event
	paused  map[string]*pause            // by type
	drained map[string][]*contract.Drain // by worker
	ends    timing.Instant               // when the first pause ends
}

// pause is a pause of a type. nil = the type is not paused.
type pause struct {
	*contract.Pause

	since, until timing.Instant
}

// rows reports whether the rows of the type wait.
func (p *pause) rows() bool { return p != nil && p.Queued() }

// requests reports whether the requests of the type wait.
func (p *pause) requests() bool { return p != nil && p.Requests() }

// outlasts reports whether a request cannot start before its deadline, counted from its arrival; 0 = it has none.
func (p *pause) outlasts(arrival timing.Instant, deadline time.Duration) bool {
	return p.requests() && (p.until == timing.Never || deadline > 0 && p.until >= arrival.After(deadline))
}

// left returns the time until the end of the pause; 0 = it has no end.
func (p *pause) left(now timing.Instant) time.Duration {
	if p == nil || p.until == timing.Never {
		return 0
	}
	return msDuration(int64(max(1, p.until-now)))
}

func (ev Controlled) apply(c *Core) {
	former := c.controls
	c.controls = controls{ev, c.now, map[string]*pause{}, map[string][]*contract.Drain{}, timing.Never}
	types := map[string]*pause{} // that are paused, or were paused
	maps.Copy(types, former.paused)
	for i := range ev.Pauses {
		p := &pause{&ev.Pauses[i], c.now, timing.Never}
		if p.Until != nil {
			p.until = c.now.After(p.Until.Sub(ev.Clock))
		}
		if before := former.paused[p.Type]; before != nil {
			p.since = before.since
		}
		if p.until > c.now {
			c.controls.paused[p.Type], types[p.Type] = p, p
			c.controls.ends = min(c.controls.ends, p.until)
		}
	}
	for _, typ := range slices.Sorted(maps.Keys(types)) { // order-free: they are sorted
		c.setPause(typ)
	}
	for i := range ev.Drains {
		d := &ev.Drains[i]
		c.controls.drained[d.Worker] = append(c.controls.drained[d.Worker], d)
	}
	if len(former.drained)+len(c.controls.drained) == 0 {
		return
	}
	for _, s := range c.sortedSessions() {
		if len(former.drained[s.worker])+len(c.controls.drained[s.worker]) == 0 {
			continue
		}
		for _, ref := range s.slots {
			c.work += jobWork
			c.comply(ref)
		}
	}
}

// sortedSessions returns the sessions by id.
func (c *Core) sortedSessions() []*session {
	byID := func(a, b *session) int { return cmp.Compare(a.id, b.id) }
	return slices.SortedFunc(maps.Values(c.sessions), byID) // order-free: they are sorted
}

// Paused reports whether an operator has paused the rows or the requests of a type.
func (c *Core) Paused(typ string) bool { return c.controls.paused[typ] != nil }

// endPauses ends the pauses whose time has passed.
func (c *Core) endPauses() {
	if c.now >= c.controls.ends {
		ev := c.controls.Controlled
		ev.Clock = ev.Clock.Add(msDuration(int64(c.now - c.controls.at)))
		ev.apply(c)
	}
}

// setPause makes a type follow the controls.
func (c *Core) setPause(name string) {
	t, found := c.index.Lookup(name)
	if !found || int(t) >= len(c.types) || !c.types[t].known {
		return // know follows the controls
	}
	p := c.controls.paused[name]
	k := c.types[t]
	before := k.pause
	k.pause = p
	k.reasons.paused(c.now, p != nil)
	switch {
	case p.rows() == before.rows():
	case p.rows():
		c.backlog.TypeGone(t)
		for _, j := range slices.Clone(c.claims.next) {
			if j.Type == t {
				c.unreserve(j)
			}
		}
	default:
		c.backlog.TypeAppeared(t, c.shares[name])
		c.backlog.CapacityAppeared(t)
	}
	if !k.known { // the last reservation was on a slot that was withdrawn
		return
	}
	if p.requests() != before.requests() {
		k.urgent = len(k.startable()) > 0
		c.requesting.Set(t, k.urgent)
		if k.urgent {
			c.touch(t)
		}
		if k.pinned > 0 {
			for _, s := range c.sortedSessions() {
				c.touchPins(s)
			}
		}
	}
	c.watchAll(t)
}

// startable returns the queues of the requests that may start.
func (k *typeState) startable() requestQueues {
	if k.pause.requests() {
		return nil
	}
	return k.demand
}

// paused records that a type is paused from now on, or was until now.
func (w *typeWaits) paused(now timing.Instant, begins bool) {
	w.last[waitPaused] = now
	w.held |= 1 << waitPaused
	if begins {
		w.periods.add(waitPaused, now)
	} else {
		w.periods.add(unknownWait, now)
	}
}

// drainsOf returns the drains that mean the worker of a session.
func (c *Core) drainsOf(s *session) (list []*contract.Drain) {
	for _, d := range c.controls.drained[s.worker] {
		if d.Process == "" || d.Process == s.process {
			list = append(list, d)
		}
	}
	return list
}

// served returns the types that a slot of a session serves, of those that its worker offers.
func (c *Core) served(s *session, offered []string) []string {
	for _, d := range c.drainsOf(s) {
		offered = slices.DeleteFunc(slices.Clone(offered), func(typ string) bool { return d.Types == nil || slices.Contains(d.Types, typ) })
	}
	return offered
}

// comply makes a slot follow the drains of its worker. A slot that the worker has withdrawn, or that is about to be registered anew, is
// left as it is. If the slot is reserved for a job that it must not run any more, the job is preempted.
func (c *Core) comply(ref slotindex.Ref) {
	s := c.slots[ref]
	if c.index.IsDraining(ref) && !s.held {
		return
	}
	has := c.typeNames(ref)
	offered := s.offered
	if offered == nil {
		offered = has
	}
	served := c.served(s.session, offered)
	s.next = nil
	if !s.held && slices.Equal(served, has) || s.held && len(served) == 0 {
		return
	}
	if j := s.job; j != nil && j.state.reservesSlot() && !slices.Contains(served, c.index.Name(j.Type)) {
		c.preempt(j)
	}
	switch {
	case len(served) == 0:
		c.suspend(ref)
	case slices.Equal(served, has):
		c.restore(ref)
	default:
		s.next = &dispatcherd.Slot{ID: c.index.SlotID(ref), Number: s.number, Types: offered}
		if s.job == nil || slices.ContainsFunc(has, func(typ string) bool { return !slices.Contains(served, typ) }) {
			c.retire(ref)
		}
	}
}

// suspend takes a slot out of service that stays registered.
func (c *Core) suspend(ref slotindex.Ref) {
	c.retire(ref)
	c.slots[ref].held = true
}

// typeNames returns the names of the types that a slot is registered with.
func (c *Core) typeNames(ref slotindex.Ref) []string {
	of := c.index.TypesOf(ref)
	names := make([]string, len(of))
	for i, t := range of {
		names[i] = c.index.Name(t)
	}
	return names
}

// restore puts a drained slot into service again.
func (c *Core) restore(ref slotindex.Ref) {
	s := c.slots[ref]
	if s.held = false; s.retired {
		s.retired = false
		c.quotas.Slots.Add(s.session.user, 1)
		c.retired = slices.DeleteFunc(c.retired, func(r slotindex.Ref) bool { return r == ref })
	}
	c.index.Restore(ref)
	c.offer(ref)
	if s.job == nil {
		c.release(ref)
	}
}

// WorkerOf returns the worker of a session and its process; "" = the session has ended.
func (c *Core) WorkerOf(id dispatcherd.SessionID) (worker, process string) {
	if s := c.sessions[id]; s != nil {
		worker, process = s.worker, s.process
	}
	return worker, process
}

// Controls returns the version of the controls that the Core follows, and the drains of connected workers, by contract.Drain.Key: how many
// jobs of the drained types have not ended there.
func (c *Core) Controls() (version int64, running map[string]int) {
	if len(c.controls.drained) == 0 {
		return c.controls.Version, nil
	}
	running = map[string]int{}
	for _, s := range c.sessions { // order-free: only sums
		for _, d := range c.drainsOf(s) {
			running[d.Key()] += 0 // also without a job
			for _, ref := range s.slots {
				if j := c.slots[ref].job; j != nil && len(c.served(s, []string{c.index.Name(j.Type)})) == 0 {
					running[d.Key()]++
				}
			}
		}
	}
	for _, j := range c.orders.jobs {
		for _, d := range c.controls.drained[j.worker] {
			if j.state.isDetached() {
				running[d.Key()]++
			}
		}
	}
	return c.controls.Version, running
}
