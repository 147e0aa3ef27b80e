package actor

import (
	"cmp"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// SlotInfo describes the current state of a slot.
type SlotInfo struct {
	ID       dispatcherd.SlotID
	Session  dispatcherd.SessionID
	Worker   string
	Number   int32
	Types    []string
	State    string              // "free", "reserved" or "busy"
	Draining bool                // takes no more jobs
	Job      dispatcherd.JobID   // 0 while free
	JobType  string              // "" while free
	Attempt  dispatcherd.Attempt // 0 while free or reserved
	Busy     time.Duration       // how long the attempt has run
	Left     time.Duration       // time until the timeout, or until the worker must have stopped the job; 0 = without a bound
	Stopping string              // why the job is being stopped; "" = it is not
}

func sortSlots(list []SlotInfo) {
	slices.SortFunc(list, func(a, b SlotInfo) int { return cmp.Compare(a.ID, b.ID) })
}

// SlotsFrom lists the slots from a Ref on, as many as Limits.StepWork allows. It
// returns the next Ref.
func (c *Core) SlotsFrom(ref slotindex.Ref) (list []SlotInfo, next slotindex.Ref) {
	for work := 0; int(ref) < c.slots.Len() && work < c.cfg.Limits.StepWork; ref++ {
		work++
		if c.slots.At(ref).session != nil {
			list = append(list, c.slotInfo(ref))
			work += jobWork + len(c.index.TypesOf(ref))
		}
	}
	return list, ref
}

func (c *Core) slotInfo(ref slotindex.Ref) SlotInfo {
	s := c.slots.At(ref)
	info := SlotInfo{
		ID: c.index.SlotID(ref), Session: s.session.id, Worker: s.session.worker, Number: s.number,
		State: "free", Draining: c.index.IsDraining(ref),
	}
	for _, t := range c.index.TypesOf(ref) {
		info.Types = append(info.Types, c.index.Name(t))
	}
	if j := s.job; j != nil {
		info.State, info.Job, info.JobType, info.Attempt = "busy", j.id, c.index.Name(j.typ), j.attempt
		if j.state.ClaimPending() {
			info.State = "reserved"
		}
		c.describeRun(&info, j)
	}
	return info
}

// describeRun adds how long a job runs and may run.
func (c *Core) describeRun(info *SlotInfo, j *job) {
	info.Stopping = j.stop.String()
	if j.sentAt != notSent {
		info.Busy = msDuration(int64(c.now - j.sentAt))
	}
	if j.alarm != 0 {
		info.Left = msDuration(max(1, int64(j.deadline-c.now)))
	}
}

// Stopping returns why a job in hand is being stopped, or "".
func (c *Core) Stopping(id dispatcherd.JobID) string {
	if j := c.jobs.Get(id); j != nil {
		return j.stop.String()
	}
	return ""
}

// TypeInfo describes the current state of a type.
type TypeInfo struct {
	Name     string
	Capacity int           // registered slots that support it, free or busy
	Free     int           // of these, the free ones
	Known    int           // number of candidates
	Requests int           // number of waiting on-demand requests
	Oldest   time.Duration // age of the oldest waiting job known here; 0 if none waits
}

// Types lists the known types in the order of their numbers.
func (c *Core) Types() (list []TypeInfo) {
	for next := 0; next < len(c.types); {
		list, next = c.TypesFrom(next, list)
	}
	return list
}

// Capacities returns the number of registered slots, free or busy, by type.
func (c *Core) Capacities() map[string]int {
	capacities := make(map[string]int, c.known)
	for t, k := range c.types {
		if id := slotindex.TypeID(t); k.known {
			capacities[c.index.Name(id)] = c.index.Capacity(id)
		}
	}
	return capacities
}

// OtherCapacity returns the number of slots of other dispatchers by type, according to
// the last heartbeats. Neither the Core nor the caller changes the map.
func (c *Core) OtherCapacity() map[string]int { return c.otherCapacity }

// TypesFrom appends the known types from a number on, as many as Limits.StepWork
// allows. It returns the number of the next type.
func (c *Core) TypesFrom(from int, list []TypeInfo) ([]TypeInfo, int) {
	for work := 0; from < len(c.types) && work < c.cfg.Limits.StepWork; from++ {
		t, k := from, c.types[from]
		work++
		if !k.known {
			continue
		}
		id := slotindex.TypeID(t)
		work += jobWork + c.index.Classes(id)
		info := TypeInfo{Name: c.index.Name(id), Capacity: c.index.Capacity(id), Free: c.index.FreeFor(id)}
		oldest := int64(0)
		for p := range dispatcherd.MaxPriority + 1 {
			for _, lane := range c.backlog.Lanes(id, p) {
				if keys := c.backlog.State(lane).Keys; len(keys) > 0 {
					info.Known += len(keys)
					oldest = max(oldest, c.backlog.AgeMS(keys[0]))
				}
			}
		}
		for p := range k.demand {
			for j := k.demand[p].first; j != nil; j = j.request.next {
				info.Requests++
				oldest = max(oldest, int64(c.now-j.request.arrival))
			}
		}
		info.Oldest = msDuration(oldest)
		list = append(list, info)
	}
	return list, from
}

// Gauges are current values. The counters since the start are in Stats.
type Gauges struct {
	Slots, Free    int // registered slots; the free ones among them
	Reserved       int // of the registered slots, those of jobs whose claim is not answered
	SlotTypes      int // types, added up over the registered slots
	Sessions       int
	Requests       int // on-demand requests waiting
	Cached         int // candidates read ahead
	InHand         int // jobs in hand: reserved, running or ending, and waiting requests
	Unrecorded     int // ended attempts that are not recorded in Postgres
	Held           int // of these, those that Postgres did not record although it answered
	ClaimsUnderWay int
	Loading        int  // claimed rows whose payload is not read yet
	Aside          int  // rows that Postgres refused to claim, and that are remembered
	CircuitOpen    bool // Postgres does not answer some kind of statement
}

// Gauges returns the current numbers.
func (c *Core) Gauges() Gauges {
	return Gauges{
		Slots: c.index.Len(), Free: c.index.Free(), Reserved: c.reserved, SlotTypes: c.slotTypes, Sessions: len(c.sessions), Requests: c.requests,
		Cached: c.backlog.Cached(), InHand: c.jobs.Len(), Unrecorded: c.ends.unrecorded, Held: c.ends.held.Len(),
		ClaimsUnderWay: len(c.claims.inFlight), Loading: len(c.claims.loading), Aside: c.claims.aside.Len(), CircuitOpen: c.failing(),
	}
}

// failing reports whether some kind of statement has failed recently and has not
// succeeded since then.
func (c *Core) failing() bool {
	return c.backlog.Failing() || c.claims.breaker.Failing(c.now) || c.ends.breaker.Failing(c.now) || c.adopts.breaker.Failing(c.now)
}

// LastScan returns the duration of the last full scan of the lanes and the time
// since its end. Both are 0 before the end of the first scan.
func (c *Core) LastScan() (took, age time.Duration) { return c.backlog.LastScan() }

// Len returns the number of registered slots.
func (c *Core) Len() int { return c.index.Len() }

// Idle reports whether no job is in hand, none is about to be adopted, and no
// caller waits.
func (c *Core) Idle() bool {
	return c.jobs.Len() == 0 && len(c.adopts.byJob) == 0 && len(c.adopts.dropped) == 0
}

// Adopting reports whether the outcome of some resume offer is unknown. The update
// of a recorded fingerprint does not count, because the row belongs to this
// dispatcher.
func (c *Core) Adopting() bool {
	for _, p := range c.adopts.byJob { // order-free: existence only
		if p.renews == 0 {
			return true
		}
	}
	return false
}

// Draining reports whether the dispatcher is about to stop.
func (c *Core) Draining() bool { return c.draining }
