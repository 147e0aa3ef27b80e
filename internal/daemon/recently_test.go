package daemon

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/prometheus/client_golang/prometheus"
)

func TestEndsAreCountedForAMinuteAndFailuresForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJobMetrics(prometheus.NewRegistry())
		end := func(outcome contract.Outcome, started bool) {
			j.observe([]actor.Decision{{Kind: actor.DecisionEnded, Type: "pdf", Outcome: outcome, Started: started}}, nil)
		}
		for range 90 {
			end(contract.Succeeded, true)
		}
		for range 2 {
			end(contract.Retry, true)
			end(contract.Quarantined, true)
			end(contract.Cancelled, false)
		}
		counts := func() [2]float64 {
			perSecond, failures := j.ends()
			return [2]float64{perSecond, float64(failures)}
		}
		require.Equal(t, [2]float64{94.0 / 60, 4}, counts())
		<-time.After(58 * time.Second)
		require.Equal(t, [2]float64{94.0 / 60, 4}, counts())
		<-time.After(2 * time.Second)
		require.Equal(t, [2]float64{0, 4}, counts())
		end(contract.FailedFinal, true)
		<-time.After(58 * time.Minute)
		require.Equal(t, [2]float64{0, 5}, counts())
		<-time.After(2 * time.Minute)
		require.Zero(t, counts())
		end(contract.Crashed, true)
		<-time.After(1000 * time.Hour)
		require.Zero(t, counts())
	})
}
