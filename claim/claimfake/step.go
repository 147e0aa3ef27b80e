package claimfake

import (
	"cmp"
	"maps"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow"
)

// flowStep is a step of a target; see flowstore.Store.Step. It has one round.
type flowStep struct {
	target dispatcherd.JobID
	limits flow.Limits
	change flow.Change
}

// Stepped is the result of a step.
type Stepped struct {
	Messages               int // that it has handled
	Left, Busy, OthersTold bool
}

// beginStep locks the target.
func (s *Statement) beginStep(int64) State {
	t, id := s.table, s.step.target
	if t.flows.locks[id] != nil {
		s.Stepped.Left, s.Stepped.Busy = true, true
		return s.done(contract.OK)
	}
	t.flows.locks[id] = s
	return s.then((*Statement).decideStep)
}

// decideStep reads the target and the rows of waiting jobs, which it locks, and decides.
func (s *Statement) decideStep(int64) State {
	s.step.change = flow.Step(s.view(), s.step.limits)
	return s.then((*Statement).commitStep)
}

// due reads which targets have messages.
func (s *Statement) due(int64) State {
	s.Due = slices.Sorted(maps.Keys(s.table.flows.ends))
	return s.done(contract.OK)
}

// waiting locks a row that has one of the statuses, and returns flow.Node.Waiting.
func (s *Statement) waiting(id dispatcherd.JobID, statuses ...dispatcherd.Status) int {
	switch r := s.table.rows[id]; {
	case r == nil || !slices.Contains(statuses, r.Status):
		return flow.NoRow
	case r.lock != s && !s.lock(r):
		return flow.Locked
	default:
		return len(r.Payload)
	}
}

func (s *Statement) view() *flow.View {
	t, id := s.table, s.step.target
	v := &flow.View{Batch: flow.Batch{ID: id}, Waiting: flow.NoRow}
	b := t.flows.targets[id]
	if b != nil {
		v.Batch = b.Batch
	}
	own := t.rows[id]
	v.Alive = own != nil && !own.Status.Final() || t.Skip&CheckChildren != 0
	if slices.Contains(t.cancels, id) {
		v.Asked = "user"
	}
	s.viewMessages(v)
	if b == nil || b.Ended {
		return v
	}
	v.Waiting = s.waiting(id, dispatcherd.Waiting)
	v.NoInserts = true
	if b.CancelledBy != "" || v.Asked != "" || !v.Alive {
		if v.Looks() {
			s.viewCancel(v, b)
		}
		return v
	}
	for _, e := range b.outside {
		switch {
		case e.linked:
			continue
		case len(v.Outside) == s.step.limits.Items:
			v.MoreOutside = true
			return v
		}
		r := t.rows[e.before]
		busy := !r.Status.Final() && r.lock != s && !s.lock(r) || len(t.flows.ends[r.ID]) > 0 && t.Skip&CheckLinked == 0
		v.Outside = append(v.Outside, flow.Outside{Ended: flow.Ended{ID: r.ID, Final: r.final()}, Busy: busy})
	}
	return v
}

