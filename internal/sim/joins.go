package sim

import (
	"math/rand/v2"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
)

// joined holds the parameters of the fault Joins.
type joined struct {
	random   random
	rate     int64 // inserts of producers for each batch or flow; 0 = there are none
	spawning int64 // executions of 10,000 that insert children
	outside  int64 // dependencies of 10,000 on jobs outside of the flow
	items    int   // limit of a step
}

// maxJoined bounds the members, nodes and children that have not ended, because checks look at all of them.
const maxJoined = 2000

// pickJoins uses its own random source, as pickDetachment does.
func (w *world) pickJoins() {
	c := &w.joins
	c.random.pcg = *rand.NewPCG(w.opt.Seed, 0x6a6f696e)
	d := &c.random
	if !w.opt.Every && d.below(2) == 0 {
		w.faults &^= Joins
	}
	if w.faults&Joins == 0 {
		return
	}
	c.rate = []int64{5, 20, 100}[d.below(3)]
	c.spawning = []int64{0, 200, 1500}[d.below(3)]
	c.outside = []int64{0, 1000, 5000}[d.below(3)]
	c.items = []int{1, 3, 1000}[d.below(3)]
	w.judge.joins.init()
	w.plan(task{at: second / 10, kind: producerJoin})
}

// structure is a batch or flow that a producer inserts.
type structure struct {
	callback claimfake.Join
	nodes    []claimfake.Join // nil = it is a batch
	inserts  int              // of members that have not been committed
}

// produceStructure begins a batch, or inserts a flow.
func (w *world) produceStructure() {
	if w.healing {
		return
	}
	d := &w.joins.random
	w.plan(task{at: w.now + 1 + d.span(0, 4*moment(w.joins.rate)*w.scale.insertGap), kind: producerJoin})
	if len(w.judge.joins.open) >= maxJoined {
		return
	}
	s := &structure{callback: claimfake.Join{Row: w.draw(0), RunWhen: claimfake.RunWhen(d.below(3))}}
	if d.below(2) == 0 {
		w.drawNodes(s)
	}
	w.planCommit(insertion{first: s.callback.ID, count: 1 + len(s.nodes), structure: s}, 0)
}

// draw returns a new row of a batch or flow, or a child. It is no durable request. Postgres does not refuse to claim it, because the
// checks measure a refusal from the insertion, and the row may wait for others first.
func (w *world) draw(parent dispatcherd.JobID) claimfake.Row {
	j := w.newJob()
	j.insert.Parent, j.insert.Deadline, j.insert.Refused = parent, 0, nil
	w.jobs = append(w.jobs, j)
	w.open++
	return j.insert
}

// drawNodes draws the nodes of a flow.
func (w *world) drawNodes(s *structure) {
	d := &w.joins.random
	outside := dispatcherd.JobID(len(w.jobs))
	for range d.between(1, 12) {
		n := claimfake.Join{Row: w.draw(s.callback.ID)}
		for range d.below(4) {
			after := s.callback.ID + 1 + dispatcherd.JobID(d.below(int64(len(s.nodes)+1)))
			if d.chance(w.joins.outside) {
				after = outside - dispatcherd.JobID(d.span64(int64(outside)))
			}
			if after != n.ID && w.mayDependOn(&n, after) {
				n.After = append(n.After, after)
			}
		}
		if len(n.After) > 0 {
			n.RunWhen = []claimfake.RunWhen{claimfake.WhenDone, claimfake.WhenDone, claimfake.WhenEnded, claimfake.WhenFailed}[d.below(4)]
		}
		s.nodes = append(s.nodes, n)
	}
}

// mayDependOn reports whether a node may depend on a job: an earlier node of its flow, or one that exists.
func (w *world) mayDependOn(n *claimfake.Join, id dispatcherd.JobID) bool {
	return !slices.Contains(n.After, id) && (id > n.Parent || id < n.Parent && w.table.Row(id) != nil)
}

// commitStructure makes a flow visible, or opens a batch, whose members follow in transactions of their own.
func (w *world) commitStructure(s *structure) {
	w.judge.joins.inserted(s)
	if s.nodes != nil {
		w.table.InsertFlow(w.dbNow(), s.callback, s.nodes)
		return
	}
	w.table.OpenBatch(w.dbNow(), s.callback)
	d := &w.joins.random
	s.inserts = int(d.below(4))
	for range s.inserts {
		first := dispatcherd.JobID(len(w.jobs) + 1)
		n := int(d.between(1, 4))
		for range n {
			w.draw(s.callback.ID)
		}
		w.planCommit(insertion{first: first, count: n, batch: s}, d.span(0, second))
	}
	if s.inserts == 0 {
		w.planSeal(s)
	}
}

// commitMembers makes members of a batch visible. A batch that was cancelled refuses them.
func (w *world) commitMembers(b *insertion) bool {
	s := b.batch
	if s.inserts--; s.inserts == 0 {
		w.planSeal(s)
	}
	if w.table.Takes(s.callback.ID) {
		w.judge.joins.members(s.callback.ID, b.first, b.count)
		return true
	}
	w.open -= b.count
	w.stats.Refused += b.count
	return false
}

func (w *world) planSeal(s *structure) {
	w.plan(task{at: w.now + w.joins.random.span(0, second), kind: producerSeal, arg: int32(s.callback.ID)})
}

