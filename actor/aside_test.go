package actor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func TestRowsThatAreSetAsideAreBoundedAndForgotten(t *testing.T) {
	c := New(DefaultConfig())
	var refused []contract.Unclaimable
	for id := range dispatcherd.JobID(contract.MaxAside + 5) {
		refused = append(refused, contract.Unclaimable{ID: id + 1, Reason: "no"})
	}
	c.setAside(refused)
	require.Equal(t, contract.MaxAside, c.Gauges().Aside)
	require.EqualValues(t, contract.MaxAside, c.Stats().SetAside)
	_, aside := c.whyAside(contract.MaxAside + 5)
	require.False(t, aside, "there is no room: the next scan finds the row")
	c.now = c.now.After(contract.AsideTime)
	_, aside = c.whyAside(1)
	require.False(t, aside, "the pause is over")
	require.Equal(t, contract.MaxAside, c.Gauges().Aside, "rows that Postgres still refuses are set aside again soon")
	c.now = c.now.After(contract.AsideTime)
	require.Zero(t, c.Gauges().Aside)
	c.setAside([]contract.Unclaimable{{ID: contract.MaxAside + 5, Reason: "no"}})
	require.Len(t, c.claims.aside, 1)
}
