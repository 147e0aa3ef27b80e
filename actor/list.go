package actor

import (
	"cmp"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// ListSlots lists the slots that support a type, or all slots if typ is "", in the order of their ids. A slot that is
// registered or removed meanwhile may be missing.
func ListSlots(typ string, asker Asker) []contract.Slot {
	list, _ := inPortions(asker, func(c *Core, p *portions[contract.Slot]) {
		for ref := slotindex.Ref(0); int(ref) < len(c.slots) && p.spend(1); ref++ {
			t, known := c.index.Lookup(typ)
			if c.slots[ref].session != nil && (typ == "" || known && c.index.Supports(ref, t)) {
				p.found = append(p.found, c.slotInfo(ref, nil))
				p.left -= jobWork + len(c.index.TypesOf(ref))
			}
		}
	})
	slices.SortFunc(list, func(a, b contract.Slot) int { return cmp.Compare(a.Slot, b.Slot) })
	return list
}

// slotInfo describes a slot. types are the names of its types; nil = they are looked up.
func (c *Core) slotInfo(ref slotindex.Ref, types []string) contract.Slot {
	s := c.slots[ref]
	info := contract.Slot{
		Slot: c.index.SlotID(ref), Session: s.session.id, Worker: s.session.worker, Number: s.number,
		Types: types, State: "free", Draining: c.index.IsDraining(ref),
	}
	if types == nil {
		info.Types = c.typeNames(ref)
	}
	if s.held {
		info.State = "drained"
		if s.offered != nil { // some types were drained before all of them
			info.Types = s.offered
		}
	}
	for _, d := range c.drainsOf(s.session) {
		info.Drain = d
	}
	if j := s.job; j != nil {
		info.State, info.Job, info.JobType, info.Attempt = "busy", j.id, c.index.Name(j.Type), j.attempt
		if j.state.claimPending() {
			info.State = "reserved"
		}
		c.describeRun(&info, j)
	}
	return info
}

// describeRun adds how long a job runs and may run.
func (c *Core) describeRun(info *contract.Slot, j *job) {
	info.Stopping = j.stop.String()
	if j.sentAt != notSent {
		info.Busy = contract.Seconds(msDuration(int64(c.now - j.sentAt)))
	}
	if j.alarm != 0 {
		info.Left = contract.Seconds(msDuration(max(1, int64(j.deadline-c.now))))
	}
}

// RunsOn returns where a job in hand was sent; 0 = it was not sent.
func (c *Core) RunsOn(id dispatcherd.JobID) (slot dispatcherd.SlotID, attempt dispatcherd.Attempt, worker string) {
	if j := c.jobs[id]; j != nil && j.sentAt != notSent {
		return j.slotID, j.attempt, j.worker
	}
	return 0, 0, ""
}

// Capacities returns the number of registered slots, free or busy, by type.
func Capacities(asker Asker) map[string]int {
	capacities := map[string]int{}
	for _, t := range ListTypes(asker) {
		capacities[t.Type] = t.Capacity
	}
	return capacities
}

// ListTypes lists the known types in the order of their numbers. A type that appears or
// disappears meanwhile may be missing.
func ListTypes(asker Asker) []contract.Type {
	list, _ := inPortions(asker, func(c *Core, p *portions[contract.Type]) {
		for t := slotindex.TypeID(0); int(t) < len(c.types) && p.spend(1); t++ {
			free := 0
			for i := 0; c.types[t].known && i < c.index.Classes(t); i++ {
				free += c.index.FreeAt(t, i)
				if !p.spend(1) {
					return
				}
			}
			if c.types[t].known {
				p.found = append(p.found, c.typeInfo(t, free))
				p.left -= 2 * jobWork
			}
		}
	})
	return list
}

// typeInfo describes a type with a number of free slots.
func (c *Core) typeInfo(t slotindex.TypeID, free int) contract.Type {
	info := contract.Type{Type: c.index.Name(t), Capacity: c.index.Capacity(t), Free: free}
	info.OtherSlots = c.otherCapacity[info.Type]
	oldest := int64(0)
	for lane := range c.backlog.Waiting(t) {
		if keys := c.backlog.State(lane).Keys; len(keys) > 0 {
			info.Known += len(keys)
			oldest = max(oldest, c.backlog.AgeMS(keys[0]))
		}
	}
	for _, q := range c.types[t].demand {
		info.Requests += len(q.requests)
		oldest = max(oldest, int64(c.now-q.requests[0].request.arrival))
	}
	info.Requests += int(c.types[t].pinned)
	info.Oldest = contract.Seconds(msDuration(oldest))
	return info
}

// ListRequests lists the waiting on-demand requests in memory by descending ids: mostly the
// oldest first. A request that arrives or starts meanwhile may be missing.
func ListRequests(asker Asker) []contract.WaitingRequest {
	list, _ := inPortions(asker, func(c *Core, p *portions[contract.WaitingRequest]) {
		for t := 0; t < len(c.types) && p.spend(1); t++ {
			for _, q := range slices.Clone(c.types[t].demand) {
				for j := range q.inOrder() {
					age := contract.Seconds(msDuration(int64(c.now - j.request.arrival)))
					p.found = append(p.found, contract.WaitingRequest{ID: j.id, Type: c.index.Name(q.lane.Type), Priority: j.Priority, Age: age})
					if !p.spend(jobWork) {
						return
					}
				}
			}
		}
	})
	slices.SortFunc(list, func(a, b contract.WaitingRequest) int { return cmp.Compare(b.ID, a.ID) })
	return list
}

// Stats counts events since the start. The counters never decrease.
type Stats struct {
	Placed        uint64 `metric:"placed"`           // placements
	Misses        uint64 `metric:"waited_for_fetch"` // rounds that waited for a fetch
	Won           uint64 `metric:"won"`              // rows claimed
	Lost          uint64 `metric:"lost"`             // rows that another dispatcher had
	Unknown       uint64 `metric:"unknown"`          // claims without an answer
	Crashed       uint64 `metric:"crashed"`
	Adopted       uint64 `metric:"adopted"`       // executions of other dispatchers that continue here
	Left          uint64 `metric:"handed_over"`   // executions handed over to the next dispatcher
	Detached      uint64 `metric:"detached"`      // executions whose session ended for a reason outside the job
	TimedOut      uint64 `metric:"timed_out"`     // attempts that exceeded their timeout
	HungUp        uint64 `metric:"disconnected"`  // sessions ended because a cancel was ignored
	Stale         uint64 `metric:"stale"`         // reports rejected because the attempt is no longer the current one
	Preempted     uint64 `metric:"preempted"`     // queued jobs whose slot another job got, or an operator drained
	Spawned       uint64 `metric:"spawned"`       // children inserted
	SpawnsRefused uint64 `metric:"spawn_refused"` // spawns refused
	Violations    uint64 `metric:"violation"`     // impossible transitions of jobs
	Deferred      uint64 `metric:"deferred"`      // times that Postgres did not record an end although it recorded others
	StaleBatches  uint64 `metric:"stale_batch"`   // fetched batches discarded after too many lost claims
	SetAside      uint64 `metric:"set_aside"`     // rows set aside because Postgres refused to claim them
	Passed        uint64 // placements that an older job would have preceded without expected durations
	Moved         uint64 `metric:"moved"`   // rows released because an operator had changed their type or priority
	LogCuts       uint64 `metric:"log_cut"` // log messages for which the share of a user was too small
}

// Gauges are current values. The counters since the start are in Stats.
type Gauges struct {
	Slots          int  `metric:"slots"`      // registered slots
	Free           int  `metric:"slots_free"` // the free ones among them
	Reserved       int  // of the registered slots, those of jobs whose claim is not answered
	SlotTypes      int  `metric:"slot_types"` // types, added up over the registered slots
	Sessions       int  `metric:"sessions"`
	Types          int  `metric:"types"`            // known types
	Requests       int  `metric:"requests_waiting"` // on-demand requests waiting
	Cached         int  `metric:"candidates"`       // candidates read ahead
	InHand         int  `metric:"in_hand"`          // jobs in hand: reserved, running or ending, and waiting requests
	Unrecorded     int  `metric:"unrecorded"`       // ended attempts that are not recorded in Postgres
	Spawns         int  `metric:"spawns"`           // spawns without an answer
	Held           int  `metric:"held"`             // of these, those that Postgres did not record although it answered
	ClaimsUnderWay int  `metric:"claims_in_flight"`
	Loading        int  `metric:"payloads_loading"` // claimed rows whose payload is not read yet
	Aside          int  `metric:"set_aside"`        // rows that Postgres refused to claim, and that are remembered
	LogBytes       int  `metric:"job_log_bytes"`    // of the logs of attempts whose end is not recorded
	CircuitOpen    bool // Postgres does not answer some kind of statement
	// Largest is what the user with the largest share holds of each bound that users share, by the name of the metric.
	Largest map[string]int
}

// Gauges returns the current numbers.
func (c *Core) Gauges() Gauges {
	return Gauges{
		Slots:          c.index.Len(),
		Free:           c.index.Free(),
		Reserved:       c.reserved,
		SlotTypes:      c.quotas.SlotTypes.Held(),
		Sessions:       len(c.sessions),
		Requests:       c.quotas.Requests.Held(),
		Cached:         c.backlog.Cached(),
		InHand:         len(c.jobs),
		Unrecorded:     c.ends.unrecorded,
		Spawns:         c.quotas.Spawns.Held(),
		Held:           len(c.ends.held.why),
		ClaimsUnderWay: len(c.claims.inFlight),
		Loading:        len(c.claims.loading),
		Aside:          c.countAside(),
		LogBytes:       c.quotas.Logs.Held(),
		CircuitOpen:    c.failing(),
		Types:          c.quotas.Types.Held(),
		Largest:        c.quotas.largest(),
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

// Idle reports whether no job is in hand, none is about to be adopted, and no
// caller waits.
func (c *Core) Idle() bool { return c.Unended() == 0 }

// Unended returns the number of jobs in hand and of those that are about to be adopted.
func (c *Core) Unended() int { return len(c.jobs) + len(c.adopts.byJob) }

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

// Durations returns what is known of durations.
func (c *Core) Durations() *Durations { return c.durations }

// ExpectedDurations returns what was learned of types, at most of most of them.
func (c *Core) ExpectedDurations(most int) []Expectation {
	return c.durations.List(most, c.now)
}
