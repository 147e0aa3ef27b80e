package flow

import (
	"fmt"

	"github.com/dispatcherd/dispatcherd"
)

// state is what the rows say. Its rules are naive: they know no counters, records, messages or portions.
type state struct {
	m      *memory
	status map[dispatcherd.JobID]dispatcherd.Status
	ended  map[dispatcherd.JobID]bool // targets
	dead   map[dispatcherd.JobID]bool // targets whose members are cancelled
	parent map[dispatcherd.JobID]dispatcherd.JobID
}

func (m *memory) state() *state {
	s := &state{
		m, map[dispatcherd.JobID]dispatcherd.Status{}, map[dispatcherd.JobID]bool{}, map[dispatcherd.JobID]bool{},
		map[dispatcherd.JobID]dispatcherd.JobID{},
	}
	for id, j := range m.jobs {
		s.status[id], s.parent[id] = j.status, j.parent
	}
	for id, b := range m.batches {
		j := m.jobs[id]
		s.ended[id] = b.Ended
		s.dead[id] = !b.Ended && (b.CancelledBy != "" || j != nil && (j.asked || j.status.Final() && m.mentioned(id, id)))
	}
	return s
}

// dependency is the status of a job on which a node depends.
func (s *state) dependency(flow, id dispatcherd.JobID) dispatcherd.Status {
	for _, g := range s.m.edges[id] {
		if g.flow == flow && g.outside && (g.gone || !g.linked && s.m.jobs[id].dropped) {
			return dispatcherd.Cancelled
		}
	}
	return s.status[id]
}

// decide says whether something waits, runs or is cancelled, if that depends on the ends of jobs.
func decide(when string, statuses []dispatcherd.Status) dispatcherd.Status {
	bad := false
	for _, status := range statuses {
		if !status.Final() {
			return dispatcherd.Waiting
		}
		bad = bad || status != dispatcherd.Done
	}
	if when == "ended" || when == "done" && !bad || when == "failed" && bad {
		return dispatcherd.Pending
	}
	return dispatcherd.Cancelled
}

// retry applies the retry of a target when all messages are counted.
func (s *state) retry(id dispatcherd.JobID) {
	b := s.m.batches[id]
	bad := func(id dispatcherd.JobID) bool {
		return s.status[id] == dispatcherd.Failed || s.status[id] == dispatcherd.Cancelled
	}
	callback := s.m.jobs[id] != nil && bad(id) && !s.m.jobs[id].dropped
	some := callback
	for _, j := range s.m.jobs {
		some = some || s.parent[j.id] == id && bad(j.id)
	}
	if b.Kind == kindChildren || !some {
		return
	}
	s.ended[id], s.dead[id] = false, false
	if callback {
		s.status[id] = dispatcherd.Waiting
	}
	for _, j := range s.m.jobs {
		switch {
		case s.parent[j.id] != id || j.dropped || !bad(j.id):
		case s.m.batches[j.id] != nil && s.m.batches[j.id].Callback:
			s.retry(j.id)
		case b.Kind == kindFlow:
			s.status[j.id] = dispatcherd.Waiting
		default:
			s.status[j.id] = dispatcherd.Pending
		}
	}
}

// settle says what follows, until nothing does.
func (s *state) settle() {
	for changed := true; changed; {
		changed = false
		for id := range s.m.jobs {
			old := s.status[id]
			_, target := s.m.batches[id]
			switch n := s.m.node[id]; {
			case s.dead[s.parent[id]] && old == dispatcherd.Running:
				if target && !s.ended[id] && !s.dead[id] {
					s.dead[id], changed = true, true
				}
			case s.dead[s.parent[id]] && !old.Final():
				s.status[id] = dispatcherd.Cancelled
			case n != nil && old == dispatcherd.Waiting:
				var all []dispatcherd.Status
				for _, before := range n.after {
					all = append(all, s.dependency(n.flow, before))
				}
				s.status[id] = decide(n.RunWhen, all)
			}
			if s.status[id] != old {
				changed = true
				if target && !s.ended[id] && s.status[id].Final() {
					s.dead[id] = true
				}
			}
		}
		for id, b := range s.m.batches {
			if s.ended[id] || !b.Sealed && !s.dead[id] {
				continue
			}
			var all []dispatcherd.Status
			for _, j := range s.m.jobs {
				if s.parent[j.id] == id {
					all = append(all, s.status[j.id])
				}
			}
			outcome := decide(b.RunWhen, all)
			if outcome == dispatcherd.Waiting {
				continue
			}
			s.ended[id], changed = true, true
			if b.Callback && s.status[id] == dispatcherd.Waiting {
				s.status[id] = outcome
				if s.dead[id] {
					s.status[id] = dispatcherd.Cancelled
				}
			}
			s.dead[id] = false
		}
	}
}

// differs says in what the rows differ; "" = in nothing.
func (s *state) differs() string {
	for id, j := range s.m.jobs {
		if j.status != s.status[id] {
			return fmt.Sprintf("job %d is %s, the reference says %s", id, j.status, s.status[id])
		}
	}
	for id, b := range s.m.batches {
		if b.Ended != s.ended[id] {
			return fmt.Sprintf("target %d: ended is %v, the reference says %v", id, b.Ended, s.ended[id])
		}
	}
	return ""
}

// problem says which counter or record is wrong when all messages are counted; "" = none.
func (m *memory) problem() string {
	s := m.state()
	for _, n := range m.node {
		var open, bad int
		for _, before := range n.after {
			status := s.dependency(n.flow, before)
			if !status.Final() {
				open++
			} else if status != dispatcherd.Done {
				bad++
			}
			if record := m.record(n.flow, before); record.Status != status && (status.Final() || record.Status.Final()) {
				return fmt.Sprintf("flow %d records %d as %s, it is %s", n.flow, before, record.Status, status)
			}
		}
		if !n.Ready && (n.Open != open || n.Bad != bad) {
			return fmt.Sprintf("node %d counts %d open and %d bad dependencies, they are %d and %d", n.ID, n.Open, n.Bad, open, bad)
		}
	}
	for id, b := range m.batches {
		count := map[dispatcherd.Status]int{}
		for _, j := range m.jobs {
			if j.parent == id {
				count[j.Status]++
			}
			idle := j.status == dispatcherd.Pending || j.status == dispatcherd.Waiting
			if j.parent == id && b.CancelledBy != "" && !b.Ended && idle {
				return fmt.Sprintf("target %d is cancelled, and its member %d is %s", id, j.id, j.status)
			}
		}
		if b.Sealed && b.Open != count[dispatcherd.Pending] || b.Done != count[dispatcherd.Done] ||
			b.Failed != count[dispatcherd.Failed] || b.Cancelled != count[dispatcherd.Cancelled] {
			return fmt.Sprintf("target %d counts %+v, its members are %v", id, *b, count)
		}
	}
	return ""
}