// sealBatch seals a batch. The producer tries again while it cannot.
func (w *world) sealBatch(id dispatcherd.JobID) {
	w.judge.joins.seals(id)
	if w.postgres.down || w.postgres.cut || !w.table.SealBatch(w.dbNow(), id) {
		w.judge.joins.unseals(id)
		w.plan(task{at: w.now + second/50, kind: producerSeal, arg: int32(id)})
	}
}

// spawns reports whether an execution inserts children.
func (w *world) spawns() bool {
	c := &w.joins
	return c.rate > 0 && !w.healing && len(w.judge.joins.open) < maxJoined && c.random.chance(c.spawning)
}

// children returns the children that a job inserts. Some are due later, so that most of these wait when their parent ends.
func (w *world) children(parent dispatcherd.JobID) (list []claimfake.Row) {
	d := &w.joins.random
	first := dispatcherd.JobID(len(w.jobs) + 1)
	for range d.between(1, 3) {
		r := w.draw(parent)
		if d.below(2) == 0 {
			r.RunAt += d.below(int64(60 * second))
			w.job(r.ID).insert.RunAt = r.RunAt
		}
		list = append(list, r)
	}
	w.stats.Children += len(list)
	w.judge.joins.children(first, len(list))
	return list
}

// joinJudge checks batches, flows and children. It knows them from their producers.
type joinJudge struct {
	waits map[dispatcherd.JobID]*wait // of callbacks and nodes
	open  []dispatcherd.JobID         // members, nodes and children that had not ended when they were last checked
}

// wait is what a callback or node waits for.
type wait struct {
	after    []dispatcherd.JobID
	runWhen  claimfake.RunWhen
	unsealed bool
	fired    bool
}

func (j *joinJudge) init() { j.waits = map[dispatcherd.JobID]*wait{} }

// inserted notes a batch or flow.
func (j *joinJudge) inserted(s *structure) {
	c := &wait{runWhen: s.callback.RunWhen, unsealed: s.nodes == nil}
	for i := range s.nodes {
		n := &s.nodes[i]
		c.after = append(c.after, n.ID)
		j.open = append(j.open, n.ID)
		if len(n.After) > 0 {
			j.waits[n.ID] = &wait{after: n.After, runWhen: n.RunWhen}
		}
	}
	j.waits[s.callback.ID] = c
}

// members notes members of a batch.
func (j *joinJudge) members(batch, first dispatcherd.JobID, count int) {
	j.children(first, count)
	j.waits[batch].after = append(j.waits[batch].after, j.open[len(j.open)-count:]...)
}

// children notes children of a job.
func (j *joinJudge) children(first dispatcherd.JobID, count int) {
	for n := range count {
		j.open = append(j.open, first+dispatcherd.JobID(n))
	}
}

// seals notes that a batch is being sealed.
func (j *joinJudge) seals(batch dispatcherd.JobID) { j.waits[batch].unsealed = false }

// unseals notes that it was not sealed.
func (j *joinJudge) unseals(batch dispatcherd.JobID) { j.waits[batch].unsealed = true }

// checkWait checks that all jobs have ended for which a row has waited, and that its run_when says whether it runs.
func (j *joinJudge) checkWait(w *world, r *claimfake.Row, runs bool) {
	c := j.waits[r.ID]
	if c == nil {
		return
	}
	if c.unsealed {
		w.violate("joined early: job %d is released before its batch is sealed", r.ID)
	}
	bad := 0
	for _, id := range c.after {
		switch o := w.table.Row(id); {
		case !o.Status.Final():
			w.violate("joined early: job %d is released before job %d has ended, which has status %s", r.ID, id, o.Status)
		case o.Status != dispatcherd.Done:
			bad++
		}
	}
	want := c.runWhen == claimfake.WhenEnded || c.runWhen == claimfake.WhenDone && bad == 0 || c.runWhen == claimfake.WhenFailed && bad > 0
	if runs != want {
		w.violate(
			"wrong outcome: job %d runs: %t, want %t by run_when %d; %d of %d jobs are not done",
			r.ID,
			runs,
			want,
			c.runWhen,
			bad,
			len(c.after),
		)
	}
}

// fires checks the release of a waiting row, or its cancellation.
func (j *joinJudge) fires(w *world, r *claimfake.Row, runs bool) {
	w.stats.Fired++
	j.checkWait(w, r, runs)
	c := j.waits[r.ID]
	if c == nil || c.fired {
		w.violate("joined twice: job %d is released again, or waits for nothing", r.ID)
		return
	}
	c.fired = true
}

// orphanAge is how long a job may wait after the end of its parent, while a dispatcher works without interruption.
const orphanAge = 2 * slack

// checkOrphans checks that no job waits for long after the end of its parent.
func (j *joinJudge) checkOrphans(w *world) {
	if w.postgres.down || w.postgres.cut ||
		!slices.ContainsFunc(w.hosts, func(h *host) bool { return h.works() && w.now-h.since > orphanAge }) {
		return
	}
	j.open = slices.DeleteFunc(j.open, func(id dispatcherd.JobID) bool {
		r := w.table.Row(id)
		parent := w.table.Row(r.Parent)
		since := max(w.job(r.Parent).ended, w.job(id).visible, w.postgres.restored)
		if parent.Status.Final() && (r.Status == dispatcherd.Pending || r.Status == dispatcherd.Waiting) && !r.Locked() &&
			w.now-since > orphanAge {
			w.violate(
				"orphan: job %d has status %s %v after the end of its parent %d",
				id,
				r.Status,
				(w.now - w.job(r.Parent).ended).duration(),
				r.Parent,
			)
		}
		return r.Status.Final()
	})
}
