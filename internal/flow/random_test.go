package flow

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// history is a random history of producers, dispatchers and operators.
type history struct {
	*memory
	t      *testing.T
	limits int // of steps; the largest random one
	log    []string
	wants  *state // what a retry must result in, if nothing else happens
	early  bool   // a retry is told after other messages: what those decide first is right, too
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *history) fail(what string) {
	h.t.Helper()
	h.t.Fatalf("%s\n%v", what, h.log)
}

var whens = []string{"done", "ended", "failed"}

// pick returns a random job that fits; nil = there is none.
func (h *history) pick(fits func(*row) bool) *row {
	for range 8 {
		if len(h.order) == 0 {
			return nil
		}
		if j := h.jobs[h.order[h.r.IntN(len(h.order))]]; !j.dropped && fits(j) {
			return j
		}
	}
	return nil
}

// target returns a random target that fits; nil = there is none.
func (h *history) target(fits func(*Batch) bool) *Batch {
	ids := slices.DeleteFunc(slices.Sorted(maps.Keys(h.batches)), func(id dispatcherd.JobID) bool { return !fits(h.batches[id]) })
	if len(ids) == 0 {
		return nil
	}
	return h.batches[ids[h.r.IntN(len(ids))]]
}

func isOpen(b *Batch) bool { return b.Kind == "batch" && !b.Sealed && b.CancelledBy == "" }

func (h *history) openBatch() {
	b := &Batch{ID: h.next(), Kind: "batch", RunWhen: whens[h.r.IntN(3)], Callback: h.r.IntN(4) > 0}
	var outer dispatcherd.JobID
	if o := h.target(isOpen); b.Callback && o != nil && h.r.IntN(2) == 0 {
		outer = o.ID
	}
	h.batches[b.ID] = b
	if b.Callback {
		h.insert(b.ID, outer, dispatcherd.Waiting).watched = true
	}
	h.note("open %d in %d", b.ID, outer)
}

func (h *history) addMember() {
	if b := h.target(isOpen); b != nil {
		j := h.insert(h.next(), b.ID, dispatcherd.Pending)
		h.note("add %d to %d", j.id, b.ID)
	}
}

func (h *history) seal() {
	if b := h.target(isOpen); b != nil {
		b.Sealed, b.Open = true, h.members(b.ID)
		h.send(Message{Target: b.ID})
		h.note("seal %d", b.ID)
	}
}

func (h *history) insertFlow() {
	n := 1 + h.r.IntN(5)
	b := &Batch{ID: h.next(), Kind: kindFlow, RunWhen: whens[h.r.IntN(3)], Callback: h.r.IntN(2) == 0, Sealed: true, Open: n}
	h.batches[b.ID] = b
	if b.Callback {
		h.insert(b.ID, 0, dispatcherd.Waiting).watched = true
	}
	h.note("flow %d", b.ID)
	others := slices.Clone(h.order)
	for place := range n {
		d := &node{Node: Node{ID: h.next(), RunWhen: whens[h.r.IntN(3)], TakesResults: h.r.IntN(3) == 0}, flow: b.ID,
			place: int64(place + 1), Final: open}
		for _, before := range h.nodes[b.ID] {
			if h.r.IntN(2) == 0 {
				d.after = append(d.after, before.ID)
			}
		}
		if len(others) > 0 && h.r.IntN(3) == 0 {
			if id := others[h.r.IntN(len(others))]; id != b.ID && !h.jobs[id].dropped {
				d.after = append(d.after, id)
			}
		}
		if len(d.after) == 0 && d.RunWhen == "failed" {
			d.RunWhen = "done"
		}
		d.Open, d.Ready = len(d.after), len(d.after) == 0
		h.nodes[b.ID] = append(h.nodes[b.ID], d)
		h.node[d.ID] = d
		status := dispatcherd.Waiting
		if d.Ready {
			status = dispatcherd.Pending
		}
		h.insert(d.Node.ID, b.ID, status).listed = true
		for _, before := range d.after {
			h.addEdge(b.ID, before, d.ID)
		}
		h.note("node %d %s after %v", d.ID, d.RunWhen, d.after)
	}
	h.send(Message{Target: b.ID})
}

func (h *history) addEdge(flow, before, after dispatcherd.JobID) {
	for _, g := range h.edges[before] {
		if g.flow == flow {
			g.after = append(g.after, after)
			return
		}
	}
	outside := h.jobs[before].parent != flow || h.node[before] == nil
	h.edges[before] = append(h.edges[before], &edge{flow: flow, after: []dispatcherd.JobID{after}, outside: outside, Final: open})
}

func (h *history) claim() {
	if j := h.pick(func(j *row) bool { return j.status == dispatcherd.Pending }); j != nil {
		j.status = dispatcherd.Running
		h.note("claim %d", j.id)
	}
}

