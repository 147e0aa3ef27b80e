package schedule

import (
	"cmp"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// MaxQueued bounds the runs that have not ended and the queued ticks beside which queue_all queues another tick.
const MaxQueued = 10_000

// ReplacedReason is the reason of a tick that a later one with cancel_other has replaced.
const ReplacedReason = "a later run replaced it (cancel_other)"

// Facts are what Postgres says about a schedule. They are read under the lock of its row, so they hold until the decision is written.
type Facts struct {
	Locked  bool // by another session, so the other facts may be old
	Version int64
	Paused  bool
	Overlap string          // policy
	Handled *time.Time      // high-water mark of a cron schedule; nil = none, and for other kinds
	Open    int             // runs that have not ended; a bounded number
	Queued  int             // queued ticks, counted to MaxQueued
	Next    string          // occasion of the first queued tick; empty = none
	Cancels bool            // the first queued tick asks to cancel the open runs
	Made    map[string]bool // of the requested occasions, those that have a tick
}

// Request are ticks of one schedule that shall be made, in their order. A request without ticks asks whether a queued tick starts.
type Request struct {
	Schedule int64
	Ticks    []Tick // version 0 = any version of the schedule
	Overlap  string // policy; empty = that of the schedule
	Forced   bool   // a paused schedule runs, too
}

// Requests returns a request for the ticks of each schedule.
func Requests(ticks []Tick) (requests []Request) {
	places := map[int64]int{}
	for _, t := range ticks {
		i, found := places[t.Schedule]
		if !found {
			i = len(requests)
			places[t.Schedule] = i
			requests = append(requests, Request{Schedule: t.Schedule})
		}
		requests[i].Ticks = append(requests[i].Ticks, t)
	}
	return requests
}

// Decided is what becomes of a requested tick. The outcome is that of the tick or, if none is made, TickExists, TickChanged or TickLocked.
type Decided struct {
	Outcome, Reason string
}

// Decision is what is inserted and changed.
type Decision struct {
	Ticks   []Decided // one for each requested tick
	Start   string    // occasion of the queued tick that becomes a run; empty = none
	Replace bool      // the ticks that were queued before become skipped, with ReplacedReason
	Cancel  bool      // the runs that were open before shall be cancelled
	Waiting bool      // ticks are queued afterwards
}

// Decide says which requested ticks run, wait or are left out, and which queued tick starts. It depends on its arguments only. Facts are
// nil if the schedule was deleted.
//
// If no run is open, the first queued tick starts before the requested ticks are considered, because it is older. With cancel_other the
// last requested tick replaces the queued ticks instead, so that none starts only to be cancelled.
func Decide(f *Facts, r *Request) Decision {
	d := Decision{Ticks: make([]Decided, len(r.Ticks))}
	last := f.admit(r, d.Ticks)
	if f == nil || f.Locked {
		d.Waiting = f != nil
		return d
	}
	overlap := cmp.Or(r.Overlap, f.Overlap)
	open, waiting := f.Open, f.Queued
	switch {
	case overlap == contract.CancelOther && last >= 0:
		d.Replace, waiting = waiting > 0, 0
	case open == 0 && waiting > 0 && !f.Paused:
		d.Start, open, waiting = f.Next, 1, waiting-1
	}
	for i := range d.Ticks {
		t := &d.Ticks[i]
		if t.Outcome != "" {
			continue
		}
		*t = decideOne(overlap, open, waiting, i == last)
		switch t.Outcome {
		case contract.TickRun:
			open++
		case contract.TickQueued:
			waiting++
		}
	}
	d.Waiting = waiting > 0
	d.Cancel = f.Open > 0 && d.Waiting && (overlap == contract.CancelOther && last >= 0 || f.Cancels)
	return d
}

// admit sets the outcome of the ticks that do not depend on other runs, and returns the place of the last one that does; -1 = none.
func (f *Facts) admit(r *Request, decided []Decided) (last int) {
	last = -1
	seen := make(map[string]bool, len(r.Ticks))
	for i := range r.Ticks {
		t := &r.Ticks[i]
		switch {
		case f != nil && f.Locked:
			decided[i].Outcome = contract.TickLocked
		case f == nil, t.Version != 0 && t.Version != f.Version, f.Paused && !r.Forced:
			decided[i].Outcome = contract.TickChanged
		case seen[t.Occasion], f.Made[t.Occasion], !t.Planned.IsZero() && f.Handled != nil && !t.Planned.After(*f.Handled):
			decided[i].Outcome = contract.TickExists
		case t.Missed > 0:
			decided[i].Outcome = contract.TickMissed
		default:
			last = i
		}
		seen[t.Occasion] = true
	}
	return last
}

// decideOne applies a policy to a tick. Open and waiting are the runs that have not ended and the queued ticks, with those that the
// request has made before. Last says that no later tick of the request depends on other runs.
func decideOne(overlap string, open, waiting int, last bool) Decided {
	all := open + waiting
	switch {
	case overlap == contract.CancelOther && !last:
		return Decided{contract.TickSkipped, ReplacedReason}
	case overlap == contract.AllowAll, all == 0:
		return Decided{Outcome: contract.TickRun}
	case overlap == contract.CancelOther:
		return Decided{contract.TickQueued, "it waits for the end of the run that it cancels (cancel_other)"}
	case overlap == contract.QueueOne && all == 1, overlap == contract.QueueAll && all < MaxQueued:
		return Decided{Outcome: contract.TickQueued}
	}
	return Decided{contract.TickSkipped, fmt.Sprintf("runs not ended: %d, waiting: %d (%s)", open, waiting, overlap)}
}
