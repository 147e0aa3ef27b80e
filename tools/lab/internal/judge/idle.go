package judge

import (
	"cmp"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
)

// idleness answers whether some slot of a type executed nothing during a span,
// although no fault affected the slot or its dispatcher.
type idleness struct {
	byType map[string][]span // spans of one slot each, longer than the bound, sorted by from
}

type span struct {
	from, to int64
	slot     int32
	process  *history.Process
}

// newIdleness keeps spans of at least a given length, because shorter ones prove
// nothing.
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
	for _, spans := range all.byType { // order-free: each list is sorted on its own
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	}
	return all
}

// quiet returns the spans between the executions of a slot. An execution without an
// end occupies the slot until the process ends.
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

// without removes the troubles from a span.
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

// during returns a slot of the type that was idle for at least the given length
// while a job waited.
func (i *idleness) during(typ string, from, to int64, least time.Duration) (span, bool) {
	for _, s := range i.byType[typ] {
		if min(s.to, to)-max(s.from, from) > least.Nanoseconds() {
			return s, true
		}
	}
	return span{}, false
}

// FindStuck finds jobs that were due and committed but waited for longer than the
// bound, while one slot with their type was idle during that time and no fault kept
// a process from working. A job with keys may wait for its permits.
func (r *Report) FindStuck(h *history.History, bound time.Duration) {
	idle := newIdleness(h, bound)
	waits := map[int64]int64{} // time since which a job is due
	types, keyed := make(map[int64]string, len(h.Rows)), map[int64]bool{}
	for i := range h.Rows {
		keyed[h.Rows[i].Job] = h.Rows[i].Keys != ""
		types[h.Rows[i].Job] = h.Rows[i].Type
	}
	look := func(job, until int64) {
		since, waiting := waits[job]
		delete(waits, job)
		if !waiting || keyed[job] || until-since <= bound.Nanoseconds() {
			return
		}
		if s, found := idle.during(types[job], since, until, bound); found {
			r.find(&r.Stuck, "stuck", job, "it waited from %d to %d, and slot %d of %s, which offers %s, was idle from %d to %d",
				since, until, s.slot, s.process.Name, types[job], s.from, s.to)
		}
	}
	for i := range h.Changes {
		c := &h.Changes[i]
		_, waiting := waits[c.Job]
		if c.Kind == history.Updated && waiting {
			look(c.Job, c.At)
		}
		if c.Type != "" {
			types[c.Job] = c.Type
		}
		switch c.Kind {
		case history.Updated:
			if waiting {
				waits[c.Job] = max(c.At+history.Slack.Nanoseconds(), c.Due)
			}
		case history.Inserted, history.Back:
			waits[c.Job] = max(c.At+history.Slack.Nanoseconds(), c.Due)
		case history.Claimed, history.Ended, history.Adopted, history.Illegal:
			look(c.Job, c.At)
		case history.Lost:
		}
	}
	for i := range h.Rows {
		look(h.Rows[i].Job, cmp.Or(h.Over, Forever))
	}
}
