package daemon

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/api"
	"github.com/dispatcherd/dispatcherd/internal/decisionlog"
)

// logDecisions makes the decision log and returns the observer of the loop that
// fills it.
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

// addDecisions completes an explanation with what the decision log holds about
// the job. It reports whether the log holds anything.
func (b *backend) addDecisions(why *api.Why, id dispatcherd.JobID) bool {
	if b.decisions == nil {
		why.DecisionLog = api.DecisionLogOff
		return false
	}
	placed, ended := b.decisions.Find(id)
	if placed != nil {
		why.Placement = placementView(placed)
	}
	if ended != nil {
		why.Type, why.Priority = ended.Type, ended.Priority
		why.End = &api.End{
			At: ended.At, Attempt: int(ended.Attempt), Outcome: ended.OutcomeName(), Waited: ended.Waited.Seconds(), Ran: ended.Ran.Seconds(),
		}
	}
	switch {
	case placed != nil:
	case b.decisions.Stats().Overwritten > 0:
		why.DecisionLog = api.DecisionLogOverwritten
	default:
		why.DecisionLog = api.DecisionLogMissing
	}
	return placed != nil || ended != nil
}

func placementView(e *decisionlog.Entry) *api.Placement {
	p := &api.Placement{
		At: e.At, Attempt: int(e.Attempt), Slot: int64(e.Slot), Worker: e.Worker, Score: scoreView(e.Terms),
		Capacity: int(e.Capacity), SlotTypes: int(e.SlotTypes), Waited: e.Waited.Seconds(), WaitedFor: e.ReasonNames(),
	}
	if r := e.RunnerUp; r.Type != "" {
		p.RunnerUp = &api.RunnerUp{Job: int64(r.Job), Type: r.Type, Score: decisionlog.Points(r.Score)}
	}
	return p
}

// whyEndedRequest explains a request that is no longer in memory.
func (b *backend) whyEndedRequest(id dispatcherd.JobID) (api.Why, error) {
	why := api.Why{Job: id, Mode: dispatcherd.OnDemand.String(), Status: dispatcherd.Failed, Reasons: []string{api.ReasonFinal}}
	if !b.addDecisions(&why, id) || why.End == nil {
		return api.Why{}, api.ErrNotFound // it was never here, or its entries are overwritten
	}
	if why.End.Outcome == actor.AnswerDone.String() {
		why.Status = dispatcherd.Done
	}
	return why, nil
}
