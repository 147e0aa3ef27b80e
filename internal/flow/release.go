package flow

import (
	"cmp"
	"fmt"

	"github.com/dispatcherd/dispatcherd"
)

// maxInputs is the largest sum of results, in bytes, that a node takes from its dependencies.
const maxInputs = 1_000_000

// release handles the nodes whose dependencies have all ended.
func (s *step) release() {
	s.Look = s.Look || s.MoreNodes
	for i := range s.View.Nodes {
		n := &s.View.Nodes[i]
		inputs := n.Inputs
		if !n.TakesResults || inputs > maxInputs {
			inputs = 0 // they are not read
		}
		if n.Open > 0 || n.Ready || !s.fits(n.Waiting, inputs) {
			continue
		}
		n.Ready, n.changed = true, true
		switch {
		case n.Waiting == NoRow:
		case !Runs(n.RunWhen, n.Bad):
			s.stop(n.ID, dispatcherd.Cancelled, cmp.Or(n.Reason, "no dependency failed"))
		case n.TakesResults && n.Inputs > maxInputs:
			s.stop(n.ID, dispatcherd.Failed, fmt.Sprintf(
				"the results of the dependencies cannot be passed on: they have %d bytes, at most %d are possible", n.Inputs, maxInputs))
		default:
			s.Release = append(s.Release, n.ID)
			s.Inputs = s.Inputs || n.TakesResults
		}
	}
}

// end ends the target after its last member, and releases or cancels its callback.
func (s *step) end() {
	b := s.b
	if !b.Sealed || b.Open > 0 || b.Callback && !s.fits(s.Waiting, 0) {
		return
	}
	b.Ended = true
	switch {
	case !b.Callback || s.Waiting == NoRow:
	case b.CancelledBy != "":
		s.stop(b.ID, dispatcherd.Cancelled, "the batch was cancelled")
	case !Runs(b.RunWhen, b.Failed+b.Cancelled):
		s.stop(b.ID, dispatcherd.Cancelled, cmp.Or(b.Reason, "no member failed"))
	default:
		s.Release = append(s.Release, b.ID)
	}
}

// Runs reports whether a node or callback runs, of whose dependencies or members bad have failed or were cancelled.
func Runs(when string, bad int) bool { return when == "ended" || (when == "failed") == (bad > 0) }

// fits takes a waiting row from the limits. One that does not fit, or is locked, is left to a later step. The first one always fits.
func (s *step) fits(waiting, inputs int) bool {
	size := max(waiting, 0) + inputs
	if waiting == Locked {
		s.Busy = true
	}
	if waiting == Locked || s.rows == 0 || len(s.Release)+len(s.Stop) > 0 && size > s.bytes {
		s.Look = true
		return false
	}
	s.rows--
	s.bytes -= size
	return true
}

func (s *step) stop(id dispatcherd.JobID, status dispatcherd.Status, reason string) {
	s.Stop = append(s.Stop, Stop{id, status, "flow", reason})
}

// cancel ends the members that are pending or waiting, and asks those that run to end. When no others can come, it seals the target.
func (s *step) cancel() {
	left := s.MoreCancel
	for _, m := range s.Cancel {
		switch {
		case m.Runs:
			s.Ask = append(s.Ask, m.ID)
			if m.Target { // so its members need not wait for its end
				s.Send = append(s.Send, Message{Target: m.ID})
			}
		case s.fits(m.Waiting, 0):
			s.Stop = append(s.Stop, Stop{m.ID, dispatcherd.Cancelled, s.b.CancelledBy, ""})
		default:
			left = true
		}
	}
	if s.b.Sealed || s.NoInserts && !left {
		s.b.Open += number(!s.b.Sealed) * s.Members
		s.b.Sealed = true
	} else {
		s.Busy = s.Busy || !s.NoInserts
		left = true
	}
	s.Look = s.Look || left
}
