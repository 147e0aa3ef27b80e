package daemon

import (
	"time"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/decisionlog"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// observer returns the observer of the loop. It counts jobs and fills the decision log,
// which it creates.
func (d *Daemon) observer() actor.Observer {
	if d.cfg.DecisionLog > 0 {
		d.decisions = decisionlog.New(d.cfg.DecisionLog)
	}
	jobs, log, next := d.metrics.jobs, d.decisions, d.cfg.Observe
	return func(c *actor.Core, now timing.Instant, ev actor.Event, fx []effect.Effect) {
		made := c.Decisions()
		jobs.observe(made, fx)
		if log != nil && len(made) > 0 {
			log.Append(time.Now(), made)
		}
		if next != nil {
			next(c, now, ev, fx)
		}
	}
}
