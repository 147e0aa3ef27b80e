package actor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// The names of these tests refer to faults of other job queues; see
// docs/explanation/reliability-peers.md.

// states are functions that bring a dispatcher into each state in which an
// event may arrive. Slot 1 supports pdf; slot 2 supports pdf and excel. Row 1
// and request -1 have type pdf.
var states = map[string]func(c *Core){
	"fresh": func(*Core) {},
	"free":  func(c *Core) { withFreeSlots(c) },
	"reserved": func(c *Core) {
		withReserved(c, withFreeSlots(c))
	},
	"busy": func(c *Core) {
		withBusySlot(c, withFreeSlots(c))
	},
	"ending": func(c *Core) {
		withBusySlot(c, withFreeSlots(c))
		c.Step(1002, Released{Session: 7, Results: []Result{{Job: 1, Attempt: 1, OK: true}}}, nil)
	},
	"draining": func(c *Core) {
		withBusySlot(c, withFreeSlots(c))
		c.Step(1002, Drained{}, nil)
	},
	"disowned": func(c *Core) {
		withBusySlot(c, withFreeSlots(c))
		c.Step(1002, Disowned{}, nil)
	},
	"outage": func(c *Core) {
		r := withReserved(c, withFreeSlots(c))
		c.Step(1002, Claimed{Request: r, Result: contract.ClaimResult{Verdict: contract.Unknown}}, nil)
	},
	"not listening": func(c *Core) {
		withFreeSlots(c)
		c.Step(1002, Listening{}, nil)
	},
	"request waits": func(c *Core) {
		c.Step(1000, Requested{Job: -1, Type: "pdf", Wait: true, Deadline: time.Second}, nil)
	},
	"request runs": func(c *Core) {
		withFreeSlots(c)
		c.Step(1001, Requested{Job: -1, Type: "pdf"}, nil)
	},
	"worker gone": func(c *Core) {
		withBusySlot(c, withFreeSlots(c))
		c.Step(1002, Unregistered{Session: 7}, nil)
	},
}

// withFreeSlots registers free slots and returns the fetch in flight.
func withFreeSlots(c *Core) *contract.FetchRequest {
	return fetchOf(c.Step(1000, Registered{Session: 7, Worker: "w", Slots: []dispatcherd.Slot{
		{ID: 1, Types: []string{"pdf"}}, {ID: 2, Number: 1, Types: []string{"excel", "pdf"}},
	}}, nil))
}

// withReserved answers the fetch with row 1, and returns the claim.
func withReserved(c *Core, f *contract.FetchRequest) *contract.ClaimRequest {
	lane := 0
	for f.Lanes[lane].Type != "pdf" {
		lane++
	}
	fx := c.Step(1001, Fetched{Request: f, Result: contract.FetchResult{
		DBNow: 1_001_000, Candidates: []contract.Candidate{{Lane: lane, Key: contract.Key{RunAt: 1, ID: 1}}},
	}}, nil)
	return only[*effect.Claim](fx)[0].Request
}

func withBusySlot(c *Core, f *contract.FetchRequest) {
	r := withReserved(c, f)
	c.Step(1001, Claimed{Request: r, Result: contract.ClaimResult{Won: []contract.Won{c.wonAsPlaced(1)}}}, nil)
}

// shellEvents are the events that a shell may send at any moment. Answers to
// statements come only after the statement, or once more.
func shellEvents() map[string]Event {
	return map[string]Event{
		"registered":       Registered{Session: 8, Worker: "v", Slots: []dispatcherd.Slot{{ID: 9, Types: []string{"pdf"}}}},
		"unregistered":     Unregistered{Session: 7},
		"unknown hangs up": Unregistered{Session: 99},
		"withdrew one":     Withdrew{Session: 7, Numbers: []int32{0}},
		"withdrew all":     Withdrew{Session: 7},
		"done":             Released{Session: 7, Results: []Result{{Job: 1, Attempt: 1, OK: true}}},
		"failed":           Released{Session: 7, Results: []Result{{Job: 1, Attempt: 1, Error: "x"}}},
		"returned":         Released{Session: 7, Results: []Result{{Job: -1, Attempt: 1, Returned: true}}},
		"reported":         Reported{Session: 7, Reports: []contract.Report{{Job: 1, Attempt: 1}}},
		"spawn requested":  SpawnRequested{Request: &contract.SpawnRequest{Session: 7, Parent: 1, Attempt: 1, Number: 1}},
		"unknown spawn":    Spawned{Request: &contract.SpawnRequest{Session: 7, Parent: 1, Attempt: 1, Number: 2}},
		"requested":        Requested{Job: -2, Type: "pdf"},
		"abandoned":        Abandoned{Job: -1},
		"notified":         Notified{},
		"not listening":    Listening{},
		"listening":        Listening{On: true},
		"cancel":           CancelRequested{Jobs: []dispatcherd.JobID{1, -1, 77}},
		"gate subscribed":  GateSet{Subscribed: true},
		"gate refused":     GateSet{Verdict: contract.Refused},
		"disowned":         Disowned{},
		"owned":            Owned{},
		"cluster capacity": ClusterCapacity{Capacity: map[string]int{"pdf": 2}},
		"drained":          Drained{},
		"interrupted":      Interrupted{},
		"tick":             Tick{},
		"unknown claim":    Claimed{Request: &contract.ClaimRequest{Token: contract.Token{1}}},
	}
}

// Every event is handled in every state, and in every state after any other
// event. No event is lost because a statement is in flight.
func TestPeer_B07_EveryEventIsHandledInEveryState(t *testing.T) {
	for state, prepare := range states {
		for first, a := range shellEvents() {
			for second, b := range shellEvents() {
				c := New(DefaultConfig())
				prepare(c)
				name := fmt.Sprintf("%s, %s, %s", state, first, second)
				for n, ev := range []Event{a, b, Tick{}} {
					switch r := ev.(type) { // ids are never reused
					case Registered:
						r.Slots = []dispatcherd.Slot{{ID: dispatcherd.SlotID(10 + n), Types: []string{"pdf"}}}
						ev = r
					case Requested:
						r.Job -= dispatcherd.JobID(n)
						ev = r
					}
					require.NotPanics(t, func() { c.Step(timing.Instant(1010+n), ev, nil) }, name)
					if err := c.Check(); err != nil {
						require.NoError(t, err, name)
					}
				}
			}
		}
	}
}

// A cancel that arrives while a claim is in flight stops the job before it is
// sent.
func TestPeer_B07_CancelDuringAClaimIsNotLost(t *testing.T) {
	c := New(DefaultConfig())
	r := withReserved(c, withFreeSlots(c))
	c.Step(1002, CancelRequested{Jobs: []dispatcherd.JobID{1}}, nil)
	fx := c.Step(1003, Claimed{Request: r, Result: contract.ClaimResult{Won: []contract.Won{c.wonAsPlaced(1)}}}, nil)
	require.Equal(t, contract.Cancelled, one[*effect.Finish](t, fx).Request.Items[0].Outcome)
}

// The delay of every retry is within the bounds.
func TestPeer_B11_NoAttemptOverflowsTheBackoff(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	b := DefaultConfig().Retry
	check := func(n int) {
		d := b.Delay(n, rng)
		require.True(t, d >= b.Base/2 && d <= b.Max, "repetition %d waits %v", n, d)
	}
	for n := range 2000 {
		check(n)
	}
	for range 100_000 {
		check(rng.IntN(math.MaxInt32))
	}
	check(math.MaxInt32)
}
