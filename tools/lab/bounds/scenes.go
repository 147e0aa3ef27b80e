package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/shell"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// scene drives one bound to its limit.
type scene struct {
	name string
	play func(*driver)
}

var (
	core    = actor.DefaultConfig().Limits
	session = workerproto.Limits{}.WithDefaults()
	types   = names(core.Types)
)

func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("type-%05d", i)
	}
	return list
}

// sets returns n sets of size types, all of them different.
func sets(n, size, from int) [][]string {
	all := make([][]string, n)
	for i := range all {
		left := (from + i) % (size + 1)
		all[i] = slices.Delete(slices.Clone(types[:size+1]), left, left+1)
	}
	return all
}

// equal returns n times the same set.
func equal(n int, set []string) [][]string {
	all := make([][]string, n)
	for i := range all {
		all[i] = set
	}
	return all
}

// slotTypes is the bound of the sum of slots times types of a session.
const slotTypes = 1_000_000

var scenes = []scene{
	{"slots × types of one session, 4,096 types", func(d *driver) { wide(d, 4096, 0) }},
	{"slots × types of one session, 100 types", func(d *driver) { wide(d, 100, 0) }},
	{"slots × types, all slots busy", func(d *driver) { wide(d, 4096, 1) }},
	{"slots × types, 100 types, all slots busy", func(d *driver) { wide(d, 100, 1) }},
	{"slots × types of all sessions", all},
	{"slots of all sessions, all sets different", differentSets},
	{"sessions", sessions},
	{"running jobs, lease lost", func(d *driver) { running(d, actor.Disowned{}) }},
	{"running jobs, drained and handed over", func(d *driver) { running(d, actor.Drained{}, actor.HandedOver{}) }},
	{"running jobs, drained and interrupted", func(d *driver) { running(d, actor.Drained{}, actor.Interrupted{}) }},
	{"running jobs, all cancelled", cancelAll},
	{"slots of one session, requests running", lostRequests},
	{"resume offers undecided, drained", offers},
	{"resume offers undecided, sessions end", offersOfEndedSessions},
	{"requests waiting for a session", requests},
	{"requests at their deadline", deadlines},
	{"rows of one fetch", rows},
	{"rows per batch", batches},
	{"ends per batch", ends},
	{"types, shares change", shares},
	{"slots and types, listed", lists},
	{"all lanes, a row explained", explained},
	{"slots of one type, all sets different, explained", differentClasses},
	{"requests of one type, ranked", ranks},
	{"requests of one type, capacity wait", capacityWaits},
	{"pending types, one versatile slot each", pendingTypes},
}

// wide registers sessions of slots with different sets and removes one of them.
func wide(d *driver, size int, jobs int) {
	n := min(slotTypes/size, session.MaxSlots)
	d.pending = lanes(jobs * n)
	d.register(1, sets(n, size, 0))
	d.finishWork()
	d.register(2, sets(n, size, n))
	d.finishWork()
	d.release()
	d.finishWork()
	d.unregister(1)
	d.step("withdrew", actor.Withdrew{Session: 2})
	d.finishWork()
}

// lanes returns the rows of the first type: n rows, then none.
func lanes(n int) func(contract.LaneQuery) []contract.Key {
	next := int64(0)
	return func(q contract.LaneQuery) (keys []contract.Key) {
		if q.Type != types[1] || q.Priority != 0 {
			return nil
		}
		if q.After == (contract.Key{}) && next > 0 {
			return nil
		}
		for len(keys) < q.Limit && int(next) < n {
			next++
			keys = append(keys, contract.Key{RunAt: 1_000_000, ID: dispatcherd.JobID(next)})
		}
		return keys
	}
}

// all fills the dispatcher with slots × types and removes the oldest session.
func all(d *driver) {
	const size = 1000
	n := slotTypes / size
	for s := range 4 {
		d.register(dispatcherd.SessionID(s+1), sets(n, size, s*n))
		d.finishWork()
	}
	d.unregister(1)
}

func sessions(d *driver) {
	for s := range session.MaxConnections {
		d.register(dispatcherd.SessionID(s+1), equal(core.Slots/session.MaxConnections, types[s%len(types):][:1]))
	}
	d.finishWork()
	d.step("drained", actor.Drained{})
}

// offers drains while many sessions offer to resume jobs.
func offers(d *driver) {
	offer(d)
	d.step("drained", actor.Drained{})
	d.finishWork()
}

