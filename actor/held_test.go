package actor

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Postgres refuses the end of one job. The end is sent again alone, after pauses of at
// most a minute, and the explanation of the job states the reason.
func TestRefusedEndIsHeldAndSentAgainAlone(t *testing.T) {
	w := newWorld(t)
	w.command("register worker=w types=(pdf) types=(pdf)", nil)
	w.command("insert", []string{"bad type=pdf", "good type=pdf"})
	w.command("run", nil)
	bad := w.jobs["bad"]
	w.table.Row(bad).Unendable = errors.New("refused by the test")
	w.command("done bad", nil)
	w.command("done good", nil)
	core := w.at.core
	require.Equal(t, 1, core.Gauges().Unrecorded)
	require.Equal(t, 1, core.Gauges().Held)
	x := core.Explain(Inquiry{ID: bad})
	require.Equal(t, []Reason{ReasonUnrecordable}, x.Reasons)
	require.Equal(t, "refused by the test", x.Held)
	for range 20 {
		before := core.Stats().Deferred
		w.command("advance 1m", nil)
		require.Greater(t, core.Stats().Deferred, before, "at least one try per minute")
	}
	require.Less(t, core.Stats().Deferred, uint64(60))
	w.table.Row(bad).Unendable = nil
	w.command("advance 1m", nil)
	require.Zero(t, core.Gauges().Held)
	require.Zero(t, core.Gauges().Unrecorded)
	require.True(t, core.Idle())
}

// The store did not execute a part of a finish. The part is sent again at once, unless
// nothing was executed: then it waits for the breaker.
func TestRestOfAFinishIsSentAgain(t *testing.T) {
	w := newWorld(t)
	w.command("register worker=w types=(pdf) slots=3", nil)
	w.command("insert", []string{"a type=pdf", "b type=pdf", "c type=pdf"})
	w.command("run", nil)
	w.command("hold finish", nil)
	w.command("done a", nil)
	w.command("lose finish", nil)
	w.command("advance 100ms", nil)
	w.command("done b", nil)
	w.command("done c", nil)
	answer := func(rest int) *contract.FinishRequest {
		t.Helper()
		e := w.at.pending[0].(*effect.Finish)
		w.at.pending = w.at.pending[1:]
		w.step(event.Finished{Request: e.Request, Result: contract.FinishResult{Rest: slices.Clone(e.Request.Items[len(e.Request.Items)-rest:])}})
		if len(w.at.pending) == 0 {
			return nil
		}
		return w.at.pending[0].(*effect.Finish).Request
	}
	next := answer(0) // of a
	require.Len(t, next.Items, 2)
	next = answer(1)
	require.Len(t, next.Items, 1)
	require.Equal(t, w.jobs["c"], next.Items[0].ID)
	require.Nil(t, answer(1), "nothing was executed")
	w.command("advance 1s", nil)
	require.Equal(t, w.jobs["c"], w.at.pending[0].(*effect.Finish).Request.Items[0].ID)
	require.Equal(t, 1, w.at.core.Gauges().Unrecorded)
	w.command("answer finish", nil)
	require.True(t, w.at.core.Idle())
}
