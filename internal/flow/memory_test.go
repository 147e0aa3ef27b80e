package flow

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// memory has the tables in memory. Its methods follow the statements: they move rows and decide nothing.
type memory struct {
	r       *rand.Rand
	jobs    map[dispatcherd.JobID]*row
	order   []dispatcherd.JobID // of jobs
	batches map[dispatcherd.JobID]*Batch
	nodes   map[dispatcherd.JobID][]*node // by flow, in the order of places
	node    map[dispatcherd.JobID]*node
	edges   map[dispatcherd.JobID][]*edge // by job
	bad     map[dispatcherd.JobID]map[dispatcherd.JobID]Final
	ends    map[dispatcherd.JobID][]Message
	id      int64
	locks   int // one of how many rows is locked by others; 0 = none
	wrong   int
	check   func(n *node) // is called when a node is released or ended
}

type row struct {
	id, parent dispatcherd.JobID
	status     dispatcherd.Status
	listed     bool // its ends are listed in its parent
	watched    bool // other targets wait for it
	asked      bool
	began      bool // it was pending
	dropped    bool // by retention
	Final
}

type node struct {
	Node
	flow  dispatcherd.JobID
	place int64
	after []dispatcherd.JobID
	Final
}

type edge struct {
	flow    dispatcherd.JobID
	after   []dispatcherd.JobID
	outside bool
	linked  bool
	gone    bool // it had no row when it was linked
	Final
}

var open = Final{Status: dispatcherd.Pending}

func newMemory(seed uint64) *memory {
	return &memory{
		r: rand.New(rand.NewPCG(seed, 1)), jobs: map[dispatcherd.JobID]*row{}, batches: map[dispatcherd.JobID]*Batch{},
		nodes: map[dispatcherd.JobID][]*node{}, node: map[dispatcherd.JobID]*node{}, edges: map[dispatcherd.JobID][]*edge{},
		bad: map[dispatcherd.JobID]map[dispatcherd.JobID]Final{}, ends: map[dispatcherd.JobID][]Message{},
	}
}

func (m *memory) next() dispatcherd.JobID { m.id++; return dispatcherd.JobID(m.id) }

func (m *memory) insert(id, parent dispatcherd.JobID, status dispatcherd.Status) *row {
	j := &row{id: id, parent: parent, status: status, began: status != dispatcherd.Waiting, Final: open}
	m.jobs[id] = j
	m.order = append(m.order, id)
	return j
}

func (m *memory) send(e Message) {
	m.id++
	e.ID = m.id
	m.ends[e.Target] = append(m.ends[e.Target], e)
}

// end ends a job, as finish statements do.
func (m *memory) end(j *row, status dispatcherd.Status) {
	m.id++
	j.status, j.asked, j.Final = status, false, Final{status, time.UnixMicro(m.id), 0}
	if status == dispatcherd.Done {
		j.Size = int(j.id % 10)
	}
	m.report(j, 0)
}

// again makes an ended job wait or pending again. As in run_again, a parent that has ended is its parent no longer.
func (m *memory) again(j *row, to dispatcherd.Status, by dispatcherd.JobID) {
	if b := m.batches[j.parent]; b != nil && j.parent != by && b.Kind == kindChildren && b.Ended {
		j.parent = 0
	}
	j.status, j.asked, j.Final = to, false, open
	m.report(j, by)
}

func (m *memory) report(j *row, by dispatcherd.JobID) {
	e := Ended{j.id, j.Final}
	switch {
	case j.parent == 0 || j.parent == by:
	case !j.listed && !j.watched && e.Status == dispatcherd.Done:
		m.send(Message{Target: j.parent, Done: 1})
	default:
		m.send(Message{Target: j.parent, Jobs: []Ended{e}})
	}
	if j.watched {
		m.send(Message{Target: j.id, Jobs: []Ended{e}})
	}
}

