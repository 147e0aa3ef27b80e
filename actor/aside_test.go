package actor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/aside"
	"github.com/dispatcherd/dispatcherd/actor/config"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func TestRowsThatAreSetAsideAreBoundedAndForgotten(t *testing.T) {
	c := New(config.Default())
	var refused []contract.Unclaimable
	for id := range dispatcherd.JobID(aside.Max + 5) {
		refused = append(refused, contract.Unclaimable{ID: id + 1, Reason: "no"})
	}
	c.setAside(refused)
	require.Equal(t, aside.Max, c.Gauges().Aside)
	require.EqualValues(t, aside.Max, c.Stats().SetAside)
	c.now = c.now.After(12 * time.Minute)
	c.setAside([]contract.Unclaimable{{ID: aside.Max + 5, Reason: "no"}})
	require.Equal(t, 1, c.Gauges().Aside)
}

// A type pauses if a claim only refuses rows of the type. A refusal during the pause begins no
// other one.
func TestPausesOfTypesAreCounted(t *testing.T) {
	s := newSender(t)
	refused := func(id dispatcherd.JobID) contract.ClaimResult {
		return contract.ClaimResult{Unclaimable: []contract.Unclaimable{{ID: id, Reason: "no"}}}
	}
	first, both, later := s.insert(1)[0], s.insert(2)[0], s.insert(2)[0]
	result := refused(both.IDs[0])
	result.Won = append(result.Won, s.core.wonAsPlaced(both.IDs[1]))
	s.step(event.Claimed{Request: both, Result: result})
	require.Zero(t, s.core.Stats().Paused, "the claim won a row of the type")
	s.step(event.Claimed{Request: first, Result: refused(first.IDs[0])})
	require.EqualValues(t, 1, s.core.Stats().Paused)
	s.step(event.Claimed{Request: later, Result: refused(later.IDs[0])})
	require.EqualValues(t, 1, s.core.Stats().Paused)
}
