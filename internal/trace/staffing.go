package trace

import "slices"

// sliceMS is the interval of the staffing. In each half hour, as many agents
// are online as its work needs.
const sliceMS = 1800 * secondMS

// restMS is the minimum time between two sessions of an agent. In the measured
// records a shorter gap did not end a session.
const restMS = 900 * secondMS

// shift is the state of an agent while the sessions of the day are generated.
type shift struct {
	slot  Slot
	from  int64 // of the latest session
	until int64 // of the latest session; before the first one far in the past
}

// sessions generates the sessions of the agents. In each half hour, enough
// agents come online for the load in o. The lengths of their sessions have the
// measured distribution. cover keeps an agent of each type online. An agent
// that is online at the end of the day stays online.
func sessions(o GenerateOptions, t *Trace) []SlotEvent {
	d := newRandom(o.Seed, sessionDice)
	shifts := make([]shift, len(t.Slots))
	for i, s := range t.Slots {
		shifts[i] = shift{slot: s, until: -restMS}
	}
	var events []SlotEvent
	come := func(s *shift, at, length int64) {
		events = appendDrain(events, s)
		s.from, s.until = at, at+length
		events = append(events, SlotEvent{AtMS: at, Slot: s.slot.ID, Kind: Register})
	}
	for k, need := range agentsNeeded(o, t) {
		start := int64(k) * sliceMS
		for online := countOnline(shifts, start); online < need; online++ {
			rested := pickRested(d, shifts, start, "")
			if rested == nil {
				break // every agent is online or resting
			}
			come(rested, start+d.below(600*secondMS), sessionLength.draw(d))
		}
		for _, typ := range t.Types() {
			cover(d, shifts, start, typ, come)
		}
	}
	for i := range shifts {
		if shifts[i].until < dayMS() {
			events = appendDrain(events, &shifts[i])
		}
	}
	return events
}

// appendDrain appends the end of an agent's latest session, if there was one.
func appendDrain(events []SlotEvent, s *shift) []SlotEvent {
	if s.until < 0 {
		return events
	}
	return append(events, SlotEvent{AtMS: s.until, Slot: s.slot.ID, Kind: Drain})
}

// agentsNeeded returns how many agents must be online in each half hour: the
// work that arrives in the half hour, divided by the load. Batch work is
// spread evenly over the day, because it can wait.
func agentsNeeded(o GenerateOptions, t *Trace) []int {
	need := make([]int64, dayMS()/sliceMS)
	batch := int64(0)
	for _, j := range t.Jobs {
		if j.Priority < 3 {
			batch += j.DurationMS
			continue
		}
		need[j.ArrivalMS/sliceMS] += j.DurationMS
	}
	agents := make([]int, len(need))
	for k := range need {
		work := (need[k] + batch/int64(len(need))) * 100 / int64(o.Load)
		agents[k] = int((work + sliceMS - 1) / sliceMS)
	}
	return agents
}

func countOnline(shifts []shift, at int64) int {
	n := 0
	for _, s := range shifts {
		if s.until > at {
			n++
		}
	}
	return n
}

// pickRested returns a random agent that is offline, has rested, and supports
// typ. If typ is empty, any type is sufficient. It returns nil if there is no
// such agent.
func pickRested(d random, shifts []shift, at int64, typ string) *shift {
	var rested []*shift
	for i := range shifts {
		s := &shifts[i]
		if s.until+restMS <= at && (typ == "" || slices.Contains(s.slot.Types, typ)) {
			rested = append(rested, s)
		}
	}
	if len(rested) == 0 {
		return nil
	}
	return rested[d.below(int64(len(rested)))]
}

// cover ensures that an agent of a type is online during this half hour and
// the next. If no session lasts that long, an agent that has rested comes
// online. If there is none, cover extends the session that ends last.
func cover(d random, shifts []shift, start int64, typ string, come func(*shift, int64, int64)) {
	var longest *shift
	for i := range shifts {
		s := &shifts[i]
		if s.until > start && slices.Contains(s.slot.Types, typ) && (longest == nil || s.until > longest.until) {
			longest = s
		}
	}
	if longest != nil && longest.until >= start+2*sliceMS {
		return
	}
	if rested := pickRested(d, shifts, start, typ); rested != nil {
		come(rested, start, max(sessionLength.draw(d), 2*sliceMS))
		return
	}
	if longest != nil {
		longest.until = start + 2*sliceMS
	}
}
