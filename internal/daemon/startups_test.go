package daemon

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// The ticks of a connected worker are renewed once a day, and not after it has left.
func TestTicksOfConnectedWorkersAreRenewedOnceADay(t *testing.T) {
	var calls [][]string
	fail, types := errors.New("conn closed"), []string{"x"}
	u := startups{types: func() []string { return types }, log: zap.NewNop(), renew: func(_ context.Context, occasions []string) error {
		slices.Sort(occasions)
		calls = append(calls, occasions)
		return fail
	}}
	now := time.Unix(0, 0).AddDate(30, 0, 0)
	pass := func(after time.Duration) error {
		now = now.Add(after)
		_, err := u.renewing().Step(t.Context(), background.Now{At: now})
		return err
	}
	u.connect(1, &workerproto.Hello{Process: "a"})
	u.connect(2, &workerproto.Hello{Process: "b"})
	u.connect(3, &workerproto.Hello{})
	a, b := occasionOf(fingerprintOf("a")), occasionOf(fingerprintOf("b"))
	both := []string{a, b}
	slices.Sort(both)
	require.Error(t, pass(0))
	fail = nil
	require.NoError(t, pass(renewPause))
	require.NoError(t, pass(renewPause))
	require.Equal(t, [][]string{both, both}, calls, "the first one failed")
	require.NoError(t, pass(renewEvery))
	require.Len(t, calls, 3)
	u.end(2)
	require.NoError(t, pass(renewEvery))
	require.Equal(t, []string{a}, calls[3])
	types = nil
	require.NoError(t, pass(2*renewEvery))
	require.Len(t, calls, 4, "there is no such schedule")
}
