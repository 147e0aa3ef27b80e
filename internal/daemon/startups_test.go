package daemon

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

// The ticks of a connected worker are renewed once a day, and not after it has left.
func TestTicksOfConnectedWorkersAreRenewedOnceADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // orders the test and the goroutine, for the race detector
		var calls [][]string
		fail, types := errors.New("conn closed"), []string{"x"}
		u := startups{types: func() []string {
			mu.Lock()
			defer mu.Unlock()
			return types
		}, log: zap.NewNop(), renew: func(_ context.Context, occasions []string) error {
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(occasions)
			calls = append(calls, occasions)
			return fail
		}}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			u.run(ctx)
		}()
		mu.Lock()
		pass := func(d time.Duration) {
			mu.Unlock()
			<-time.After(d)
			synctest.Wait()
			mu.Lock()
		}
		u.connect(1, &workerproto.Hello{Process: "a"})
		u.connect(2, &workerproto.Hello{Process: "b"})
		u.connect(3, &workerproto.Hello{})
		a, b := occasionOf(fingerprintOf("a")), occasionOf(fingerprintOf("b"))
		both := []string{a, b}
		slices.Sort(both)
		pass(renewPause + time.Second)
		fail = nil
		pass(renewEvery)
		require.Equal(t, [][]string{both, both}, calls, "the first one failed")
		pass(2 * renewPause)
		require.Len(t, calls, 3)
		u.end(2)
		pass(renewEvery)
		require.Equal(t, []string{a}, calls[3])
		types = nil
		pass(2 * renewEvery)
		require.Len(t, calls, 4, "there is no such schedule")
		mu.Unlock()
		stop()
		<-done
	})
}
