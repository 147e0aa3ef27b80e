package actor

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// overload is a core with four slots of type "common". One of them, the rare
// slot, also supports "rare". On-demand requests of every priority arrive
// steadily, load times as many as the slots can serve. A straggler, a queued
// rare job of priority 0, waits among them.
//
// # The bound
//
// Let a be the arrival of the straggler, B the number of requests that wait at
// a, and W the overtaking window. While the straggler waits, the rare slot
// takes only jobs that rank before the straggler, because the straggler itself
// could have the slot. A job that arrives at a+W or later never ranks before
// the straggler (scoring.Window). So before the straggler, the rare slot runs
// at most the job that it runs at a, and jobs that arrived before a+W.
//
// Some of these jobs end before a+W. Let R be the number of jobs that arrived
// before a+W and still wait then. From a+W on, the rare slot takes only these
// jobs and the straggler. Each of them, and the job that the slot runs at a+W,
// needs at most one service time S. So the straggler starts no later than
//
//	a + W + (R + 1)·S
//
// R is at most B plus the arrivals of one window, so the bound is finite. The
// other slots take some of the R jobs, so they can only make the straggler
// start sooner.
type overload struct {
	t       *testing.T
	core    *Core
	rng     *rand.Rand
	now     timing.Instant
	lastID  int64 // request ids, which decrease
	arrived map[dispatcherd.JobID]timing.Instant
	running []*effect.Send
	ends    []timing.Instant // ends of running
	rows    []contract.Key
	waiting int
	slots   int

	straggler  dispatcherd.JobID
	since      timing.Instant
	started    bool
	late       int // requests that arrived more than a window later and were sent to the rare slot
	window     timing.Instant
	overtakers int
}

const (
	serviceMS = 10_000
	rareSlot  = dispatcherd.SlotID(1)
)

func newOverload(t *testing.T, limit time.Duration) *overload {
	cfg := DefaultConfig()
	cfg.Weights.OnDemandCap = limit
	cfg.Limits.Requests = 1 << 30
	o := &overload{
		t: t, core: New(cfg), rng: rand.New(rand.NewPCG(1, 1)), slots: 4,
		arrived: map[dispatcherd.JobID]timing.Instant{},
	}
	capped := scoring.Default()
	w, bounded := capped.Window()
	require.True(t, bounded)
	o.window = timing.Instant(w.Milliseconds())
	ev := Registered{Session: 1, Worker: "w", Slots: []dispatcherd.Slot{{ID: rareSlot, Types: []string{"common", "rare"}}}}
	for i := 2; i <= o.slots; i++ {
		ev.Slots = append(ev.Slots, dispatcherd.Slot{ID: dispatcherd.SlotID(i), Number: int32(i), Types: []string{"common"}})
	}
	o.feed(ev)
	return o
}

func (o *overload) feed(ev Event) {
	for _, e := range kept(o.core.Step(o.now, ev, nil)) {
		switch e := e.(type) {
		case *effect.Send:
			o.start(e)
		case *effect.Fetch:
			o.feed(Fetched{Request: e.Request, Result: o.fetch(e.Request)})
		case *effect.Claim:
			res := contract.ClaimResult{}
			for _, id := range e.Request.IDs {
				res.Won = append(res.Won, o.core.wonAsPlaced(id))
			}
			o.rows = nil
			o.feed(Claimed{Request: e.Request, Result: res})
		case *effect.Finish:
			o.feed(Finished{Request: e.Request})
		case *effect.SetGate:
			o.feed(GateSet{Subscribed: e.Subscribed})
		case *effect.Answer:
			require.Equal(o.t, effect.AnswerDone, e.Kind, "%v", e)
		}
	}
}

func (o *overload) fetch(req *contract.FetchRequest) contract.FetchResult {
	res := contract.FetchResult{DBNow: int64(o.now) * 1000}
	for i, lane := range req.Lanes {
		for _, k := range o.rows {
			if lane.Type == "rare" && lane.Priority == 0 && lane.After.Less(k) && (!req.Backfill || k.Less(lane.Before)) {
				res.Candidates = append(res.Candidates, contract.Candidate{Lane: i, Key: k})
			}
		}
	}
	return res
}

