package backend

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

// origin returns the Origin of what this dispatcher has.
func (b *Backend) origin() contract.Origin {
	return contract.Origin{Dispatcher: b.Dispatcher(), DispatcherName: b.Name}
}

// Slots implements httpapi.Backend.
func (b *Backend) Slots(local bool) (all []contract.Slot, notes []string) {
	return gather(b, local, func(s *contract.Summary) []contract.Slot { return s.SlotList })
}

// Workers implements httpapi.Backend.
func (b *Backend) Workers(local bool) (all []contract.Worker, notes []string) {
	return gather(b, local, func(s *contract.Summary) []contract.Worker { return s.Workers })
}

// Types implements httpapi.Backend.
func (b *Backend) Types(local bool) contract.TypePage {
	all, notes := gather(b, local, func(s *contract.Summary) []contract.Type { return s.Types })
	page := b.counted(all)
	page.Notes = notes
	return page
}

// byName orders dispatchers.
func byName(x, y contract.Member) int {
	return cmp.Or(strings.Compare(x.Name, y.Name), cmp.Compare(x.ID, y.ID))
}

// gather returns one list of all dispatchers in the order of their names, or of this one, and which rows are old or missing.
func gather[T any](b *Backend, local bool, of func(*contract.Summary) []T) (all []T, notes []string) {
	members, notes := b.members(local)
	slices.SortFunc(members, byName)
	for i := range members {
		if members[i].Lives() {
			all = append(all, of(&members[i].Summary)...)
		}
	}
	return all, notes
}

// Waiting implements httpapi.Backend.
func (b *Backend) Waiting() []contract.WaitingRequest {
	b.Loop.Order(actor.Tick{}) // updates the ages
	return actor.ListRequests(b.Loop)
}

// maxWorkerTypes bounds the types that are listed for a worker.
const maxWorkerTypes = 20