// offersOfEndedSessions ends the oldest and the newest session with resume offers.
func offersOfEndedSessions(d *driver) {
	offer(d)
	d.step("unregistered", actor.Unregistered{Session: 1})
	d.unregister(dispatcherd.SessionID(session.MaxConnections))
}

// offer registers sessions that offer to resume jobs, as many as there may be slots.
func offer(d *driver) {
	for s := range session.MaxConnections {
		ev := actor.Registered{Session: dispatcherd.SessionID(s + 1), Worker: "w"}
		for range core.Slots / session.MaxConnections {
			d.slots++
			ev.Offers = append(ev.Offers, actor.ResumeOffer{
				Slot: dispatcherd.Slot{ID: d.slots, Number: int32(d.slots), Types: types[:1]},
				Job:  dispatcherd.JobID(d.slots), Attempt: 1, From: 1 << 16,
			})
		}
		shell.Register(func(ev actor.Event) { d.step("registered", ev) }, ev, shell.Portion)
	}
}

func requests(d *driver) {
	for i := range core.Requests {
		d.step("requested", actor.Requested{Job: -dispatcherd.JobID(i + 1), Type: types[i%core.Types], Wait: true})
	}
	half := core.Types / 4
	var sets [][]string
	for i := range session.MaxSlots {
		sets = append(sets, types[i%half*2:][:2])
	}
	d.register(1, sets)
	d.finishWork()
	d.release()
	d.finishWork()
	d.unregister(1)
}

func lostRequests(d *driver) {
	d.register(1, equal(session.MaxSlots, types[:10]))
	d.finishWork()
	for i := range core.Requests {
		d.step("requested", actor.Requested{Job: -dispatcherd.JobID(i + 1), Type: types[i%10], Wait: true})
	}
	d.finishWork()
	d.unregister(1)
	d.register(2, equal(session.MaxSlots, types[:10]))
	d.finishWork()
}

func deadlines(d *driver) {
	for i := range core.Requests {
		d.step("requested", actor.Requested{Job: -dispatcherd.JobID(i + 1), Type: types[i%core.Types], Wait: true, Deadline: time.Second})
	}
	d.now += 1000
	d.step("tick", actor.Tick{})
	d.finishWork()
}

// rows ends jobs until a fetch returns rows of as many lanes as a fetch may have.
func rows(d *driver) {
	next := int64(0)
	d.pending = func(q contract.LaneQuery) (keys []contract.Key) {
		for range q.Limit {
			next++
			keys = append(keys, contract.Key{RunAt: 1_000_000, ID: dispatcherd.JobID(next)})
		}
		return keys
	}
	d.register(1, equal(session.MaxSlots, types[:200]))
	for range 10_000 {
		switch {
		case d.rows >= 32*actor.DefaultConfig().LanesPerFetch:
			return
		case len(d.answers) > 0:
			ev := d.answers[0]
			d.answers = d.answers[1:]
			d.step(nameOf(ev), ev)
		case len(d.running) > 8192:
			d.release()
		default:
			d.now++
			d.step("tick", actor.Tick{})
		}
	}
	panic(fmt.Sprintf("no fetch was full; the largest had %d rows", d.rows))
}

func batches(d *driver) {
	d.pending = lanes(100_000)
	for s := range 20 {
		d.register(dispatcherd.SessionID(s+1), equal(session.MaxSlots, types[1:2]))
		d.finishWork()
	}
	for s := range 20 {
		d.unregister(dispatcherd.SessionID(s + 1))
	}
}

func ends(d *driver) {
	d.pending = lanes(40_000)
	d.register(1, equal(session.MaxSlots, types[:4]))
	d.finishWork()
	for range 3 {
		d.release()
		d.finishWork()
	}
}

func shares(d *driver) {
	for s := range 100 {
		d.register(dispatcherd.SessionID(s+1), equal(10, types[s*100:][:100]))
	}
	d.finishWork()
	for round := range 3 {
		ev := actor.ClusterCapacity{Capacity: map[string]int{}, Shares: map[string]contract.Share{}}
		for _, t := range types {
			ev.Capacity[t] = round
			ev.Shares[t] = contract.Share{From: uint32(round), To: 40_000, Block: 3}
		}
		d.step("cluster capacity", ev)
	}
	d.finishWork()
}

// lists asks for all slots and types.
func lists(d *driver) {
	for s := range 10 {
		d.register(dispatcherd.SessionID(s+1), equal(session.MaxSlots, types[s*1000:][:10]))
	}
	d.register(100, [][]string{types[:4096], types[4096:8192], types[8192:]})
	d.finishWork()
	d.asks = "list of slots"
	actor.ListSlots("", d)
	d.asks = "list of types"
	actor.ListTypes(d)
}

