package main

import (
	"fmt"
	"runtime"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stats"
)

// The size of the dispatcher, and the required bound of a portion of an answer.
const (
	introspectSlots = 100_000
	introspectTypes = 10_000
	mostHold        = time.Millisecond
)

// introspect asks a core that places jobs for lists, explanations and metrics, and measures
// how long each portion of an answer keeps the loop.
func introspect(rounds int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	d := busyDispatcher()
	holds := map[string][]float64{}
	for range rounds {
		began := len(d.steps)
		interrogate(d)
		for _, s := range d.steps[began:] {
			holds[s.event] = append(holds[s.event], ms(s.took))
		}
	}
	worst := 0.0
	for _, q := range questions {
		all := holds[q.name]
		fmt.Printf("%-22s %6d portions, p50 %5.2f ms, p99 %5.2f ms, longest %5.2f ms\n", q.name, len(all),
			stats.Quantile(all, 0.5), stats.Quantile(all, 0.99), stats.Quantile(all, 1))
		worst = max(worst, stats.Quantile(all, 0.99))
	}
	fmt.Printf("introspect: slots=%d types=%d loop_hold_p99_ms=%.2f\n", d.core.Gauges().Slots, len(actor.ListTypes(d.core)), worst)
	if worst > ms(mostHold) {
		return fmt.Errorf("a portion of an answer took %.2f ms, more than %v", worst, mostHold)
	}
	return nil
}

// questions are what the API, the metrics and the heartbeats ask the core.
var questions = []struct {
	name string
	ask  func(*driver)
}{
	{"list of slots", func(d *driver) { actor.ListSlots("", d) }},
	{"slots of a type", func(d *driver) { actor.ListSlots(types[7], d) }},
	{"list of types", func(d *driver) { actor.ListTypes(d) }},
	{"list of requests", func(d *driver) { actor.ListRequests(d) }},
	{"explanation of a row", func(d *driver) { actor.Explain(actor.Inquiry{ID: 1 << 40, Type: types[7], RunAt: 1_000_001}, d) }},
	{"explanation, request", func(d *driver) { actor.Explain(actor.Inquiry{ID: -dispatcherd.JobID(core.Requests)}, d) }},
	{"rank of a request", func(d *driver) { actor.RankOfRequest(-dispatcherd.JobID(core.Requests), d) }},
	{"metrics", func(d *driver) {
		d.Ask(func(c *actor.Core) { _, _ = c.Stats(), c.Gauges(); c.LastScan() })
	}},
	{"capacities", func(d *driver) { actor.Capacities(d) }},
}

// interrogate asks every question once.
func interrogate(d *driver) {
	for _, q := range questions {
		d.asks = q.name
		q.ask(d)
	}
}

// busyDispatcher has slots for all types with different sets, and more rows and requests
// than slots. Its jobs end and start while it is asked.
func busyDispatcher() *driver {
	d := newDriver(nil)
	next := int64(0)
	d.pending = func(q contract.LaneQuery) (keys []contract.Key) {
		for range min(q.Limit, 64) {
			next++
			keys = append(keys, contract.Key{RunAt: 1_000_000, ID: dispatcherd.JobID(next)})
		}
		return keys
	}
	for s := range introspectSlots / session.MaxSlots {
		var sets [][]string
		for i := range session.MaxSlots {
			first := (s*session.MaxSlots/4 + i) % (introspectTypes - 2)
			sets = append(sets, types[first:min(first+3+i%10, introspectTypes)])
		}
		d.register(dispatcherd.SessionID(s+1), sets)
	}
	for i := range core.Requests {
		d.step("requested", actor.Requested{Job: -dispatcherd.JobID(i + 1), Type: types[9_999], Wait: true, Deadline: time.Hour})
	}
	for range 100 {
		d.advance()
	}
	d.busy = true
	return d
}