// workersOf returns the connected workers with their slots.
func (b *Backend) workersOf(slots []contract.Slot) []contract.Worker {
	workers := b.Connected()
	at := make(map[int64]int, len(workers))
	for i := range workers {
		at[workers[i].Session], workers[i].Origin = i, b.origin()
	}
	types := make([]map[string]bool, len(workers))
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

// counted completes types by the count of pending rows and by pauses, and adds those that no dispatcher knows.
func (b *Backend) counted(list []contract.Type) contract.TypePage {
	count, others, pauses, known := b.Pending.Latest(), b.Others(), map[string]*contract.Pause{}, map[string]bool{}
	of := make(map[string]*contract.PendingType, len(count.Types))
	for i := range list {
		known[list[i].Type] = true
	}
	add := func(name string) {
		if !known[name] {
			known[name], list = true, append(list, contract.Type{Type: name, OtherSlots: others[name]})
		}
	}
	for _, p := range b.Controls().Pauses {
		pauses[p.Type] = &p
		add(p.Type)
	}
	retries := b.Controls().Retries
	for _, typ := range slices.Sorted(maps.Keys(retries)) {
		add(typ)
	}
	for i := range count.Types {
		t := &count.Types[i]
		if of[t.Type] = t; t.Rows > 0 {
			add(t.Type)
		}
	}
	for i := range list {
		t := &list[i]
		t.Pending, t.Pause = count.absent(), pauses[t.Type]
		if p, has := retries[t.Type]; has {
			t.Retries = &p
		}
		if n := of[t.Type]; n != nil {
			t.Pending, t.OldestKeyed = &n.Rows, contract.Seconds(n.Keyed)
			if t.Capacity == 0 || t.Pause != nil { // the dispatcher reads no rows of the type
				t.Oldest = max(t.Oldest, contract.Seconds(n.Oldest))
			}
		}
	}
	return contract.TypePage{Page: contract.Page[contract.Type]{Items: list}, PendingAge: contract.Seconds(time.Since(count.At))}
}

// Summary returns what this dispatcher says of itself.
func (b *Backend) Summary() (s contract.Summary) {
	var g actor.Gauges
	b.Loop.Ask(func(c *actor.Core) { g = c.Gauges() })
	s.SlotCounts = contract.SlotCounts{Slots: g.Slots, Free: g.Free, Reserved: g.Reserved, Busy: max(g.Slots-g.Free-g.Reserved, 0)}
	s.PerSecond, s.Failures = b.Ends()
	alarm := func(holds bool, kind, text string) {
		if holds {
			s.Alarms = append(s.Alarms, contract.Alarm{Kind: kind, About: b.Name, Text: "dispatcher " + b.Name + ": " + text})
		}
	}
	alarm(g.CircuitOpen, "postgres", "Postgres does not answer it, so it claims no jobs")
	alarm(!b.Subscribed(), "notifications", "notifications of Postgres do not arrive, so it finds new jobs only by polling")
	alarm(b.CutOff(), "sockets", "the file of one of its sockets was replaced, so workers or callers cannot connect")
	alarm(g.Held > 0, "refused_ends", "Postgres refuses to record the ends of jobs; its log says why")
	alarm(g.Aside > 0, "refused_claims", "Postgres refuses to claim jobs; its log says which")
	s.SlotList = actor.ListSlots("", b.Loop)
	for i := range s.SlotList {
		s.SlotList[i].Origin = b.origin()
		if s.SlotList[i].State == "drained" {
			s.Busy, s.Drained = max(s.Busy-1, 0), s.Drained+1
		}
	}
	s.Workers, s.Types = b.workersOf(s.SlotList), actor.ListTypes(b.Loop)
	for i := range s.Types {
		s.Types[i].Origin = b.origin()
	}
	return s
}

// probePatience is how long the loop may take to answer a probe.
const probePatience = time.Second

// Checks implements httpapi.Backend.
func (b *Backend) Checks() []httpapi.Check {
	answer := make(chan actor.Gauges, 1)
	go func() {
		var g actor.Gauges
		if b.Loop.Ask(func(c *actor.Core) { g = c.Gauges() }) {
			answer <- g
		}
	}()
	select {
	case g := <-answer:
		notify := httpapi.Check{Name: "notify", OK: true, Info: "notifications arrive"}
		if !b.Subscribed() {
			notify.Info = "only polling finds new jobs"
		}
		return []httpapi.Check{
			{Name: "loop", OK: true},
			check("postgres", g.CircuitOpen, b.Outage(), "answers"),
			notify,
			check("sockets", b.CutOff(), "cannot be reached, as the log says", "can be reached"),
			check("serving", b.stopping(), "about to stop", "takes work"),
		}
	case <-time.After(probePatience):
		return []httpapi.Check{{Name: "loop"}}
	}
}

func check(name string, bad bool, why, info string) httpapi.Check {
	if bad {
		info = why
	}
	return httpapi.Check{Name: name, OK: !bad, Info: info}
}

// locate names the workers of running jobs. The loop knows those of this dispatcher. Others are asked for theirs if ask is set. Without it,
// the attempts that they named last are known: reading a job costs the cluster nothing.
func (b *Backend) locate(jobs []contract.Job, ask bool) {
	elsewhere := map[dispatcherd.JobID]*contract.Job{}
	for i := range jobs {
		if jobs[i].Status == dispatcherd.Running {
			elsewhere[jobs[i].ID] = &jobs[i]
		}
	}
	if len(elsewhere) == 0 {
		return
	}
	me := int(b.Dispatcher())
	b.Loop.Ask(func(c *actor.Core) {
		for id, j := range elsewhere { // order-free: each job has its own worker
			if given(j.Dispatcher) == me {
				delete(elsewhere, id)
				if _, attempt, worker := c.RunsOn(id); attempt == j.Attempt {
					j.Worker = &worker
				}
			}
		}
	})
	if len(elsewhere) == 0 {
		return
	}
	for _, m := range b.Cluster.view(ask) {
		for i := range m.SlotList {
			s := &m.SlotList[i]
			if j := elsewhere[s.Job]; j != nil && s.Attempt == j.Attempt {
				j.Worker = &s.Worker
			}
		}
	}
}

// running completes a filter by the jobs that its worker runs. The notes say which dispatchers may run others.
func (b *Backend) running(f contract.Filter) (_ contract.Filter, notes []string) {
	if f.Worker == "" {
		return f, nil
	}
	slots, notes := b.Slots(false)
	for i := range slots {
		if slots[i].Worker == f.Worker {
			f.At = append(f.At, slots[i].Job)
		}
	}
	return f, notes
}