func (h *history) finish() {
	if j := h.pick(func(j *row) bool { return j.status == dispatcherd.Running }); j != nil {
		status := []dispatcherd.Status{dispatcherd.Done, dispatcherd.Done, dispatcherd.Failed}[h.r.IntN(3)]
		if j.asked {
			status = dispatcherd.Cancelled
		}
		h.end(j, status)
		h.note("end %d %s", j.id, status)
	}
}

func (h *history) spawn() {
	j := h.pick(func(j *row) bool {
		b := h.batches[j.id]
		return j.status == dispatcherd.Running && !j.asked && (b == nil || b.Kind == kindChildren)
	})
	if j == nil {
		return
	}
	j.watched = true
	if b := h.batches[j.id]; b == nil {
		h.batches[j.id] = &Batch{ID: j.id, Kind: kindChildren, RunWhen: "done"}
	} else {
		b.Sealed, b.Ended, b.CancelledBy, b.Open = false, false, "", 0
	}
	h.note("spawn %d under %d", h.insert(h.next(), j.id, dispatcherd.Pending).id, j.id)
}

func (h *history) cancelJob() {
	if j := h.pick(func(j *row) bool { return !j.status.Final() && !j.asked }); j != nil {
		h.note("cancel job %d", j.id)
		h.stop(j)
	}
}

// stop ends an idle job, and asks a running one to end.
func (h *history) stop(j *row) {
	if j.status != dispatcherd.Running {
		h.end(j, dispatcherd.Cancelled)
		return
	}
	j.asked = true
	if h.batches[j.id] != nil {
		h.send(Message{Target: j.id})
	}
}

func (h *history) cancelTree() {
	if b := h.target(func(b *Batch) bool { return !b.Ended && b.CancelledBy == "" }); b != nil {
		h.note("cancel %d", b.ID)
		b.CancelledBy = "user"
		h.send(Message{Target: b.ID})
		if j := h.jobs[b.ID]; j != nil && !j.status.Final() && !j.asked {
			h.stop(j)
		}
	}
}

func (h *history) retryJob() {
	j := h.pick(func(j *row) bool { return j.bad() > 0 })
	if j == nil {
		return
	}
	n, b, parent := h.node[j.id], h.batches[j.id], h.batches[j.parent]
	if n != nil && len(n.after) > 0 && (!j.began || !n.Ready) || b != nil && b.Callback && (!j.began || !b.Ended) {
		return // it must wait for others
	}
	if parent != nil && parent.CancelledBy != "" && (!parent.Ended || parent.Kind == kindChildren) || parent != nil && parent.Walk != "" {
		return
	}
	if parent != nil && parent.Kind == kindChildren && parent.Ended {
		return
	}
	h.early = h.early || len(h.ends) > 0 || slices.ContainsFunc(h.edges[j.id], func(g *edge) bool { return g.outside })
	h.note("retry job %d", j.id)
	h.again(j, dispatcherd.Pending, 0)
}

// retryTree retries a target, as a rule when all messages are counted: then the reference knows what follows.
func (h *history) retryTree() {
	b := h.target(func(b *Batch) bool {
		j := h.jobs[b.ID]
		return b.Kind != kindChildren && (j == nil || j.status.Final() || j.status == dispatcherd.Waiting)
	})
	if b == nil {
		return
	}
	settled := h.r.IntN(3) > 0
	if settled {
		h.drain()
		if j := h.jobs[b.ID]; j != nil && !j.status.Final() && j.status != dispatcherd.Waiting {
			return
		}
		h.wants = h.state()
		h.wants.retry(b.ID)
		h.wants.settle()
	}
	h.early = !settled
	h.note("retry %d", b.ID)
	h.send(Message{Target: b.ID, Walk: Retry})
	if settled {
		h.drain()
	}
}

func (h *history) repair() {
	if b := h.target(func(b *Batch) bool { return b.Sealed && !b.Ended }); b != nil {
		h.note("repair %d", b.ID)
		h.send(Message{Target: b.ID, Walk: Repair})
	}
}

// retain drops the row of a job that has ended.
func (h *history) retain() {
	if j := h.pick(func(j *row) bool { return j.status.Final() }); j != nil {
		h.note("drop %d", j.id)
		j.dropped = true
	}
}

// expire deletes an ended target with its records.
func (h *history) expire() {
	b := h.target(func(b *Batch) bool { return b.Ended && b.Open == 0 && b.Kind == "batch" && len(h.ends[b.ID]) == 0 })
	if b == nil {
		return
	}
	for _, j := range h.jobs {
		if j.parent == b.ID {
			j.parent = 0
		}
	}
	h.note("expire %d", b.ID)
	delete(h.batches, b.ID)
	delete(h.bad, b.ID)
}

func (h *history) random() Limits {
	n := 1 + h.r.IntN(h.limits)
	return Limits{Items: n, Bytes: 10 * n}
}

