package actor

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// fetchOf returns the fetch among effects, or nil if there is none.
func fetchOf(fx []effect.Effect) *contract.FetchRequest {
	for _, e := range fx {
		if e, ok := e.(*effect.Fetch); ok {
			return e.Request
		}
	}
	return nil
}

// A dispatcher with more lanes than fit into one fetch reads the lanes in
// rounds. So every type is read even if notifications arrive during every
// fetch.
func TestNotificationsDuringEveryFetchStarveNoType(t *testing.T) {
	core := New(DefaultConfig())
	const types = 1000
	register := Registered{Session: 1}
	for i := range types {
		register.Slots = append(register.Slots,
			dispatcherd.Slot{ID: dispatcherd.SlotID(i), Number: int32(i), Types: []string{fmt.Sprintf("t%03d", i)}})
	}
	asked := map[string]int{}
	fx := core.Step(1, register, nil)
	for now := timing.Instant(1); now < 100; now++ {
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
