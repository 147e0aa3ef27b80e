package backend

import (
	"time"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/api"
)

// Slots implements api.Backend.
func (b *Backend) Slots() []api.Slot {
	return slotViews(b.Loop.Slots())
}

func slotViews(slots []actor.SlotInfo) []api.Slot {
	views := make([]api.Slot, len(slots))
	for i, s := range slots {
		views[i] = api.Slot{
			Slot: int64(s.ID), Worker: s.Worker, Session: int64(s.Session), Number: s.Number, Types: s.Types,
			State: s.State, Draining: s.Draining, Job: int64(s.Job), JobType: s.JobType, Attempt: int32(s.Attempt),
		}
	}
	return views
}

// Types implements api.Backend.
func (b *Backend) Types() []api.Type {
	types := b.Loop.Types()
	views := make([]api.Type, len(types))
	for i, t := range types {
		views[i] = api.Type{
			Type: t.Name, Capacity: t.Capacity, Free: t.Free, Cached: t.Cached, Requests: t.Requests, Oldest: t.Oldest.Seconds(),
		}
	}
	return views
}

// probePatience is how long the loop may take to answer a probe.
const probePatience = time.Second

// Checks implements api.Backend.
func (b *Backend) Checks() (alive bool, checks []api.Check) {
	asked := make(chan actor.Gauges, 1)
	go func() {
		var g actor.Gauges
		if b.Loop.Ask(func(c *actor.Core) { g = c.Gauges() }) {
			asked <- g
		}
	}()
	patience := time.NewTimer(probePatience)
	defer patience.Stop()
	select {
	case g := <-asked:
		notify := api.Check{Name: "notify", OK: true, Info: "notifications arrive"}
		if !b.Subscribed() {
			notify.Info = "only polling finds new jobs"
		}
		return true, []api.Check{
			{Name: "postgres", OK: !g.CircuitOpen, Info: choose(g.CircuitOpen, "does not answer", "answers")},
			notify,
			{Name: "serving", OK: !b.stopping(), Info: choose(b.stopping(), "about to stop", "takes work")},
		}
	case <-patience.C:
		return false, nil
	}
}

func choose(cond bool, yes, no string) string {
	if cond {
		return yes
	}
	return no
}
