package daemon

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// A session notifies of a thousand cancellations in a second. Only every hundredth is in the table.
func TestNotifiedCancellationsAreReadAHundredTimesPerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		var read, cancelled []dispatcherd.JobID
		c := cancels{read: func(_ context.Context, ids []dispatcherd.JobID) (asked []dispatcherd.JobID, err error) {
			if reads++; reads == 50 {
				return nil, errors.New("Postgres does not answer")
			}
			read = append(read, ids...)
			return slices.DeleteFunc(slices.Clone(ids), func(id dispatcherd.JobID) bool { return id%100 != 0 }), nil
		}, order: func(e event.Event) {
			cancelled = append(cancelled, e.(event.CancelRequested).Jobs...)
		}}
		services := background.New(newServiceObserver(prometheus.NewRegistry(), zap.NewNop()), c.service())
		ctx, stop := context.WithCancel(t.Context())
		go services.Run(ctx)
		for id := range dispatcherd.JobID(1000) {
			c.note(id)
			services.Wake(contract.CancelAsked)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		stop()
		synctest.Wait()
		require.InDelta(t, 100, reads, 10)
		require.Greater(t, len(read), 980)
		require.GreaterOrEqual(t, len(cancelled), 9)
		for _, id := range cancelled {
			require.Zero(t, id%100)
		}
	})
}
