package main

import (
	"reflect"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/shell"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// driver passes events to a core and measures each step. It answers the statements
// of the core like a table that has the rows of pending.
type driver struct {
	core    *actor.Core
	now     timing.Instant
	fx      []effect.Effect
	steps   []step
	asks    string                                  // what Ask is about
	busy    bool                                    // jobs end and start between two portions of an answer
	pending func(contract.LaneQuery) []contract.Key // nil = no rows

	lanes   map[dispatcherd.JobID]contract.Lane // of the rows that were fetched
	answers []actor.Event                       // of statements in flight
	running []actor.Result                      // successful ends of the jobs that were sent
	rows    int                                 // the most rows of a fetch that was answered
	slots   dispatcherd.SlotID                  // last slot id
}

// step is the duration of one step of the core.
type step struct {
	event string
	took  time.Duration
}

// threadTime returns the processor time of this thread. Other processes on the
// machine do not change it.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // every supported kernel has this clock
	}
	return time.Duration(t.Nano())
}

func newDriver(change func(*actor.Config)) *driver {
	cfg := actor.DefaultConfig()
	cfg.Seed = [2]uint64{1, 2}
	for _, bound := range []*int{&cfg.Limits.Slots, &cfg.Limits.SlotTypes, &cfg.Limits.Types, &cfg.Limits.Requests} {
		*bound += *bound/7 + 1 // the only user can then reach the bound; see package quota
	}
	if change != nil {
		change(&cfg)
	}
	return &driver{core: actor.New(cfg), lanes: map[dispatcherd.JobID]contract.Lane{}}
}

// step makes one step of the core and keeps the statements for later answers.
func (d *driver) step(name string, ev actor.Event) {
	if f, ok := ev.(actor.Fetched); ok {
		d.rows = max(d.rows, len(f.Result.Candidates))
	}
	d.measure(name, func() { d.fx = d.core.Step(d.now, ev, d.fx[:0]) })
	for _, e := range d.fx {
		switch e := e.(type) {
		case *effect.Fetch:
			d.answers = append(d.answers, d.fetched(e.Request))
		case *effect.Claim:
			d.answers = append(d.answers, d.claimed(e.Request))
		case *effect.Finish:
			d.answers = append(d.answers, actor.Finished{Request: e.Request})
		case *effect.Adopt:
			d.answers = append(d.answers, actor.Adopted{Request: e.Request})
		case *effect.SetGate:
			d.answers = append(d.answers, actor.GateSet{Subscribed: e.Subscribed})
		case *effect.Send:
			d.running = append(d.running, actor.Result{Job: e.Job, Attempt: e.Attempt, OK: true})
		}
	}
}

// measure measures how long the loop would be occupied.
func (d *driver) measure(name string, f func()) {
	began := threadTime()
	f()
	d.steps = append(d.steps, step{name, threadTime() - began})
}

// Ask measures a portion of an answer. The daemon asks the core in the same way.
func (d *driver) Ask(f func(*actor.Core)) bool {
	if d.busy {
		d.advance()
	}
	d.measure(d.asks, func() { f(d.core) })
	return true
}

// advance lets a millisecond pass and answers the statements in flight. If the driver is
// busy, some running jobs end.
func (d *driver) advance() {
	d.now++
	d.step("tick", actor.Tick{})
	if d.busy {
		d.end(min(len(d.running), shell.ReportPortion))
	}
	for n := len(d.answers); n > 0; n-- {
		ev := d.answers[0]
		d.answers = d.answers[1:]
		d.step(nameOf(ev), ev)
	}
}

// mostSteps is more than any scene needs until the core is idle.
const mostSteps = 100_000

// finishWork answers all statements and lets the time pass until nothing is left to do
// at once.
func (d *driver) finishWork() {
	for begun := len(d.steps); len(d.answers) > 0 || d.core.NextWake() <= d.now+1; {
		if len(d.steps) > begun+mostSteps {
			panic("the core does not become idle")
		}
		if len(d.answers) > 0 {
			ev := d.answers[0]
			d.answers = d.answers[1:]
			d.step(nameOf(ev), ev)
			continue
		}
		d.now++
		d.step("tick", actor.Tick{})
	}
}

// register adds slots of a session, as the daemon does.
func (d *driver) register(id dispatcherd.SessionID, sets [][]string) {
	ev := actor.Registered{Session: id, Worker: "w", Fingerprint: contract.Fingerprint(id) << 16}
	for i, types := range sets {
		d.slots++
		ev.Slots = append(ev.Slots, dispatcherd.Slot{ID: d.slots, Number: int32(i), Types: types})
	}
	shell.Register(func(ev actor.Event) { d.step("registered", ev) }, ev, shell.Portion)
}

// unregister ends a session and waits until all of its slots are removed.
func (d *driver) unregister(id dispatcherd.SessionID) {
	d.step("unregistered", actor.Unregistered{Session: id})
	d.finishWork()
}

// release ends all running jobs, in events of the largest size.
func (d *driver) release() {
	for len(d.running) > 0 {
		d.end(min(len(d.running), shell.ReportPortion))
	}
}

// end ends the jobs that have run longest. The session of a result only matters if the
// attempt is not the current one.
func (d *driver) end(n int) {
	if n > 0 {
		d.step("released", actor.Released{Session: 1, Results: d.running[:n]})
		d.running = d.running[n:]
	}
}

func (d *driver) fetched(r *contract.FetchRequest) actor.Event {
	res := contract.FetchResult{DBNow: 1_000_000_000 + int64(d.now)*1000}
	for i, q := range r.Lanes {
		if d.pending == nil {
			break
		}
		for _, key := range d.pending(q) {
			d.lanes[key.ID] = contract.Lane{Type: q.Type, Priority: q.Priority}
			res.Candidates = append(res.Candidates, contract.Candidate{Lane: i, Key: key})
		}
	}
	return actor.Fetched{Request: r, Result: res}
}

func (d *driver) claimed(r *contract.ClaimRequest) actor.Event {
	res := contract.ClaimResult{Won: make([]contract.Won, len(r.IDs))}
	for i, id := range r.IDs {
		lane := d.lanes[id]
		res.Won[i] = contract.Won{
			ID: id, Type: lane.Type, Priority: lane.Priority, Attempt: 1, MaxAttempts: 5, Delivery: contract.Delivery{Payload: []byte("{}")},
		}
	}
	return actor.Claimed{Request: r, Result: res}
}

func nameOf(ev actor.Event) string {
	name := reflect.TypeOf(ev).Name()
	return strings.ToLower(name[:1]) + name[1:]
}
