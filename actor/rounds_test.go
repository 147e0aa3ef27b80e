package actor

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// fetchOf returns the fetch among effects, nil if there is none.
func fetchOf(fx []Effect) *contract.FetchRequest {
	for _, e := range fx {
		if e, ok := e.(*Fetch); ok {
			return e.Request
		}
	}
	return nil
}

// However fast notifications come, every type has its turn: a dispatcher with
// more lanes than fit into one fetch goes round and round.
func TestNotificationsDuringEveryFetchStarveNoType(t *testing.T) {
	core := New(DefaultConfig())
	const types = 1000
	register := Registered{Session: 1}
	for i := range types {
		register.Slots = append(register.Slots, dispatcherd.Slot{ID: dispatcherd.SlotID(i), Number: int32(i), Types: []string{fmt.Sprintf("t%03d", i)}})
	}
	asked := map[string]int{}
	fx := core.Step(1, register, nil)
	for now := Instant(1); now < 100; now++ {
		request := fetchOf(fx)
		require.NotNil(t, request)
		for _, l := range request.Lanes {
			asked[l.Type]++
		}
		core.Step(now, Notified{}, nil)
		fx = core.Step(now, Fetched{Request: request, Result: contract.FetchResult{DBNow: int64(now) * 1000}}, nil)
	}
	require.Len(t, asked, types)
	for name, n := range asked {
		require.Greater(t, n, 2*priorities, "type %s", name)
	}
}

// Lanes that always run low leave room for the round of all lanes.
func TestLowLanesLeaveRoomForTheRound(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Limits.LanesPerFetch = 4
	core := New(cfg)
	fx := core.Step(1, Registered{Session: 1, Slots: []dispatcherd.Slot{
		{ID: 1, Types: []string{"a"}}, {ID: 2, Number: 1, Types: []string{"b"}},
	}}, nil)
	for p := range priorities {
		core.fetch.lookAgain(core, laneRef{typ: 0, priority: dispatcherd.Priority(p)})
	}
	core.fetch.from = priorities // where type b begins
	fx = core.Step(2, Fetched{Request: fetchOf(fx), Result: contract.FetchResult{DBNow: 1}}, nil)
	names := map[string]int{}
	for _, l := range fetchOf(fx).Lanes {
		names[l.Type]++
	}
	require.Equal(t, map[string]int{"a": 2, "b": 2}, names)
}

// A list that is thrown away while a look at it is under way is read anew: the
// answer to the look is about a lane that is no more.
func TestALookAtAListThatWasThrownAwayIsNotBelieved(t *testing.T) {
	c := New(DefaultConfig())
	request := fetchOf(c.Step(1, Registered{Session: 1, Slots: []dispatcherd.Slot{{ID: 1, Types: []string{"a"}}}}, nil))
	rows := contract.FetchResult{DBNow: 1_000_000}
	for id := range dispatcherd.JobID(3) {
		rows.Candidates = append(rows.Candidates, contract.Candidate{Key: contract.Key{RunAt: int64(id), ID: id + 1}})
	}
	l := &c.kinds[0].queued[0]
	l.discard()
	c.mark(0, 0)
	c.fetch.lookAgain(c, laneRef{})
	next := c.Step(2, Together{Events: []Event{Fetched{Request: request, Result: rows}}, Hold: true}, nil)
	require.NoError(t, c.Check())
	require.Zero(t, l.len(), "the old answer is not believed")
	require.Zero(t, fetchOf(next).Lanes[0].After, "the lane is read from the very beginning")
}
