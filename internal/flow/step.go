package flow

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dispatcherd/dispatcherd"
)

type step struct {
	*View
	Change

	b      *Batch
	items  int  // jobs and dependants that may be counted
	rows   int  // that may be moved
	bytes  int  // of these
	passed bool // the flows of one message about the job with the id of the target
	over   bool // that job has ended
}

// Step decides what follows from what was read. It depends on its arguments only, and changes the view. Each limit is at least 1.
func Step(v *View, l Limits) Change {
	s := &step{View: v, b: &v.Batch, items: l.Items, rows: l.Items, bytes: l.Bytes}
	if s.b.Walk == "" {
		s.count()
	} else {
		s.walk()
	}
	s.link()
	if b := s.b; b.Kind != "" && b.Walk != Retry && !b.Ended && b.CancelledBy == "" { // a retry withdraws a cancellation
		if b.CancelledBy = v.Asked; b.CancelledBy == "" && s.over && !v.Alive {
			b.CancelledBy = "parent"
		}
		s.Look = s.Look || b.CancelledBy != "" && !v.Looks()
	}
	if s.b.Kind != "" && s.b.Walk == "" && !s.b.Ended {
		if s.b.CancelledBy == "" {
			s.release()
		} else if v.Looks() { // a cancellation that is not complete asks for another step
			s.cancel()
		}
		s.end()
	}
	for _, n := range v.Nodes {
		if n.changed {
			s.Change.Nodes = append(s.Change.Nodes, n)
		}
	}
	for i := range v.Records {
		if v.Records[i].changed {
			s.Change.Records = append(s.Change.Records, v.Records[i].Ended)
		}
	}
	s.more = s.more || v.MoreMessages
	s.Busy = s.Busy && len(s.Release)+len(s.Stop) == 0
	if !s.b.Sealed {
		s.b.Open = 0 // the seal counts it
	}
	s.Change.Batch = *s.b
	return s.Change
}

// count applies the messages in their order until a limit is reached. The rest of a message keeps its id, so it stays first.
func (s *step) count() {
	for _, m := range s.Messages {
		s.b.move(dispatcherd.Pending, dispatcherd.Done, m.Done)
		n, part := 0, m.Part
		for n < len(m.Jobs) && s.countJob(m.Jobs[n], &part) {
			n, part = n+1, 0
		}
		if n < len(m.Jobs) {
			s.Rest = &Message{Target: m.Target, ID: m.ID, Jobs: m.Jobs[n:], Part: part}
			return
		}
		s.Taken = append(s.Taken, m.ID)
		if m.Walk != "" && s.beginWalk(m.Walk) {
			return
		}
	}
}

// countJob reports whether the message about a job is counted completely. A job with many dependants is counted in portions. The record of
// an end is written with the first portion, because the nodes that are released read it. The record of a job that runs again is written
// with the last portion.
func (s *step) countJob(e Ended, part *int64) bool {
	if s.items == 0 {
		return false
	}
	if e.ID == s.b.ID {
		return s.pass(e, part)
	}
	r := find(s.View.Records, e.ID, func(r *Record) dispatcherd.JobID { return r.ID })
	if r.seen {
		return false // its edges were read for one message
	}
	r.seen = true
	old, fresh, told := r.Final, r.open() != e.open(), true
	if fresh || *part > 0 {
		if !fresh { // the record was written with an earlier portion
			old = Final{Status: dispatcherd.Pending}
		}
		told = s.tell(old, e, part)
	}
	if told {
		s.items--
	}
	if fresh && (told || *part > 0 && e.open() == 0) {
		if !r.Outside {
			s.b.count(r.Final, e)
		}
		r.Final, r.changed = e.Final, true
	}
	return told
}

// tell changes the counters of the nodes that depend on a job. A node without a row was deleted by hand.
func (s *step) tell(old Final, e Ended, part *int64) bool {
	edge := find(s.Edges, e.ID, func(e *Edge) dispatcherd.JobID { return e.Before })
	if edge == nil {
		return true
	}
	for len(edge.After) > 0 {
		if s.items == 0 {
			return false
		}
		n := find(s.View.Nodes, edge.After[0], func(n *Node) dispatcherd.JobID { return n.ID })
		s.items--
		*part++
		edge.After = edge.After[1:]
		if n == nil || n.Ready {
			continue
		}
		n.changed = true
		n.Open += e.open() - old.open()
		n.Bad += e.bad() - old.bad()
		n.Inputs += e.Size - old.Size
		if n.Bad == 0 {
			n.Reason = ""
		} else if n.Reason == "" {
			n.Reason = "dependency " + e.fate()
		}
	}
	return !edge.More
}

// pass tells the flows that depend on the job with the id of the target.
func (s *step) pass(e Ended, part *int64) bool {
	if s.passed {
		return false // the flows were read for one message
	}
	s.passed = true
	s.over = s.over || e.open() == 0
	for _, flow := range s.Flows {
		if s.items == 0 {
			return false
		}
		s.items--
		s.Send = append(s.Send, Message{Target: flow, Jobs: []Ended{e}})
		*part = int64(flow)
	}
	return !s.MoreFlows
}

// count moves a member from its old record to a new one.
func (b *Batch) count(old Final, e Ended) {
	b.move(old.Status, e.Status, 1)
	if b.Failed+b.Cancelled == 0 {
		b.Reason = ""
	} else if b.Reason == "" && e.bad() > 0 {
		b.Reason = "member " + e.fate()
	}
}

func (b *Batch) move(from, to dispatcherd.Status, n int) {
	for _, counter := range []struct {
		of dispatcherd.Status
		n  *int
	}{{dispatcherd.Pending, &b.Open}, {dispatcherd.Done, &b.Done}, {dispatcherd.Failed, &b.Failed}, {dispatcherd.Cancelled, &b.Cancelled}} {
		if counter.of == from {
			*counter.n -= n
		}
		if counter.of == to {
			*counter.n += n
		}
	}
}

// fate says what happened to a job that failed or was cancelled.
func (e *Ended) fate() string {
	if e.Status == dispatcherd.Cancelled {
		return fmt.Sprintf("%d was cancelled", e.ID)
	}
	return fmt.Sprintf("%d %s", e.ID, e.Status)
}

// find returns the element with an id; nil = there is none.
func find[T any](all []T, id dispatcherd.JobID, of func(*T) dispatcherd.JobID) *T {
	i, found := slices.BinarySearchFunc(all, id, func(t T, id dispatcherd.JobID) int { return cmp.Compare(of(&t), id) })
	if !found {
		return nil
	}
	return &all[i]
}
