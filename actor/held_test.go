package actor

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// Postgres refuses the end of one job. The end is sent again alone, after pauses of at
// most a minute, and the explanation of the job states the reason.
func TestRefusedEndIsHeldAndSentAgainAlone(t *testing.T) {
	w := newWorld(t)
	w.command("register worker=w types=(pdf) types=(pdf)", nil)
	w.command("insert", []string{"bad type=pdf", "good type=pdf"})
	w.command("run", nil)
	bad := w.jobs["bad"]
	w.table.Row(bad).Refused = errors.New("refused by the test")
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
	w.table.Row(bad).Refused = nil
	w.command("advance 1m", nil)
	require.Zero(t, core.Gauges().Held)
	require.Zero(t, core.Gauges().Unrecorded)
	require.True(t, core.Idle())
}