// members counts the members of a target that have not ended, from rows and messages.
func (m *memory) members(target dispatcherd.JobID) (n int) {
	for _, j := range m.jobs {
		if j.parent == target && !j.status.Final() && !j.dropped {
			n++
		}
	}
	for _, e := range m.ends[target] {
		n += e.Done
		for _, j := range e.Jobs {
			if j.ID == target {
				continue
			}
			n += 1 - 2*j.open()
		}
	}
	return n
}

func (m *memory) locked() bool { return m.locks > 0 && m.r.IntN(m.locks) == 0 }

func (m *memory) waiting(id dispatcherd.JobID) int {
	switch j := m.jobs[id]; {
	case j == nil || j.dropped || j.status != dispatcherd.Waiting && j.status != dispatcherd.Pending:
		return NoRow
	case m.locked():
		return Locked
	}
	return 10
}

// viewCancel reads the members of a target that may be cancelled.
func (m *memory) viewCancel(v *View, l Limits) {
	b, j := &v.Batch, m.jobs[v.Batch.ID]
	v.NoInserts = b.Kind == kindChildren || b.CancelledBy != "" && !m.locked()
	if b.Kind == "" || b.Ended || !v.Looks() || b.CancelledBy == "" && v.Asked == "" && (j == nil || v.Alive) {
		return
	}
	v.Members = m.members(b.ID)
	for _, id := range m.order {
		j := m.jobs[id]
		c := Member{ID: id, Runs: j.status == dispatcherd.Running, Target: m.batches[id] != nil}
		if j.parent != b.ID || j.dropped || j.status.Final() || j.asked {
			continue
		}
		if !c.Runs {
			c.Waiting = m.waiting(id)
		}
		if len(v.Cancel) == l.Items {
			v.MoreCancel = true
			return
		}
		v.Cancel = append(v.Cancel, c)
	}
}

// view reads a target.
func (m *memory) view(id dispatcherd.JobID, l Limits) *View {
	v := &View{Batch: Batch{ID: id}, Waiting: NoRow}
	if j := m.jobs[id]; j != nil && j.status == dispatcherd.Waiting {
		v.Waiting = m.waiting(id)
	}
	if b := m.batches[id]; b != nil {
		v.Batch = *b
	}
	if j := m.jobs[id]; j != nil {
		v.Alive = !j.status.Final()
		if j.asked {
			v.Asked = "user"
		}
		if j.bad() > 0 && !j.dropped {
			v.CallbackBad = &Ended{id, j.Final}
		}
	}
	if v.Batch.Walk == "" {
		m.viewMessages(v, l)
	} else {
		m.viewWalk(v, l)
	}
	m.viewCancel(v, l)
	m.viewOutside(v, l)
	return v
}

func (m *memory) viewMessages(v *View, l Limits) {
	id, jobs, edges, look, nodes := v.Batch.ID, 0, l.Items, false, map[dispatcherd.JobID]bool{}
	seen := map[dispatcherd.JobID]bool{}
	for _, e := range m.ends[id] {
		if len(v.Messages) == l.Items || jobs >= l.Items {
			v.MoreMessages = true
			break
		}
		e.Jobs = slices.Clone(e.Jobs)
		v.Messages = append(v.Messages, e)
		jobs += len(e.Jobs)
		look = look || len(e.Jobs) == 0 && e.Done == 0
		for i, j := range e.Jobs {
			part := int64(0)
			if i == 0 {
				part = e.Part
			}
			if seen[j.ID] {
				continue
			}
			seen[j.ID] = true
			if j.ID == id {
				v.Flows, v.MoreFlows = m.flows(id, part, l.Items)
				continue
			}
			v.Records = append(v.Records, m.record(id, j.ID))
			for _, g := range m.edges[j.ID] {
				if g.flow == id {
					after := g.after[part:]
					more := len(after) > edges
					after = after[:min(len(after), edges)]
					edges -= len(after)
					v.Edges = append(v.Edges, Edge{Before: j.ID, After: after, More: more})
					for _, a := range after {
						nodes[a] = true
					}
				}
			}
		}
	}
	slices.SortFunc(v.Records, func(a, b Record) int { return int(a.ID - b.ID) })
	slices.SortFunc(v.Edges, func(a, b Edge) int { return int(a.Before - b.Before) })
	ready := l.Items
	for _, n := range m.nodes[id] {
		if look && !n.Ready && n.Open == 0 && n.Status == dispatcherd.Pending {
			if ready--; ready >= 0 {
				nodes[n.ID] = true
			} else {
				v.MoreNodes = true
			}
		}
	}
	for _, a := range slices.Sorted(maps.Keys(nodes)) {
		n := m.node[a].Node
		n.Waiting = NoRow
		if m.jobs[a].status == dispatcherd.Waiting {
			n.Waiting = m.waiting(a)
		}
		v.Nodes = append(v.Nodes, n)
	}
}