// explained explains a row of low rank while rows wait in all lanes, for slots with
// different sets of types.
func explained(d *driver) {
	next := int64(0)
	d.pending = func(q contract.LaneQuery) (keys []contract.Key) {
		for range min(q.Limit, 4) {
			next++
			keys = append(keys, contract.Key{RunAt: 1_000_000, ID: dispatcherd.JobID(next)})
		}
		return keys
	}
	for s := range 10 {
		d.register(dispatcherd.SessionID(s+1), sets(session.MaxSlots, 30, s*10))
	}
	d.register(100, [][]string{types[:4096], types[4096:8192], types[8192:]})
	for range 300 {
		d.advance()
	}
	d.asks = "explanation"
	actor.Explain(actor.Inquiry{ID: 1 << 40, Type: types[0], RunAt: 1_000_001}, d)
}

// differentClasses explains a job whose type all slots support, each with another type.
func differentClasses(d *driver) {
	for s := range core.Slots / session.MaxSlots {
		var sets [][]string
		for i := range session.MaxSlots {
			from := s*session.MaxSlots + i
			sets = append(sets, []string{types[0], types[1+from%500], types[1000+from/500]})
		}
		d.register(dispatcherd.SessionID(s+1), sets)
	}
	d.finishWork()
	d.asks = "explanation"
	actor.Explain(actor.Inquiry{ID: 1 << 40, Type: types[0], RunAt: 1_000_001}, d)
	d.asks = "list of types"
	actor.ListTypes(d)
}

// ranks determines the rank of the last request of a long queue, and explains it.
func ranks(d *driver) {
	for i := range core.Requests {
		d.step("requested", actor.Requested{Job: -dispatcherd.JobID(i + 1), Type: types[0], Wait: true})
	}
	d.asks = "rank of a request"
	actor.RankOfRequest(-dispatcherd.JobID(core.Requests), d)
	d.asks = "explanation"
	actor.Explain(actor.Inquiry{ID: -dispatcherd.JobID(core.Requests)}, d)
}

// capacityWaits lets the only slot of a type with many requests come and go.
func capacityWaits(d *driver) {
	d.register(1, [][]string{types[:1]})
	for i := range core.Requests {
		d.step("requested", actor.Requested{Job: -dispatcherd.JobID(i + 1), Type: types[0], Deadline: time.Hour})
	}
	d.unregister(1)
	d.register(2, [][]string{types[:1]})
	d.finishWork()
}

func pendingTypes(d *driver) {
	next := int64(0)
	d.pending = func(q contract.LaneQuery) (keys []contract.Key) {
		if next > 2_000_000 {
			return nil
		}
		for range q.Limit {
			next++
			keys = append(keys, contract.Key{RunAt: 1_000_000, ID: dispatcherd.JobID(next)})
		}
		return keys
	}
	d.register(1, [][]string{types[:4096], types[4096:8192], types[8192:]})
	d.finishWork()
	for range 5 {
		d.release()
		d.finishWork()
	}
}

// differentSets fills the dispatcher with slots, each with a set of its own, and
// removes the oldest session.
func differentSets(d *driver) {
	for s := range core.Slots / session.MaxSlots {
		var sets [][]string
		for i := range session.MaxSlots {
			from := (s*session.MaxSlots + i) % (len(types) / 2)
			sets = append(sets, []string{types[s], types[len(types)/2+from]})
		}
		d.register(dispatcherd.SessionID(s+1), sets)
	}
	d.finishWork()
	d.unregister(1)
}

// running fills all slots with jobs and passes events to the core.
func running(d *driver, events ...actor.Event) {
	d.pending = lanes(core.Slots)
	for s := range core.Slots / session.MaxSlots {
		d.register(dispatcherd.SessionID(s+1), equal(session.MaxSlots, types[1:2]))
		d.finishWork()
	}
	for _, ev := range events {
		d.step(nameOf(ev), ev)
		d.finishWork()
	}
}

// cancelAll cancels the jobs of all slots, and none of them ends in time.
func cancelAll(d *driver) {
	running(d)
	var jobs []dispatcherd.JobID
	for _, r := range d.running {
		jobs = append(jobs, r.Job)
	}
	for _, ev := range shell.Cancels(jobs) {
		d.step(nameOf(ev), ev)
	}
	d.now += 11_000
	d.finishWork()
}
