package actor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// slowFetch is a core with one free slot for "old" and "new". The lane of "old" has no
// candidates, but the table contains more of its rows. The first unread row may have
// arrived at 0. The fetch of the unread rows has been in flight for longer than
// Config.Patience.
func slowFetch(t *testing.T, now timing.Instant) (core *Core, inFlight *contract.FetchRequest, late timing.Instant) {
	core = New(DefaultConfig())
	fx := core.Step(now, Registered{Session: 1, Slots: []dispatcherd.Slot{{ID: 1, Types: []string{"new", "old"}}}}, nil)
	answer := func(first dispatcherd.JobID) []effect.Effect {
		request := fetchOf(fx)
		require.NotNil(t, request)
		return core.Step(now, Fetched{Request: request, Result: rowsOfOld(request, now, first)}, nil)
	}
	fx = answer(1)
	inFlight = fetchOf(fx)
	require.NotNil(t, inFlight, "the cache is half empty, so it is refilled")
	for range 2 {
		e := one[*effect.Claim](t, fx)
		fx = core.Step(now,
			Claimed{Request: e.Request, Result: contract.ClaimResult{Won: []contract.Won{core.wonAsPlaced(e.Request.IDs[0])}}},
			nil)
		send := one[*effect.Send](t, fx)
		fx = core.Step(now, Released{Session: 1, Results: []Result{{Job: send.Job, Attempt: 1, OK: true}}}, nil)
	}
	require.Empty(t, only[*effect.Claim](fx), "the cache is empty")
	late = now.After(DefaultConfig().Patience)
	core.Step(late, Tick{}, nil)
	return core, inFlight, late
}

// rowsOfOld answers a fetch with as many rows of "old" as the fetch requests.
func rowsOfOld(request *contract.FetchRequest, now timing.Instant, first dispatcherd.JobID) contract.FetchResult {
	result := contract.FetchResult{DBNow: int64(now) * 1000}
	for i, lane := range request.Lanes {
		for n := range lane.Limit {
			if lane.Type == "old" && lane.Priority == 0 {
				result.Candidates = append(result.Candidates, contract.Candidate{Lane: i, Key: contract.Key{ID: first + dispatcherd.JobID(n)}})
			}
		}
	}
	return result
}

// While a fetch is slow, other jobs pass the unread rows. But a job does not pass the
// unread rows if it arrived at least one overtaking window after them. Otherwise a slow
// Postgres would lengthen the window without a bound.
func TestSlowFetchDoesNotLengthenTheOvertakingWindow(t *testing.T) {
	window, bounded := scoring.Default().Window()
	require.True(t, bounded)
	for _, c := range []struct {
		name   string
		age    time.Duration // of the first unread row when the request arrives
		passes bool
	}{
		{"less than a window later", window - time.Millisecond, true},
		{"a window later", window, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			arrival := timing.Instant(c.age.Milliseconds())
			core, inFlight, late := slowFetch(t, arrival-timing.Instant(DefaultConfig().Patience.Milliseconds()))
			require.Equal(t, arrival, late)
			fx := core.Step(arrival, Requested{Job: -1, Type: "new", Priority: dispatcherd.MaxPriority}, nil)
			if c.passes {
				require.Equal(t, dispatcherd.JobID(-1), one[*effect.Started](t, fx).Job)
				return
			}
			require.Empty(t, only[*effect.Started](fx))
			require.NoError(t, core.Check())
			fx = core.Step(arrival, Fetched{Request: inFlight, Result: rowsOfOld(inFlight, arrival, 3)}, nil)
			require.Equal(t, []dispatcherd.JobID{3}, one[*effect.Claim](t, fx).Request.IDs)
		})
	}
}

// A request that waits for a slow fetch starts when the fetch fails.
func TestRequestsPassUnreadRowsAfterAFailedFetch(t *testing.T) {
	window, _ := scoring.Default().Window()
	core, inFlight, late := slowFetch(t, 2*timing.Instant(window.Milliseconds()))
	require.Empty(t, only[*effect.Started](core.Step(late, Requested{Job: -1, Type: "new"}, nil)))
	fx := core.Step(late, Fetched{Request: inFlight, Result: contract.FetchResult{Verdict: contract.Refused}}, nil)
	require.Equal(t, dispatcherd.JobID(-1), one[*effect.Started](t, fx).Job)
}