func (m *memory) flows(id dispatcherd.JobID, part int64, most int) (flows []dispatcherd.JobID, more bool) {
	for _, g := range m.edges[id] {
		if g.linked && int64(g.flow) > part {
			flows = append(flows, g.flow)
		}
	}
	slices.Sort(flows)
	return flows[:min(len(flows), most)], len(flows) > most
}

func (m *memory) record(target, id dispatcherd.JobID) Record {
	r := Record{Ended: Ended{id, open}}
	b := m.batches[target]
	if b != nil && b.Kind == kindFlow {
		if n := m.node[id]; n != nil && n.flow == target {
			r.Final = n.Final
			return r
		}
		r.Outside = true
		for _, g := range m.edges[id] {
			if g.flow == target {
				r.Final = g.Final
			}
		}
	} else if bad, found := m.bad[target][id]; found {
		r.Final = bad
	}
	return r
}

func (m *memory) viewWalk(v *View, l Limits) {
	b := &v.Batch
	add := func(w Walked) {
		if len(v.Walk) < l.Items {
			v.Walk = append(v.Walk, w)
		} else {
			v.MoreWalk = true
		}
	}
	if b.Kind == kindFlow {
		for _, n := range m.nodes[b.ID] {
			if n.place > b.Walked {
				j := m.jobs[n.ID]
				exists := !j.dropped && j.EndedAt.Equal(n.EndedAt)
				if b.Walk == Repair {
					exists = !j.dropped || m.mentioned(b.ID, j.id)
				}
				add(Walked{Ended: Ended{n.ID, n.Final}, Place: n.place, Exists: exists})
			}
		}
		return
	}
	v.Members = m.members(b.ID)
	for _, id := range slices.Sorted(maps.Keys(m.bad[b.ID])) {
		if j := m.jobs[id]; int64(id) > b.Walked {
			nested := m.batches[id] != nil && m.batches[id].Callback
			add(Walked{Ended{id, m.bad[b.ID][id]}, int64(id), !j.dropped && j.Final == m.bad[b.ID][id], nested})
		}
	}
}

func (m *memory) mentioned(target, id dispatcherd.JobID) bool {
	for _, e := range m.ends[target] {
		for _, j := range e.Jobs {
			if j.ID == id {
				return true
			}
		}
	}
	return false
}

func (m *memory) viewOutside(v *View, l Limits) {
	if v.Batch.Kind != kindFlow {
		return
	}
	for _, id := range m.order {
		for _, g := range m.edges[id] {
			if g.flow != v.Batch.ID || g.linked || !g.outside {
				continue
			}
			if len(v.Outside) == l.Items {
				v.MoreOutside = true
				return
			}
			j := m.jobs[id]
			v.Outside = append(v.Outside, Outside{Ended{id, j.Final}, j.dropped, m.locked() || len(m.ends[id]) > 0})
		}
	}
}

