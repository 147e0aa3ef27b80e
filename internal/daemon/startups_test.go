package daemon

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// The statement renews a tick at most once a day.
func TestTicksOfConnectedWorkersAreRenewed(t *testing.T) {
	var calls [][]string
	types := []string{"x"}
	u := &newWorkers(&Daemon{log: zap.NewNop()}).startups
	u.types, u.renew = func() []string { return types }, func(_ context.Context, occasions []string) error {
		slices.Sort(occasions)
		calls = append(calls, occasions)
		return errors.New("conn closed")
	}
	step := func() error {
		_, err := u.renewing().Step(t.Context(), background.Now{})
		return err
	}
	require.NoError(t, step(), "no worker is connected")
	u.connect(1, &workerproto.Hello{Process: "a"})
	u.connect(2, &workerproto.Hello{Process: "b"})
	u.connect(3, &workerproto.Hello{})
	a, b := occasionOf(digest("a")), occasionOf(digest("b"))
	both := []string{a, b}
	slices.Sort(both)
	require.Error(t, step())
	u.end(2)
	require.Error(t, step())
	types = nil
	require.NoError(t, step(), "there is no such schedule")
	require.Equal(t, [][]string{both, {a}}, calls)
}
