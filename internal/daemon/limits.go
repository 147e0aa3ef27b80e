package daemon

import "github.com/prometheus/client_golang/prometheus"

// boundMetrics exports the configured bounds of the loop and of the worker socket, with
// which alerts compare the gauges, and whether notifications arrive.
func boundMetrics(d *Daemon) []prometheus.Collector {
	limits := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "dispatcherd_limit", Help: "Configured bounds of the dispatcher and its workers.",
	}, []string{"limit"})
	core, workers := d.cfg.Core.Limits, d.cfg.Workers
	for name, value := range map[string]int{
		"slots": core.Slots, "types": core.Types, "requests": core.Requests, "unrecorded": core.Unfinished,
		"worker_connections": workers.MaxConnections, "slots_per_worker": workers.MaxSlots, "frame_bytes": workers.MaxFrame,
		"memory_bytes": d.cfg.Memory,
	} {
		limits.WithLabelValues(name).Set(float64(value))
	}
	notified := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "dispatcherd_notifications_arrive", Help: "1 while NOTIFY wakes the dispatcher, 0 while it only polls.",
	}, func() float64 {
		if d.listener.up.Load() {
			return 1
		}
		return 0
	})
	return []prometheus.Collector{limits, notified}
}
