package daemon

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// A session notifies of a thousand cancellations in a second.
func TestNotifiedCancellationsAreReadAHundredTimesPerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, cancelled := 0, 0
		service := cancels(func(context.Context) ([]dispatcherd.JobID, error) {
			reads++
			return []dispatcherd.JobID{7}, nil
		}, func(e actor.Event) { cancelled += len(e.(actor.CancelRequested).Jobs) })
		services := background.New(newServiceObserver(prometheus.NewRegistry(), zap.NewNop()), service)
		ctx, stop := context.WithCancel(t.Context())
		go services.Run(ctx)
		for range 1000 {
			services.Wake(contract.OperationsAsked)
			time.Sleep(time.Millisecond)
		}
		stop()
		synctest.Wait()
		require.InDelta(t, 100, reads, 10)
		require.Equal(t, reads, cancelled)
	})
}