// step does a step of a target, and reports whether it has left something.
func (m *memory) step(id dispatcherd.JobID, l Limits) bool {
	v := m.view(id, l)
	wrong := m.wrong
	repair := v.Batch.Walk == Repair
	c := Step(v, l)
	m.checkLimits(&c, l)
	m.messages(id, &c)
	m.write(id, &c)
	for _, id := range c.Release {
		j := m.jobs[id]
		j.status, j.began = dispatcherd.Pending, true
	}
	for _, s := range c.Stop {
		m.end(m.jobs[s.ID], s.Status)
	}
	for _, id := range c.Ask {
		m.jobs[id].asked = true
	}
	for _, a := range c.Again {
		m.again(m.jobs[a.ID], a.To, id)
		if n := m.node[a.ID]; n != nil {
			n.Ready = false
		}
	}
	if c.Recount[1] > 0 {
		m.recount(id, c.Recount)
	}
	if m.wrong += c.Wrong; !repair {
		m.wrong = wrong
	}
	if c.Look {
		m.send(Message{Target: id})
	}
	return c.Left()
}

func (m *memory) messages(id dispatcherd.JobID, c *Change) {
	m.ends[id] = slices.DeleteFunc(m.ends[id], func(e Message) bool { return slices.Contains(c.Taken, e.ID) })
	if c.Rest != nil {
		i := slices.IndexFunc(m.ends[id], func(e Message) bool { return e.ID == c.Rest.ID })
		m.ends[id][i] = *c.Rest
	}
	if len(m.ends[id]) == 0 {
		delete(m.ends, id)
	}
	for _, e := range c.Send {
		m.send(e)
	}
}

func (m *memory) write(id dispatcherd.JobID, c *Change) {
	b := m.batches[id]
	if b == nil {
		return
	}
	*b = c.Batch
	var ready []*node
	for _, n := range c.Nodes {
		old := m.node[n.ID]
		if n.Ready && !old.Ready {
			ready = append(ready, old)
		}
		old.Node = n
	}
	for _, r := range c.Records {
		switch n := m.node[r.ID]; {
		case n != nil && n.flow == id:
			n.Final = r.Final
		case b.Kind == kindFlow:
			for _, g := range m.edges[r.ID] {
				if g.flow == id {
					g.Final = r.Final
				}
			}
		case r.bad() > 0:
			if m.bad[id] == nil {
				m.bad[id] = map[dispatcherd.JobID]Final{}
			}
			m.bad[id][r.ID] = r.Final
		default:
			delete(m.bad[id], r.ID)
		}
	}
	for _, n := range ready {
		m.check(n)
	}
	for _, before := range c.Linked {
		for _, g := range m.edges[before] {
			if g.flow == id && g.outside {
				g.linked, g.gone = true, m.jobs[before].dropped
			}
		}
		m.jobs[before].watched = true
	}
}

// recorded counts the dependencies of a node by their records.
func (m *memory) recorded(n *node) (c Node) {
	for _, id := range n.after {
		r := m.record(n.flow, id)
		c.Open += r.open()
		c.Bad += r.bad()
		c.Inputs += r.Size
	}
	return c
}

func (m *memory) recount(flow dispatcherd.JobID, places [2]int64) {
	for _, n := range m.nodes[flow] {
		if c := m.recorded(n); n.place >= places[0] && n.place <= places[1] && !n.Ready {
			if c.Open != n.Open || c.Bad != n.Bad {
				m.wrong++
			}
			n.Open, n.Bad, n.Inputs = c.Open, c.Bad, c.Inputs
		}
	}
}

func (m *memory) checkLimits(c *Change, l Limits) {
	if max(len(c.Release)+len(c.Stop), (len(c.Send)-1)/2, len(c.Nodes)/2, len(c.Records), len(c.Again)-1, len(c.Linked)) > l.Items {
		panic("a step does more than its limits allow")
	}
}
