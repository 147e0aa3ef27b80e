package claimfake

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
)

// RunWhen says after which ends of the jobs for which it has waited a row runs.
type RunWhen uint8

// The values of run_when.
const (
	WhenDone   RunWhen = iota // all are done
	WhenEnded                 // any
	WhenFailed                // at least one has failed or was cancelled
)

// runs reports whether a row runs, after bad of the jobs have failed or were cancelled.
func (w RunWhen) runs(bad int) bool {
	return w == WhenEnded || (bad > 0) == (w == WhenFailed)
}

// Join is a row that may wait for others.
type Join struct {
	Row
	RunWhen RunWhen
	After   []dispatcherd.JobID // of a node: earlier nodes of the flow, and jobs outside of it that exist
}

// joins are the tables batches, nodes, edges and ends.
type joins struct {
	batches  map[dispatcherd.JobID]*batch
	edges    map[dispatcherd.JobID][]*node // the nodes that count the end of a job
	unlinked []outerEdge
	ends     []endRecord
}

// batch is a row of the table of batches: a batch, a flow, or a job with children.
type batch struct {
	id        dispatcherd.JobID // also of its callback, or of the job that has the children
	runWhen   RunWhen
	members   []dispatcherd.JobID
	nodes     []*node
	open      int // members that have not ended; valid when it is sealed
	bad       int // members that have failed or were cancelled
	sealed    bool
	ended     bool
	cancelled bool
	lock      *Statement
}

// node is a row of the table of nodes.
type node struct {
	id      dispatcherd.JobID
	batch   *batch
	runWhen RunWhen
	open    int // dependencies that have not ended
	bad     int
	ready   bool // the row was released or cancelled
}

// outerEdge is an edge from a job outside of the flow, until dispatchers watch the job.
type outerEdge struct {
	before dispatcherd.JobID
	after  *node
}

// endRecord is a row of the table of ends. The status Waiting means that the batch must be checked again.
type endRecord struct {
	job, parent dispatcherd.JobID
	status      dispatcherd.Status
	watched     bool
}

// OpenBatch inserts the callback of a batch.
func (t *Table) OpenBatch(now int64, callback Join) {
	t.joins.batches[callback.ID] = &batch{id: callback.ID, runWhen: callback.RunWhen}
	callback.Status, callback.Watched = dispatcherd.Waiting, true
	t.Insert(now, callback.Row)
}

// Takes reports whether a batch takes further members.
func (t *Table) Takes(batch dispatcherd.JobID) bool {
	b := t.joins.batches[batch]
	return !b.sealed && !b.cancelled
}

// SealBatch seals a batch. It reports false if another transaction has locked the batch.
func (t *Table) SealBatch(now int64, batch dispatcherd.JobID) bool {
	b := t.joins.batches[batch]
	if b.lock != nil {
		return false
	}
	t.commits++
	t.seal(b)
	t.advance(now, b)
	return true
}

// InsertFlow inserts a flow with a callback.
func (t *Table) InsertFlow(now int64, callback Join, nodes []Join) {
	t.OpenBatch(now, callback)
	b := t.joins.batches[callback.ID]
	inner := map[dispatcherd.JobID]bool{} // ids of nodes on which others depend
	for _, j := range nodes {
		n := &node{id: j.ID, batch: b, runWhen: j.RunWhen, open: len(j.After), ready: len(j.After) == 0}
		b.nodes = append(b.nodes, n)
		for _, id := range j.After {
			if slices.ContainsFunc(nodes, func(o Join) bool { return o.ID == id }) {
				inner[id] = true
				t.joins.edges[id] = append(t.joins.edges[id], n)
			} else {
				t.joins.unlinked = append(t.joins.unlinked, outerEdge{id, n})
			}
		}
	}
	for _, j := range nodes {
		if j.Status = dispatcherd.Pending; len(j.After) > 0 {
			j.Status = dispatcherd.Waiting
		}
		j.Parent, j.Watched = b.id, inner[j.ID]
		t.Insert(now, j.Row)
	}
	b.sealed, b.open = true, len(nodes)
}

// uncounted reports whether ends are recorded and not counted yet, or jobs must be watched.
func (t *Table) uncounted() bool { return len(t.joins.ends)+len(t.joins.unlinked) > 0 }

// counted reports whether the end of a row is recorded for others.
func (r *Row) counted() bool { return r.Parent != 0 || r.Watched }

// recordEnd records the end of a row for the jobs that wait for it.
func (t *Table) recordEnd(r *Row) {
	if r.counted() && (r.Status != dispatcherd.Failed || t.Skip&CheckRecord == 0) {
		t.joins.ends = append(t.joins.ends, endRecord{r.ID, r.Parent, r.Status, r.Watched})
	}
}

// checkAgain makes a later settlement check a batch, which has rows that others have locked.
func (t *Table) checkAgain(b *batch) {
	if check := (endRecord{b.id, b.id, dispatcherd.Waiting, false}); !slices.Contains(t.joins.ends, check) {
		t.joins.ends = append(t.joins.ends, check)
	}
}

// seal counts the open members of a batch. Each of them is a live row, or the record of an end.
func (t *Table) seal(b *batch) {
	if b.sealed {
		return
	}
	b.sealed, b.open = true, 0
	for _, id := range b.members {
		if !t.rows[id].Status.Final() {
			b.open++
		}
	}
	for _, e := range t.joins.ends {
		if e.parent == b.id && e.status != dispatcherd.Waiting && t.Skip&CheckRecorded == 0 {
			b.open++
		}
	}
}

// advance releases the nodes of a batch that have no open dependencies, and fires the batch if no member is open. Those
// whose rows are locked are left to a later settlement.
func (t *Table) advance(now int64, b *batch) {
	again := false
	for _, n := range b.nodes {
		if n.open <= 0 && !n.ready {
			n.ready = t.proceed(now, n.id, n.runWhen.runs(n.bad))
			again = again || !n.ready
		}
	}
	if b.sealed && b.open <= 0 && !b.ended {
		b.ended = t.proceed(now, b.id, b.runWhen.runs(b.bad) && !b.cancelled)
		again = again || !b.ended
	}
	if again {
		t.checkAgain(b)
	}
}

// proceed makes a waiting row pending, or cancels it. It reports false if another transaction has locked the row.
func (t *Table) proceed(now int64, id dispatcherd.JobID, runs bool) bool {
	r := t.rows[id]
	switch {
	case r.Status != dispatcherd.Waiting:
		return true // it is no callback, or was cancelled
	case r.lock != nil:
		return false
	}
	runs = runs || t.Skip&CheckRunWhen != 0
	r.RunAt = max(r.RunAt, now)
	t.observer.Fires(r, runs)
	if !runs {
		t.close(r, dispatcherd.Cancelled)
		return true
	}
	t.addKeyed(r)
	t.enqueue(r)
	if t.Subscribed(0) {
		t.observer.Notified()
	}
	return true
}