// steps does random steps of random targets.
func (h *history) steps() {
	for range h.r.IntN(6) {
		ids := slices.Sorted(maps.Keys(h.ends))
		if len(ids) == 0 {
			return
		}
		id := ids[h.r.IntN(len(ids))]
		h.note("step %d", id)
		h.step(id, h.random())
	}
}

// drain does steps until nothing is left, and compares the result with the reference.
func (h *history) drain() {
	walk := false
	for _, b := range h.batches {
		walk = walk || b.Walk != ""
	}
	for _, all := range h.ends {
		walk = walk || slices.ContainsFunc(all, func(e Message) bool { return e.Walk != "" })
	}
	want := h.wants
	if h.wants = nil; want == nil && !walk && !h.early {
		want = h.state()
		want.settle()
	}
	h.early = false
	h.note("drain")
	for n := 0; len(h.ends) > 0; n++ {
		ids := slices.Sorted(maps.Keys(h.ends))
		h.step(ids[h.r.IntN(len(ids))], h.random())
		if n > 100_000 {
			h.fail("steps do not end")
		}
	}
	if want != nil {
		if what := want.differs(); what != "" {
			h.fail(what)
		}
	}
	if what := h.problem(); what != "" {
		h.fail(what)
	}
	if h.wrong > 0 {
		h.fail("a repair found wrong counters")
	}
}

func (h *history) run() {
	operations := []func(){
		h.openBatch, h.addMember, h.addMember, h.addMember, h.seal, h.insertFlow, h.claim, h.claim, h.claim, h.claim,
		h.finish, h.finish, h.finish,
		h.finish, h.spawn, h.cancelJob, h.cancelTree, h.retryJob, h.retryJob, h.retryTree, h.repair, h.retain, h.expire,
		h.steps, h.steps, h.steps, h.steps, h.drain,
	}
	for range 20 + h.r.IntN(40) {
		operations[h.r.IntN(len(operations))]()
	}
	h.drain()
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{memory: newMemory(seed), t: t}
	h.limits = []int{1, 2, 5, 1000}[h.r.IntN(4)]
	h.locks = []int{0, 0, 3}[h.r.IntN(3)]
	h.check = func(n *node) {
		if c := h.recorded(n); c.Open != 0 || n.Open != 0 || c.Bad != n.Bad {
			h.fail(fmt.Sprintf("node %d is released with %+v, its records say %+v", n.ID, n.Node, c))
		}
	}
	h.note("seed %d limits %d", seed, h.limits)
	return h
}

// TestRandomHistories compares random histories with the naive reference. HISTORIES is their number.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	n := 10_000
	if text := os.Getenv("HISTORIES"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	for seed := range n {
		newHistory(t, uint64(seed)).run()
	}
}

// TestAnyPartitionGivesTheSameResult counts the same messages in portions of two sizes.
func TestAnyPartitionGivesTheSameResult(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		whole, portions := newHistory(t, seed), newHistory(t, seed)
		for _, h := range []*history{whole, portions} {
			h.limits, h.locks = 1000, 0
			for range 3 {
				h.insertFlow()
				h.openBatch()
				for range 4 {
					h.addMember()
				}
				h.seal()
			}
			for _, id := range h.order {
				if j := h.jobs[id]; j.status == dispatcherd.Pending && h.r.IntN(2) == 0 {
					h.end(j, []dispatcherd.Status{dispatcherd.Done, dispatcherd.Failed, dispatcherd.Cancelled}[h.r.IntN(3)])
				}
			}
		}
		portions.limits = 4
		whole.drain()
		portions.drain()
		for id, want := range whole.batches {
			got := *portions.batches[id]
			got.Reason = want.Reason // the first one that was counted
			require.Equal(t, *want, got, seed)
		}
		for id, want := range whole.node {
			got := *portions.node[id]
			got.Reason, got.Waiting, got.changed, got.EndedAt = want.Reason, want.Waiting, want.changed, want.EndedAt
			if got.Size = want.Size; want.TakesResults {
				got.Inputs = want.Inputs
			}
			require.Equal(t, *want, got, seed)
		}
	}
}

// The callback has failed. A retry that is counted together with this end does not cancel the members.
func TestRetryFollowsTheEndOfTheCallback(t *testing.T) {
	t.Parallel()
	h := newHistory(t, 1)
	h.locks, h.limits = 0, 1000
	b := &Batch{ID: h.next(), Kind: "batch", RunWhen: "ended", Callback: true}
	h.batches[b.ID] = b
	callback := h.insert(b.ID, 0, dispatcherd.Waiting)
	callback.watched = true
	member := h.insert(h.next(), b.ID, dispatcherd.Pending)
	h.seal()
	h.end(member, dispatcherd.Failed)
	h.drain()
	h.end(callback, dispatcherd.Failed)
	h.send(Message{Target: b.ID, Walk: Retry})
	h.drain()
	require.Equal(t, dispatcherd.Pending, member.status)
	require.Equal(t, dispatcherd.Waiting, callback.status)
	require.Empty(t, b.CancelledBy)
}
