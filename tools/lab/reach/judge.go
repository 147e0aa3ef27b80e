package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/decisionlog"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// verdict counts what judgePlacements has found.
type verdict struct {
	placements int
	choices    int // placements for which slots with different numbers of types were free
	misplaced  int // placements although a slot with fewer types was free
	wrong      int // decisions that contradict the rule or the offers
}

// onTheWay is how long a dispatcher may not know that a slot was added or removed.
const onTheWay = 200 * time.Millisecond

// placementJudge repeats a decision log. From the order of its entries it knows which slots are busy.
type placementJudge struct {
	verdict

	weights scoring.Weights
	slots   map[string]*offered
	busy    map[string]int64 // job by slot
	places  map[int64]place  // by job
}

// place is where a job was placed, and when.
type place struct {
	slot string
	at   time.Time
}

// judgePlacements checks each placement of a decision log: that its score is that of the rule for the recorded state and not below that of
// the runner-up, that the slot supports the type and is free, and that no slot with fewer types is free.
func judgePlacements(w scoring.Weights, slots map[string]*offered, log []decisionlog.Line) verdict {
	p := &placementJudge{weights: w, slots: slots, busy: map[string]int64{}, places: map[int64]place{}}
	for i := range log {
		switch d := &log[i]; d.Decision {
		case "placed":
			p.placed(d)
		case "ended":
			p.leave(d.Job)
		}
	}
	return p.verdict
}

// leave makes the slot of a job free.
func (p *placementJudge) leave(job int64) {
	if at, ok := p.places[job]; ok {
		delete(p.places, job)
		delete(p.busy, at.slot)
	}
}

func (p *placementJudge) placed(d *decisionlog.Line) {
	p.placements++
	if other, taken := p.busy[d.Worker]; taken { // the claim of the other job was not sent yet, or has failed
		r, again := d.RunnerUp, p.slots[d.Worker].addedBetween(p.places[other].at, d.At) // a removed slot gives its job back
		if d.Mode == "on_demand" && (r == nil || r.Job != other) && !again {
			p.contradiction(d, "its slot was taken by job %d", other)
		}
		p.leave(other)
	}
	p.leave(d.Job)
	slot := p.slots[d.Worker]
	if slot == nil || !slices.Contains(slot.types, d.Type) || int(d.SlotTypes) != len(slot.types) {
		p.contradiction(d, "slot %s does not support it or has another number of types", d.Worker)
		return
	}
	p.score(d)
	fewest, most := len(slot.types), len(slot.types)
	for name, s := range p.slots { // order-free: the extremes
		if _, taken := p.busy[name]; !taken && slices.Contains(s.types, d.Type) && s.free(d.At) {
			fewest, most = min(fewest, len(s.types)), max(most, len(s.types))
		}
	}
	if fewest < most {
		p.choices++
	}
	if fewest < len(slot.types) {
		p.misplaced++
		p.contradiction(d, "a slot with %d types was free, and it got one with %d", fewest, len(slot.types))
	}
	p.busy[d.Worker], p.places[d.Job] = d.Job, place{d.Worker, d.At}
}

// free reports whether the dispatcher certainly knew the slot at an instant.
func (o *offered) free(at time.Time) bool {
	for _, t := range o.times {
		if t.from.Add(onTheWay).Before(at) && (t.until.IsZero() || at.Add(onTheWay).Before(t.until)) {
			return true
		}
	}
	return false
}

// addedBetween reports whether the slot was added, again, between two instants.
func (o *offered) addedBetween(from, to time.Time) bool {
	return slices.ContainsFunc(o.times, func(t offer) bool { return t.from.After(from) && t.from.Before(to) })
}

// score compares the score with that of the rule, and with that of the runner-up.
func (p *placementJudge) score(d *decisionlog.Line) {
	mode := dispatcherd.Queued
	if d.Mode == "on_demand" {
		mode = dispatcherd.OnDemand
	}
	age := int64(math.Round(*d.Waited * 1000))
	want := p.weights.Score(mode, dispatcherd.Priority(d.Priority), age, int(d.Capacity))
	if total := want.Total().Points(); math.Abs(total-d.Score.Total) > 0.001 {
		p.contradiction(d, "its score is %v, by the rule %v", d.Score.Total, total)
	}
	if r := d.RunnerUp; r != nil && r.Score > d.Score.Total {
		p.contradiction(d, "the runner-up, job %d, has the score %v, and it has %v", r.Job, r.Score, d.Score.Total)
	}
}

// contradiction counts a decision against the rule, and prints the first ones.
func (p *placementJudge) contradiction(d *decisionlog.Line, format string, args ...any) {
	if p.wrong++; p.wrong <= 10 {
		fmt.Fprintf(os.Stderr, "reach: placement: job %d of type %s at %v: %s\n", d.Job, d.Type, d.At, fmt.Sprintf(format, args...))
	}
}
