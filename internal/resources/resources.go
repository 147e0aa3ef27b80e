// Package resources keeps the daemon's memory near --memory-bytes. The settings of
// Go's runtime belong to the whole process, so only one Resources may be active.
package resources

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Resources holds what the daemon may use.
type Resources struct {
	Memory int // soft limit in bytes; 0 = none
	Log    *zap.Logger
}

// Collectors returns the metrics. Call it once.
func (f *Resources) Collectors() []prometheus.Collector {
	return []prometheus.Collector{newMemoryGauge()}
}
