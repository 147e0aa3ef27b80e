// Package resources keeps small what a daemon takes of its machine: on how many
// processors it runs at once (--procs), and its memory (--memory-bytes). Both belong to
// the whole process, so only one Footprint may steer at a time.
package resources

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Footprint is what a daemon was told to keep to.
type Footprint struct {
	Procs  Procs
	Memory int                  // soft limit in bytes; 0 = leave it alone
	Idle   func() time.Duration // of the processor time used so far, what the daemon could have slept
	Log    *zap.Logger

	changed *prometheus.CounterVec
}

// Collectors returns the metrics; to be called once, before anything is steered.
func (f *Footprint) Collectors() []prometheus.Collector {
	f.changed = newProcsCounter()
	return []prometheus.Collector{f.changed, newMemoryGauge()}
}
