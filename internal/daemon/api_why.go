package daemon

import (
	"context"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/api"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// Why implements api.Backend. The row says what the job is, the core what it waits
// for now, and the decision log what was decided before.
func (b *backend) Why(ctx context.Context, id dispatcherd.JobID) (api.Why, error) {
	if id.OnDemand() {
		return b.whyRequest(id)
	}
	ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer cancel()
	job, err := b.jobs().Get(ctx, id)
	if err != nil {
		return api.Why{}, backendError(err)
	}
	me := int(b.store.Dispatcher())
	switch {
	case job.Status.Final():
		why := api.Why{Job: id, Type: job.Type, Mode: "queued", Priority: job.Priority, Status: job.Status, Reasons: []string{api.ReasonFinal}}
		b.addDecisions(&why, id)
		return why, nil
	case job.Status == dispatcherd.Running && job.Dispatcher != nil && *job.Dispatcher != me:
		return api.Why{
			Job: id, Type: job.Type, Mode: "queued", Priority: job.Priority, Status: job.Status,
			Reasons: []string{api.ReasonElsewhere}, Dispatcher: *job.Dispatcher,
		}, nil
	}
	x := b.explain(actor.Inquiry{
		ID: id, Type: job.Type, Priority: job.Priority, RunAt: job.RunAt.UnixMicro(), Failures: int32(job.Failures),
	})
	why := whyView(&x)
	b.addDecisions(&why, id)
	if job.Status == dispatcherd.Pending && why.Placement == nil {
		why.DecisionLog = "" // no placement is expected
	}
	why.Job, why.Type, why.Status, why.Priority = id, job.Type, job.Status, job.Priority
	return why, nil
}

// whyRequest explains a request, which only the core and the decision log know.
func (b *backend) whyRequest(id dispatcherd.JobID) (api.Why, error) {
	x := b.explain(actor.Inquiry{ID: id})
	if x.Mode != dispatcherd.OnDemand {
		return b.whyEndedRequest(id)
	}
	why := whyView(&x)
	why.Job, why.Status = id, dispatcherd.Pending
	b.addDecisions(&why, id)
	if slices.Contains(x.Reasons, actor.ReasonRunning) {
		why.Status = dispatcherd.Running
	} else if why.Placement == nil {
		why.DecisionLog = ""
	}
	return why, nil
}

func (b *backend) explain(q actor.Inquiry) (x actor.Explanation) {
	b.loop.Order(actor.Tick{}) // updates the ages
	b.loop.Ask(func(c *actor.Core) { x = c.Explain(q) })
	return x
}

func whyView(x *actor.Explanation) api.Why {
	score := scoreView(x.Terms)
	why := api.Why{
		Type: x.Type, Mode: x.Mode.String(), Priority: x.Priority, Reasons: make([]string, len(x.Reasons)),
		Age: x.Age.Seconds(), Score: &score,
		Rank: x.Rank, Waiting: x.Waiting, RankAll: x.RankAll, WaitingAll: x.WaitingAll, AtLeast: x.AtLeast, Competing: x.Competing,
		Capacity: x.Capacity, Free: x.Free, Elsewhere: x.OtherSlots, Slot: int64(x.Slot), Slots: slotViews(x.Slots),
	}
	for i, r := range x.Reasons {
		why.Reasons[i] = string(r)
	}
	for _, r := range x.Ahead {
		rival := api.Rival{Job: int64(r.ID), Mode: r.Mode.String(), Type: r.Type, Priority: r.Priority, Score: scoreView(r.Terms)}
		if r.Passed {
			after := r.After.Seconds()
			rival.Passed = &after
		}
		why.Ahead = append(why.Ahead, rival)
	}
	if x.Bounded {
		why.Overtaking = &api.Overtaking{Window: x.Window.Seconds(), Closes: x.Closes.Seconds()}
	}
	return why
}

// scoreView shows points, which the core keeps in thousandths.
func scoreView(t scoring.Terms) api.Score {
	points := func(m scoring.Milli) float64 { return float64(m) / 1000 }
	return api.Score{
		Total: points(t.Total()), Base: points(t.Base), Age: points(t.Age), Rarity: points(t.Rarity), OnDemand: points(t.OnDemand),
	}
}
