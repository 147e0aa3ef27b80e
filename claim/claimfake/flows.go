package claimfake

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow"
)

// RunWhen says after which ends of the jobs for which it has waited a row runs.
type RunWhen uint8

// The values of run_when.
const (
	WhenDone   RunWhen = iota // all are done
	WhenEnded                 // any
	WhenFailed                // at least one has failed or was cancelled
)

// String is the value in Postgres.
func (w RunWhen) String() string { return [...]string{"done", "ended", "failed"}[w] }

// Join is a row that may wait for others.
type Join struct {
	Row
	RunWhen RunWhen
	After   []dispatcherd.JobID // of a node: earlier nodes of the flow, and jobs outside of it that exist
}

// flows are the tables batches, nodes, edges, bad_members and ends.
type flows struct {
	targets map[dispatcherd.JobID]*target
	nodes   map[dispatcherd.JobID]*node
	edges   map[dispatcherd.JobID][]*edge // by the job before, in the order of flows
	ends    map[dispatcherd.JobID][]flow.Message
	locks   map[dispatcherd.JobID]*Statement // of targets
	last    int64                            // id of a message
}

// target is a row of batches.
type target struct {
	flow.Batch
	members []dispatcherd.JobID
	outside []*edge
	bad     map[dispatcherd.JobID]flow.Final
}

type node struct {
	flow.Node
	flow.Final
	flow dispatcherd.JobID
}

type edge struct {
	before, flow dispatcherd.JobID
	after        []dispatcherd.JobID
	inner        bool // before is a node of the flow
	linked       bool
	flow.Final
}

func newFlows() flows {
	return flows{map[dispatcherd.JobID]*target{}, map[dispatcherd.JobID]*node{}, map[dispatcherd.JobID][]*edge{},
		map[dispatcherd.JobID][]flow.Message{}, map[dispatcherd.JobID]*Statement{}, 0}
}

// pending is the record of a job that has not ended.
var pending = flow.Final{Status: dispatcherd.Pending}

// final is the record of a row.
func (r *Row) final() flow.Final {
	if !r.Status.Final() {
		return pending
	}
	return flow.Final{Status: r.Status, Size: len(r.Result)}
}

// OpenBatch inserts the callback of a batch.
func (t *Table) OpenBatch(now int64, callback Join) { t.open(now, "batch", callback) }

func (t *Table) open(now int64, kind string, callback Join) *target {
	b := &target{Batch: flow.Batch{ID: callback.ID, Kind: kind, RunWhen: callback.RunWhen.String(), Callback: true}}
	t.flows.targets[callback.ID] = b
	callback.Status, callback.Watched = dispatcherd.Waiting, true
	t.Insert(now, callback.Row)
	return b
}

// Takes reports whether a batch takes further members.
func (t *Table) Takes(batch dispatcherd.JobID) bool {
	b := t.flows.targets[batch]
	return !b.Sealed && b.CancelledBy == ""
}

// SealBatch seals a batch. It reports false if another transaction has locked the batch.
func (t *Table) SealBatch(_ int64, batch dispatcherd.JobID) bool {
	b := t.flows.targets[batch]
	if t.flows.locks[batch] != nil {
		return false
	}
	t.commits++
	if !b.Sealed {
		b.Sealed, b.Open = true, t.openMembers(b)
		t.send(flow.Message{Target: batch})
	}
	return true
}

// openMembers follows the SQL function open_members.
func (t *Table) openMembers(b *target) (n int) {
	for _, id := range b.members {
		if !t.rows[id].Status.Final() {
			n++
		}
	}
	if t.Skip&CheckRecorded != 0 {
		return n
	}
	for _, m := range t.flows.ends[b.ID] {
		if n += m.Done; len(m.Jobs) > 0 && m.Jobs[0].ID != b.ID {
			n += len(m.Jobs)
		}
	}
	return n
}

