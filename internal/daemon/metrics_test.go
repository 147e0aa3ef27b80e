package daemon

import (
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

func TestResponsesAreCountedByRouteAndStatus(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := newAPIMetrics(registry, zap.NewNop())
	const all = 50
	var calls sync.WaitGroup
	for range all {
		calls.Go(func() {
			m.Responded("POST /v1/requests", 200, time.Second)
			m.Responded("POST /v1/requests", 504, time.Second)
			m.Responded("GET /livez", 200, 2*time.Second)
		})
	}
	calls.Wait()
	families, err := registry.Gather()
	require.NoError(t, err)
	seen := map[string]float64{}
	require.Equal(t, "dispatcherd_api_response_duration_seconds", families[1].GetName())
	for _, one := range families[1].GetMetric() {
		require.EqualValues(t, all, one.GetHistogram().GetSampleCount())
		seen[one.GetLabel()[0].GetValue()+" "+one.GetLabel()[1].GetValue()] = one.GetHistogram().GetSampleSum()
	}
	require.Equal(t, map[string]float64{"POST /v1/requests 200": all, "POST /v1/requests 504": all, "GET /livez 200": 2 * all}, seen)
}