// viewMessages reads the first messages, and what concerns the jobs that they list.
func (s *Statement) viewMessages(v *flow.View) {
	f, id, most := &s.table.flows, v.Batch.ID, s.step.limits.Items
	seen, hits, jobs, edges, look := map[dispatcherd.JobID]bool{}, map[dispatcherd.JobID]int{}, 0, most, false
	for _, m := range f.ends[id] {
		if v.MoreMessages = len(v.Messages) == most || jobs >= most; v.MoreMessages {
			break
		}
		v.Messages = append(v.Messages, m)
		jobs += len(m.Jobs)
		look = look || len(m.Jobs) == 0 && m.Done == 0
		for i, j := range m.Jobs {
			part := m.Part
			if i > 0 {
				part = 0
			}
			switch {
			case seen[j.ID]:
			case j.ID == id:
				v.Flows, v.MoreFlows = f.behind(id, part, most)
			default:
				v.Records = append(v.Records, s.table.record(id, j.ID))
				edges -= s.viewEdge(v, j.ID, part, edges, hits)
			}
			seen[j.ID] = true
		}
	}
	if b := f.targets[id]; look && b != nil && b.Kind == "flow" {
		s.viewReady(v, b, hits)
	}
	slices.SortFunc(v.Records, func(a, b flow.Record) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(v.Edges, func(a, b flow.Edge) int { return cmp.Compare(a.Before, b.Before) })
	for _, a := range slices.Sorted(maps.Keys(hits)) {
		n := f.nodes[a].Node
		if n.Waiting = flow.Locked; n.Open <= hits[a] {
			n.Waiting = s.waiting(a, dispatcherd.Waiting)
		}
		v.Nodes = append(v.Nodes, n)
	}
}

// viewEdge reads at most `most` dependants of a job behind part of them.
func (s *Statement) viewEdge(v *flow.View, job dispatcherd.JobID, part int64, most int, hits map[dispatcherd.JobID]int) int {
	for _, e := range s.table.flows.edges[job] {
		if e.flow == v.Batch.ID {
			after := e.after[part:]
			read := after[:min(len(after), most)]
			v.Edges = append(v.Edges, flow.Edge{Before: job, After: read, More: len(after) > len(read)})
			for _, a := range read {
				hits[a]++
			}
			return len(read)
		}
	}
	return 0
}

// viewReady reads the first nodes that are to be released.
func (s *Statement) viewReady(v *flow.View, b *target, hits map[dispatcherd.JobID]int) {
	found := 0
	for _, id := range b.members {
		if n := s.table.flows.nodes[id]; !n.Ready && n.Open == 0 && n.Status == dispatcherd.Pending {
			if found++; found > s.step.limits.Items {
				v.MoreNodes = true
				return
			}
			hits[id] += 0
		}
	}
}

// behind returns the flows above part that depend on a job.
func (f *flows) behind(id dispatcherd.JobID, part int64, most int) (list []dispatcherd.JobID, more bool) {
	for _, e := range f.edges[id] {
		if e.linked && int64(e.flow) > part {
			list = append(list, e.flow)
		}
	}
	slices.Sort(list)
	return list[:min(len(list), most)], len(list) > most
}

// record is what a target has counted of a job.
func (t *Table) record(target, id dispatcherd.JobID) flow.Record {
	r := flow.Record{Ended: flow.Ended{ID: id, Final: pending}}
	if n := t.flows.nodes[id]; n != nil && n.flow == target {
		r.Final = n.Final
		return r
	}
	for _, e := range t.flows.edges[id] {
		if e.flow == target {
			r.Outside = true
			if t.Skip&CheckLinked == 0 {
				r.Final = e.Final
			}
			return r
		}
	}
	if b := t.flows.targets[target]; b != nil {
		if bad, found := b.bad[id]; found {
			r.Final = bad
		}
	}
	return r
}

// viewCancel reads members that have not ended.
func (s *Statement) viewCancel(v *flow.View, b *target) {
	t := s.table
	v.Members = t.openMembers(b)
	for _, id := range b.members {
		r := t.rows[id]
		runs := r.Status == dispatcherd.Running
		switch {
		case r.Status.Final() || runs && slices.Contains(t.cancels, id):
			continue
		case len(v.Cancel) == s.step.limits.Items:
			v.MoreCancel = true
			return
		}
		m := flow.Member{ID: id, Runs: runs, Target: t.flows.targets[id] != nil}
		if !runs {
			m.Waiting = s.waiting(id, dispatcherd.Pending, dispatcherd.Waiting)
		}
		v.Cancel = append(v.Cancel, m)
	}
}

// commitStep writes the change.
func (s *Statement) commitStep(now int64) State {
	t, c := s.table, &s.step.change
	t.commits++
	s.Stepped = Stepped{Messages: len(c.Taken), Left: c.Left(), Busy: c.Busy, OthersTold: len(c.Send)+len(c.Stop) > 0}
	ends := slices.DeleteFunc(slices.Clone(t.flows.ends[s.step.target]), func(m flow.Message) bool {
		return slices.Contains(c.Taken, m.ID) && (m.Done == 0 || t.Skip&CheckCounted == 0)
	})
	for i := range ends {
		if c.Rest != nil && ends[i].ID == c.Rest.ID {
			ends[i] = *c.Rest
		}
	}
	if t.flows.ends[s.step.target] = ends; len(ends) == 0 {
		delete(t.flows.ends, s.step.target)
	}
	if b := t.flows.targets[s.step.target]; b != nil {
		t.writeTarget(b, c)
	}
	for _, id := range c.Release {
		t.proceed(now, id, true)
	}
	for _, stop := range c.Stop {
		t.stop(now, stop)
	}
	for _, id := range c.Ask {
		if t.rows[id].Status == dispatcherd.Running {
			t.Cancel(id)
		}
	}
	for _, m := range c.Send {
		t.send(m)
	}
	if c.Look {
		t.send(flow.Message{Target: s.step.target})
	}
	return s.done(contract.OK)
}

// writeTarget writes counters and records.
func (t *Table) writeTarget(b *target, c *flow.Change) {
	b.Batch = c.Batch
	for _, n := range c.Nodes {
		t.flows.nodes[n.ID].Node = n
	}
	for _, r := range c.Records {
		if n := t.flows.nodes[r.ID]; n != nil && n.flow == b.ID {
			n.Final = r.Final
			continue
		}
		for _, e := range b.outside {
			if e.before == r.ID {
				e.Final = r.Final
			}
		}
		if b.Kind != "flow" && r.Status != dispatcherd.Done {
			if b.bad == nil {
				b.bad = map[dispatcherd.JobID]flow.Final{}
			}
			b.bad[r.ID] = r.Final
		}
	}
	for _, id := range c.Linked {
		for _, e := range b.outside {
			e.linked = e.linked || e.before == id
		}
		t.rows[id].Watched = true
	}
}

// stop ends a pending or waiting row.
func (t *Table) stop(now int64, stop flow.Stop) {
	switch r := t.rows[stop.ID]; {
	case r.Status == dispatcherd.Pending:
		t.dequeue(r)
		t.close(r, stop.Status)
	case stop.By == "flow":
		t.proceed(now, stop.ID, t.Skip&CheckRunWhen != 0)
	case r.Status == dispatcherd.Waiting:
		t.close(r, stop.Status)
	}
}

// proceed makes a waiting row pending, or cancels it.
func (t *Table) proceed(now int64, id dispatcherd.JobID, runs bool) {
	r := t.rows[id]
	if r.Status != dispatcherd.Waiting {
		return
	}
	r.RunAt = max(r.RunAt, now)
	t.observer.Fires(r, runs)
	if !runs {
		t.close(r, dispatcherd.Cancelled)
		return
	}
	t.addKeyed(r)
	t.enqueue(r)
	if t.Subscribed(0) {
		t.observer.Notified()
	}
}