// InsertFlow inserts a flow with a callback.
func (t *Table) InsertFlow(now int64, callback Join, nodes []Join) {
	b := t.open(now, "flow", callback)
	b.Sealed, b.Open = true, len(nodes)
	for _, j := range nodes {
		ready := len(j.After) == 0
		t.flows.nodes[j.ID] = &node{flow.Node{ID: j.ID, RunWhen: j.RunWhen.String(), Open: len(j.After), Ready: ready}, pending, b.ID}
		for _, before := range j.After {
			t.addEdge(b, before, j.ID)
		}
		if j.Status = dispatcherd.Waiting; ready {
			j.Status = dispatcherd.Pending
		}
		j.Parent = b.ID
		t.Insert(now, j.Row)
	}
	t.send(flow.Message{Target: b.ID})
}

func (t *Table) addEdge(b *target, before, after dispatcherd.JobID) {
	all := t.flows.edges[before]
	if n := len(all); n == 0 || all[n-1].flow != b.ID {
		n := t.flows.nodes[before]
		e := &edge{before: before, flow: b.ID, inner: n != nil && n.flow == b.ID, Final: pending}
		if !e.inner {
			b.outside = append(b.outside, e)
		}
		all = append(all, e)
		t.flows.edges[before] = all
	}
	e := all[len(all)-1]
	e.after = append(e.after, after)
}

// send inserts a message.
func (t *Table) send(m flow.Message) {
	t.flows.last++
	m.ID = t.flows.last
	t.flows.ends[m.Target] = append(t.flows.ends[m.Target], m)
}

// recordEnd writes the messages about the end of a row.
func (t *Table) recordEnd(r *Row) {
	jobs := []flow.Ended{{ID: r.ID, Final: r.final()}}
	switch {
	case r.Status == dispatcherd.Failed && t.Skip&CheckRecord != 0:
		return
	case r.Parent != 0 && r.Status == dispatcherd.Done && !r.Watched && t.flows.nodes[r.ID] == nil:
		t.send(flow.Message{Target: r.Parent, Done: 1})
	case r.Parent != 0:
		t.send(flow.Message{Target: r.Parent, Jobs: jobs})
	}
	if r.Watched {
		t.send(flow.Message{Target: r.ID, Jobs: jobs})
	}
}

// targetOf is contract.Won.Target.
func (r *Row) targetOf() dispatcherd.JobID {
	switch {
	case r.Watched && r.Parent != 0:
		return -r.Parent
	case r.Watched:
		return -r.ID
	}
	return r.Parent
}

// spawn is a request to insert children.
type spawn struct {
	parent   dispatcherd.JobID
	attempt  dispatcherd.Attempt
	children func() []Row
}

// beginSpawn follows claim.InsertChildren. It waits for the lock of the parent.
func (s *Statement) beginSpawn(int64) State {
	t := s.table
	r := t.rows[s.spawn.parent]
	b := t.flows.targets[r.ID]
	runs := r.Status == dispatcherd.Running && r.Attempt == s.spawn.attempt || t.Skip&CheckParent != 0
	if !runs || slices.Contains(t.cancels, r.ID) || b != nil && b.CancelledBy != "" {
		s.Spawned.Rule = dispatcherd.RuleParentIsRunning
		return s.done(contract.Refused)
	}
	if b != nil && b.Kind != "children" {
		s.Spawned.Rule = "callback_has_no_children"
		return s.done(contract.Refused)
	}
	if t.flows.locks[r.ID] != nil || !s.lock(r) {
		return Polling
	}
	s.step.target, t.flows.locks[r.ID] = r.ID, s
	return s.then((*Statement).commitSpawn)
}

func (s *Statement) commitSpawn(now int64) State {
	t := s.table
	t.commits++
	r := t.rows[s.spawn.parent]
	r.Watched = true
	b := t.flows.targets[r.ID]
	if b == nil {
		b = &target{Batch: flow.Batch{ID: r.ID, Kind: "children", RunWhen: "done"}}
		t.flows.targets[r.ID] = b
	}
	b.Sealed, b.Ended, b.Open = false, false, 0
	for _, child := range s.spawn.children() {
		child.Parent = r.ID
		s.Spawned.IDs = append(s.Spawned.IDs, t.Insert(now, child))
	}
	if t.Subscribed(0) {
		t.observer.Notified()
	}
	return s.done(contract.OK)
}
