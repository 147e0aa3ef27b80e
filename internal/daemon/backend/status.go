package backend

import (
	"maps"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

// Slots implements httpapi.Backend.
func (b *Backend) Slots(q httpapi.SlotQuery) (page []contract.Slot, next int64) {
	list, after := actor.ListSlots(actor.SlotQuery{After: dispatcherd.SlotID(q.After), Type: q.Type, Limit: q.Limit}, b.Loop)
	return append([]contract.Slot{}, list...), int64(after)
}

// Waiting implements httpapi.Backend.
func (b *Backend) Waiting() []httpapi.WaitingRequest {
	b.Loop.Order(actor.Tick{}) // updates the ages
	list := actor.ListRequests(b.Loop)
	views := make([]httpapi.WaitingRequest, len(list))
	for i, r := range list {
		views[i] = httpapi.WaitingRequest{ID: r.ID, Type: r.Type, Priority: r.Priority, Age: contract.Seconds(r.Age)}
	}
	return views
}

// maxWorkerTypes bounds the types that are listed for a worker.
const maxWorkerTypes = 20

// Workers implements httpapi.Backend.
func (b *Backend) Workers() []httpapi.Worker {
	workers := b.Connected()
	at := make(map[int64]int, len(workers))
	for i := range workers {
		at[workers[i].Session] = i
	}
	types := make([]map[string]bool, len(workers))
	slots, _ := actor.ListSlots(actor.SlotQuery{}, b.Loop)
	for i := range slots {
		s := &slots[i]
		n, connected := at[int64(s.Session)]
		if !connected {
			continue
		}
		w := &workers[n]
		w.Slots++
		if s.State == "free" {
			w.Free++
		}
		if s.Draining {
			w.Draining++
		}
		if s.Drain != nil {
			w.Drain = s.Drain
		}
		if types[n] == nil {
			types[n] = map[string]bool{}
		}
		for _, t := range s.Types {
			types[n][t] = true
		}
	}
	for i := range workers {
		all := slices.Sorted(maps.Keys(types[i]))
		workers[i].AllTypes, workers[i].Types = len(all), append([]string{}, all[:min(len(all), maxWorkerTypes)]...)
	}
	return workers
}

// Types implements httpapi.Backend.
func (b *Backend) Types() httpapi.TypePage {
	var others map[string]int
	b.Loop.Ask(func(c *actor.Core) { others = c.OtherCapacity() })
	known, count, pauses := actor.ListTypes(b.Loop), b.Pending.Latest(), b.Controls().Pauses
	views, of := make([]httpapi.Type, len(known)), make(map[string]*httpapi.Type, len(known)+len(count.Types))
	for i, t := range known {
		views[i] = httpapi.Type{
			Type: t.Name, Capacity: t.Capacity, Free: t.Free, OtherSlots: others[t.Name], Known: t.Known, Requests: t.Requests,
			Oldest: contract.Seconds(t.Oldest), Pending: count.absent(),
		}
		of[t.Name] = &views[i]
	}
	for i := range pauses {
		p := &pauses[i]
		if of[p.Type] == nil {
			of[p.Type] = &httpapi.Type{Type: p.Type, OtherSlots: others[p.Type], Pending: count.absent()}
		}
		of[p.Type].Pause = p
	}
	for _, t := range count.Types {
		v := of[t.Type]
		switch {
		case v == nil && t.Rows == 0:
			continue
		case v == nil:
			v = &httpapi.Type{Type: t.Type, OtherSlots: others[t.Type]}
			of[t.Type] = v
		}
		v.Pending, v.OldestKeyed = &t.Rows, contract.Seconds(t.Keyed)
		if v.Capacity == 0 || v.Pause != nil { // this dispatcher reads no rows of the type
			v.Oldest = max(v.Oldest, contract.Seconds(t.Oldest))
		}
	}
	list := make([]httpapi.Type, 0, len(of))
	for _, name := range slices.Sorted(maps.Keys(of)) {
		list = append(list, *of[name])
	}
	return httpapi.TypePage{Page: contract.Page[httpapi.Type]{Items: list}, PendingAge: contract.Seconds(time.Since(count.At))}
}

// probePatience is how long the loop may take to answer a probe.
const probePatience = time.Second

// Checks implements httpapi.Backend.
func (b *Backend) Checks() (alive bool, checks []httpapi.Check) {
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
		notify := httpapi.Check{Name: "notify", OK: true, Info: "notifications arrive"}
		if !b.Subscribed() {
			notify.Info = "only polling finds new jobs"
		}
		return true, []httpapi.Check{
			{Name: "postgres", OK: !g.CircuitOpen, Info: choose(g.CircuitOpen, b.Outage(), "answers")},
			notify,
			{Name: "sockets", OK: !b.CutOff(), Info: choose(b.CutOff(), "cannot be reached, as the log says", "can be reached")},
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
