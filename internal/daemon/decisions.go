package daemon

import (
	"time"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/internal/decisionlog"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// logDecisions creates the decision log and returns the observer of the loop that fills it.
func (d *Daemon) logDecisions() actor.Observer {
	if d.cfg.DecisionLog == 0 {
		return d.cfg.Observe
	}
	log, next := decisionlog.New(d.cfg.DecisionLog), d.cfg.Observe
	d.decisions = log
	return func(c *actor.Core, now timing.Instant, ev event.Event, fx []effect.Effect) {
		if made := c.Decisions(); len(made) > 0 {
			log.Append(time.Now(), made)
		}
		if next != nil {
			next(c, now, ev, fx)
		}
	}
}
