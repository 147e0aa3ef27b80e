package flow

import "github.com/dispatcherd/dispatcherd"

// beginWalk reports whether there is something to walk through. A retry opens the target again, and its callback waits again.
func (s *step) beginWalk(what string) bool {
	b := s.b
	if what == Retry {
		runs := b.Callback && s.Alive && s.Waiting == NoRow
		waits := b.Ended && s.Waiting != NoRow       // the retry of an outer batch has moved the callback
		cancelled := b.CancelledBy != "" && !b.Ended // the retry withdraws this
		if b.Kind == kindChildren || runs || b.Failed+b.Cancelled == 0 && s.CallbackBad == nil && !waits && !cancelled {
			return false
		}
		b.Ended, b.CancelledBy = false, ""
		if s.CallbackBad != nil {
			s.Again = append(s.Again, Again{*s.CallbackBad, dispatcherd.Waiting})
		}
	}
	b.Walk, b.Walked, s.Look = what, 0, true
	return true
}

// walk handles the next nodes in the order of their places, or the next records of members. Dependencies of a node have lower places, so
// their records are right when the counters of the node are counted again.
func (s *step) walk() {
	b, from := s.b, s.b.Walked
	s.Repairs = b.Walk == Repair
	for _, w := range s.Walk {
		b.Walked = w.Place
		switch {
		case b.Walk == Retry && w.bad() > 0 && w.Exists:
			s.again(w)
		case b.Walk == Retry && w.bad() > 0:
			b.Reason = "member " + w.fate() + ", and cannot run again: retention has deleted its row, or another job has its unique key"
		case b.Walk == Repair && w.open() > 0 && !w.Exists:
			deleted := Ended{w.ID, Final{Status: dispatcherd.Cancelled}}
			b.count(w.Final, deleted)
			s.Change.Records = append(s.Change.Records, deleted)
		}
	}
	if b.Kind == kindFlow && b.Walked > from {
		s.Recount = [2]int64{from + 1, b.Walked}
	}
	s.Look = true
	if s.MoreWalk {
		return
	}
	if gone := b.Open - s.Members; b.Walk == Repair && b.Kind != kindFlow && b.Sealed && gone != 0 {
		b.move(dispatcherd.Pending, dispatcherd.Cancelled, max(gone, 0))
		b.Open = s.Members
		if b.Reason == "" && gone > 0 {
			b.Reason = "a member was deleted"
		}
		s.Wrong = 1
	}
	b.Walk, b.Walked = "", 0
}

// again opens the record of a node or member. A node waits for its dependencies. The callback of a batch waits for its own members, some
// of which run again.
func (s *step) again(w Walked) {
	open := Ended{w.ID, Final{Status: dispatcherd.Pending}}
	s.b.count(w.Final, open)
	s.Change.Records = append(s.Change.Records, open)
	to := dispatcherd.Waiting
	if w.Nested {
		s.Send = append(s.Send, Message{Target: w.ID, Walk: Retry})
	} else if s.b.Kind != kindFlow {
		to = dispatcherd.Pending
	}
	s.Again = append(s.Again, Again{w.Ended, to})
}

// link takes the jobs outside the flow on which nodes depend. The end of one that is live will be reported. One that has ended is reported
// now, and one without a row counts as cancelled.
func (s *step) link() {
	for _, o := range s.Outside {
		switch {
		case o.Busy:
			s.Look, s.Busy = true, true
			continue
		case o.Gone:
			o.Status = dispatcherd.Cancelled
			fallthrough
		case o.open() == 0:
			s.Send = append(s.Send, Message{Target: s.b.ID, Jobs: []Ended{o.Ended}})
		}
		s.Linked = append(s.Linked, o.ID)
	}
	s.Look = s.Look || s.MoreOutside
}
