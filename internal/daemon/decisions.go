package daemon

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/decisionlog"
)

// logDecisions creates the decision log and returns the observer of the loop that fills
// it.
func (d *Daemon) logDecisions() actor.Observer {
	if d.cfg.DecisionLog == 0 {
		return d.cfg.Observe
	}
	log, next := decisionlog.New(d.cfg.DecisionLog), d.cfg.Observe
	d.decisions = log
	d.metrics.registry.MustRegister(decisionMetrics(log)...)
	return func(c *actor.Core, now actor.Instant, ev actor.Event, fx []actor.Effect) {
		if made := c.Decisions(); len(made) > 0 {
			log.Append(time.Now(), made)
		}
		if next != nil {
			next(c, now, ev, fx)
		}
	}
}

func decisionMetrics(log *decisionlog.Log) []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "dispatcherd_decision_log_entries", Help: "Entries in the decision log; at most --decision-log.",
		}, func() float64 { return float64(log.Stats().Entries) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "dispatcherd_decision_log_overwritten_total", Help: "Entries of the decision log that newer ones have replaced.",
		}, func() float64 { return float64(log.Stats().Overwritten) }),
	}
}
