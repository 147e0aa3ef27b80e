package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/api"
)

// newIdleCallers returns callers whose requests wait until somebody ends them.
func newIdleCallers(t *testing.T) *callers {
	c := newCallers()
	c.loop = actor.Start(actor.New(actor.DefaultConfig()), silent{}, nil)
	t.Cleanup(c.loop.Stop)
	return c
}

func TestACallerIsAloneAfterARowOfRequestsOfHisOwn(t *testing.T) {
	c := newIdleCallers(t)
	me, other := make(oneAnswer, 1), make(oneAnswer, 1)
	ask := func(caller oneAnswer) (alone bool) {
		id := c.submit(api.Request{Type: "x", Wait: true}, caller)
		alone = c.solitude.alone()
		c.end(id, stopped)
		<-caller
		require.False(t, c.solitude.alone(), "nothing is in hand")
		return alone
	}
	row := func() (requests int) {
		for requests = 1; !ask(me); requests++ {
			require.Less(t, requests, 10*fullRow)
		}
		return requests
	}
	require.Equal(t, fullRow, row())
	require.True(t, ask(me))
	require.False(t, ask(other))
	require.Equal(t, fullRow, row(), "somebody else asked meanwhile")
	c.solitude.jobSent()
	require.Equal(t, fullRow, row(), "a queued job was sent meanwhile")
	for range 10 * fullRow {
		require.False(t, ask(other), "two who take turns")
		require.False(t, ask(me), "two who take turns")
	}
}

func TestNobodyIsAloneWhileTwoWait(t *testing.T) {
	c := newIdleCallers(t)
	me := make(oneAnswer, 3*fullRow)
	for range fullRow {
		c.end(c.submit(api.Request{Type: "x", Wait: true}, me), stopped)
	}
	first := c.submit(api.Request{Type: "x", Wait: true}, me)
	require.True(t, c.solitude.alone())
	second := c.submit(api.Request{Type: "x", Wait: true}, me)
	require.False(t, c.solitude.alone())
	c.end(first, stopped)
	require.True(t, c.solitude.alone())
	c.abandon(second)
	require.False(t, c.solitude.alone())
}
