package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/api"
)

// silent is a Performer for whom nothing happens.
type silent struct{}

// Perform implements actor.Performer.
func (silent) Perform([]actor.Effect) {}

// Nobody hangs because the loop is over: neither who waits already nor who
// comes later. Each is counted under one end.
func TestCallersAreAnsweredWhenTheLoopHasEnded(t *testing.T) {
	c := newCallers()
	c.loop = actor.Start(actor.New(actor.DefaultConfig()), silent{}, nil)
	before := make(oneAnswer, 1)
	c.submit(api.Request{Type: "x", Wait: true}, before)
	c.loop.Stop()
	c.release()
	require.Equal(t, api.Stopping, (<-before).Kind)

	got, err := c.do(t.Context(), request{Type: "x", Wait: true})
	require.NoError(t, err)
	require.Equal(t, actor.AnswerStopping, got.Kind)

	submitted, waiting, ends := c.tally()
	require.EqualValues(t, 2, submitted)
	require.Zero(t, waiting)
	require.EqualValues(t, 2, ends[api.Stopping])
}