func (o *overload) start(e *effect.Send) {
	o.running, o.ends = append(o.running, e), append(o.ends, o.now+serviceMS)
	if e.Job == o.straggler {
		o.started = true
		return
	}
	o.waiting--
	if o.straggler != 0 && !o.started && e.Slot == rareSlot && o.arrived[e.Job] > o.since {
		o.overtakers++
		if o.arrived[e.Job] >= o.since+o.window {
			o.late++
		}
	}
	delete(o.arrived, e.Job)
}

// until advances the time until end, or until stop returns true. every is the
// time between two requests in milliseconds.
func (o *overload) until(end timing.Instant, every float64, stop func() bool) {
	next := float64(o.now) + every
	for o.now < end && !stop() {
		at := min(end, timing.Instant(next)+1)
		for _, t := range o.ends {
			at = min(at, t)
		}
		o.now = at
		if i := o.over(); i >= 0 {
			e := o.running[i]
			o.running, o.ends = append(o.running[:i], o.running[i+1:]...), append(o.ends[:i], o.ends[i+1:]...)
			o.feed(Released{Session: 1, Results: []Result{{Job: e.Job, Attempt: e.Attempt, OK: true}}})
		} else if float64(o.now) > next {
			next += every
			o.request()
		}
	}
}

func (o *overload) over() int {
	for i, t := range o.ends {
		if t <= o.now {
			return i
		}
	}
	return -1
}

func (o *overload) request() {
	o.lastID--
	o.waiting++
	ev := Requested{Job: dispatcherd.JobID(o.lastID), Type: "common", Priority: dispatcherd.Priority(o.rng.IntN(11))}
	if o.rng.IntN(5) == 0 {
		ev.Type = "rare"
	}
	o.arrived[ev.Job] = o.now
	o.feed(ev)
}

// insert adds a straggler.
func (o *overload) insert() {
	o.straggler++
	o.since, o.started, o.late, o.overtakers = o.now, false, 0, 0
	o.rows = []contract.Key{{RunAt: int64(o.now) * 1000, ID: o.straggler}}
	o.feed(Notified{})
}

// every returns the time between two requests at a load.
func (o *overload) every(load float64) float64 { return serviceMS / load / float64(o.slots) }

func TestStragglerStartsWithinTheBound(t *testing.T) {
	for _, load := range []float64{0.5, 1, 1.5, 3} {
		t.Run(fmt.Sprint(load), func(t *testing.T) {
			t.Parallel()
			o := newOverload(t, scoring.Default().OnDemandCap)
			every := o.every(load)
			o.until(60_000, every, func() bool { return false })
			for range 3 {
				o.insert()
				started := func() bool { return o.started }
				o.until(o.since+o.window-1, every, started)
				ahead := o.waiting // R: requests that wait one window after the straggler's arrival and arrived before that instant
				o.until(o.since+o.window+timing.Instant(ahead+1)*serviceMS, every, started)
				require.True(t, o.started, "straggler that arrived at %v has not started at %v; %d jobs were ahead", o.since, o.now, ahead)
				require.Zero(t, o.late, "requests that overtook although they arrived more than a window later")
				t.Logf("load %v: waited %v, overtaken by %d, %d ahead after a window", load, msDuration(int64(o.now-o.since)), o.overtakers, ahead)
			}
		})
	}
}

// Without the age cap, requests gain on the straggler for ever, and requests
// that arrive much more than a window later still go first.
func TestStragglerStarvesWithoutTheCap(t *testing.T) {
	for _, load := range []float64{1.5, 3} {
		t.Run(fmt.Sprint(load), func(t *testing.T) {
			t.Parallel()
			o := newOverload(t, scoring.NoCap)
			o.until(60_000, o.every(load), func() bool { return false })
			o.insert()
			o.until(o.since+10*o.window, o.every(load), func() bool { return o.started })
			require.False(t, o.started, "it started after %v", msDuration(int64(o.now-o.since)))
			require.Positive(t, o.late)
		})
	}
}
