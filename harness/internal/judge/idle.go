package judge

import (
	"cmp"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/harness/internal/history"
)

// idleness answers whether a slot of a type did nothing all through a span in
// which no fault kept it, or its dispatcher, from working.
type idleness struct {
	byType map[string][]span // of one slot each, longer than the bound; sorted by from
}

type span struct {
	from, to int64
	slot     int32
	process  *history.Process
}

// newIdleness keeps the spans of at least that length: shorter ones prove nothing.
func newIdleness(h *history.History, least time.Duration) *idleness {
	all := &idleness{byType: map[string][]span{}}
	for i := range h.Processes {
		p := &h.Processes[i]
		end := cmp.Or(p.Killed, p.Died, h.Over)
		if h.Over != 0 {
			end = min(end, h.Over)
		}
		for slot, types := range p.Offers {
			for _, s := range quiet(p, slot, end) {
				for _, calm := range without(s, h.Troubles) {
					if calm.to-calm.from < least.Nanoseconds() {
						continue
					}
					for _, t := range types {
						all.byType[t] = append(all.byType[t], calm)
					}
				}
			}
		}
	}
	for _, spans := range all.byType { // order-free: each is sorted by itself
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	}
	return all
}

// quiet returns the spans between the executions of a slot. An execution without
// an end takes the slot for the rest of the process's life.
func quiet(p *history.Process, slot int32, end int64) (spans []span) {
	from := p.Began
	for i := range p.Runs {
		e := &p.Runs[i]
		if e.Slot != slot {
			continue
		}
		spans = append(spans, span{from, min(e.Start, end), slot, p})
		if e.End == 0 {
			return spans
		}
		from = e.End
	}
	return append(spans, span{from, end, slot, p})
}

// without cuts troubles out of a span.
func without(s span, troubles []history.Trouble) []span {
	left := []span{s}
	for _, t := range troubles {
		if t.Who != "" && t.Who != s.process.Keeper && t.Who != s.process.Daemon {
			continue
		}
		var next []span
		for _, l := range left {
			if t.To <= l.from || l.to <= t.From {
				next = append(next, l)
				continue
			}
			next = append(next, span{l.from, t.From, l.slot, l.process}, span{t.To, l.to, l.slot, l.process})
		}
		left = next
	}
	return left
}

// during returns a slot of the type that idled for at least that long while a
// job waited.
func (i *idleness) during(typ string, from, to int64, least time.Duration) (span, bool) {
	for _, s := range i.byType[typ] {
		if min(s.to, to)-max(s.from, from) > least.Nanoseconds() {
			return s, true
		}
	}
	return span{}, false
}

// FindStuck finds jobs that waited, due and committed, for longer than the bound
// while one slot that offers their type idled all that time and no process was kept
// from working.
func (r *Report) FindStuck(h *history.History, bound time.Duration) {
	idle := newIdleness(h, bound)
	waits := map[int64]int64{} // since when a job is due
	types := make(map[int64]string, len(h.Rows))
	for i := range h.Rows {
		types[h.Rows[i].Job] = h.Rows[i].Type
	}
	look := func(job, until int64) {
		since, waiting := waits[job]
		delete(waits, job)
		if !waiting || until-since <= bound.Nanoseconds() {
			return
		}
		if s, found := idle.during(types[job], since, until, bound); found {
			r.find(&r.Stuck, "stuck", job, "it waited from %d to %d, and slot %d of %s, which offers %s, did nothing from %d to %d",
				since, until, s.slot, s.process.Name, types[job], s.from, s.to)
		}
	}
	for i := range h.Changes {
		c := &h.Changes[i]
		switch c.Kind {
		case history.Inserted, history.Back:
			waits[c.Job] = max(c.At+history.Slack.Nanoseconds(), c.Due)
		case history.Claimed, history.Ended, history.Adopted, history.Illegal:
			look(c.Job, c.At)
		case history.Lost:
		}
	}
	for i := range h.Rows {
		look(h.Rows[i].Job, cmp.Or(h.Over, forever))
	}
}
