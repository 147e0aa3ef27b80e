package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// An insertion is a transaction that has not committed. Its ids are drawn when it
// starts. run_at is the time of that start, unless the producer chose another time.
type insertion struct {
	first     dispatcherd.JobID
	count     int
	notifies  bool
	structure *structure // that it inserts, or nil
	batch     *structure // of which it inserts members, or nil
}

// produce inserts some jobs.
func (w *world) produce() {
	if w.healing {
		return
	}
	d := &w.random
	n := int(d.between(1, 3))
	if d.chance(w.scale.bulk) {
		n = int(d.between(5, 45))
	}
	b := insertion{first: dispatcherd.JobID(len(w.jobs) + 1), count: n}
	for range n {
		w.jobs = append(w.jobs, w.newJob())
	}
	w.open += n
	w.planCommit(b, 0)
	w.plan(task{at: w.now + 1 + d.span(0, 4*w.scale.insertGap), kind: producerTurn})
}

// planCommit plans the commit of an insertion that starts now and lasts at least for a while.
func (w *world) planCommit(b insertion, least moment) {
	d := &w.random
	b.notifies = w.table.Subscribed(0)
	w.insertions = append(w.insertions, b)
	commit := w.now + least + d.span(50, 500)
	if w.has(Late) && d.chance(500) {
		commit = w.now + d.span(0, 2*second)
	}
	w.plan(task{at: commit, kind: producerCommit, arg: int32(len(w.insertions) - 1)})
}

func (w *world) newJob() job {
	d := &w.random
	typ := uint8(d.below(int64(w.scale.types)))
	r := claimfake.Row{
		ID: dispatcherd.JobID(len(w.jobs) + 1), RunAt: w.dbNow(), Type: w.typeNames[typ], MaxAttempts: int32(d.between(1, 4)),
		Priority: w.scale.priorities[d.below(int64(len(w.scale.priorities)))], Expected: w.expects(),
	}
	switch {
	case d.chance(w.scale.future):
		r.RunAt += d.below(int64(3 * second))
	case w.has(Late) && d.chance(300):
		r.RunAt -= d.below(int64(20 * second))
	}
	switch n := d.below(10_000); {
	case n < w.scale.limited:
		r.Timeout = time.Duration(d.between(1, 500)) * time.Millisecond
	case n < w.scale.limited+w.scale.durable:
		r.Deadline = r.RunAt + int64(d.span(millisecond, 2*second))
	}
	w.harden(&r)
	if len(w.table.Keyed()) < maxKeyed {
		w.keys.give(&r)
	}
	return job{insert: r, typ: typ}
}

// commit makes an insertion visible. While the server is unavailable, the
// producer retries.
func (w *world) commit(i int32) {
	if w.postgres.down || w.postgres.cut {
		w.plan(task{at: w.now + second/10, kind: producerCommit, arg: i})
		return
	}
	b := w.insertions[i]
	switch {
	case b.structure != nil:
		w.commitStructure(b.structure)
	case b.batch == nil || w.commitMembers(&b):
		w.insert(&b)
	}
	switch {
	case !b.notifies && !w.table.Subscribed(0):
	case b.count == 1 && b.structure == nil && w.job(b.first).insert.Keys == "" && w.job(b.first).insert.RunAt <= w.dbNow():
		w.notifyRow(rowInserted - int32(b.first-1))
	default:
		w.notify()
	}
}

func (w *world) insert(b *insertion) {
	for n := range b.count {
		j := w.job(b.first + dispatcherd.JobID(n))
		id := w.table.Insert(w.dbNow(), j.insert)
		if w.table.Row(id).Refused != nil {
			w.refuse(id)
		}
	}
}

// cancelSome requests the cancellation of a job, as Jobs.Cancel does.
func (w *world) cancelSome() {
	if w.healing {
		return
	}
	w.plan(task{at: w.now + w.random.span(0, 4*w.scale.cancelGap), kind: producerCancel})
	n := int64(len(w.jobs))
	if n == 0 || w.postgres.down || w.postgres.cut {
		return
	}
	id := dispatcherd.JobID(n - w.random.span64(n))
	r := w.table.Row(id)
	if r == nil || r.Locked() || w.table.Cancel(id) != dispatcherd.Running || w.has(Notify) {
		return
	}
	for _, h := range w.hosts {
		if h.up {
			h.plan(hostNotification, w.now+w.random.span(50, 500), int32(id))
		}
	}
}

// span64 returns a number from 0 to n-1. Small numbers are more frequent.
func (d *random) span64(n int64) int64 { return d.below(d.below(n) + 1) }

// calls are the on-demand requests of one incarnation of a dispatcher.
type calls struct {
	all        []call // by -id - 1
	open       int
	abandoning dispatcherd.JobID // the core is told now that its caller has disconnected
}

type call struct {
	at    moment
	typ   uint8
	state callState
}

type callState uint8

const (
	callWaiting callState = iota
	callAnswered
	callAbandoned // the caller has disconnected
)

func (c *calls) get(id dispatcherd.JobID) *call { return &c.all[-id-1] }

// request submits an on-demand request.
func (h *host) request() {
	w := h.world
	if w.healing {
		return
	}
	d := &w.random
	h.plan(hostCall, w.now+1+d.span(0, 4*w.scale.callGap), 0)
	w.stats.Calls++
	c := call{at: w.now, typ: uint8(d.below(int64(w.scale.types)))}
	h.calls.all = append(h.calls.all, c)
	h.calls.open++
	id := dispatcherd.JobID(-len(h.calls.all))
	ev := actor.Requested{
		Job: id, Type: w.typeNames[c.typ], Priority: w.scale.priorities[d.below(int64(len(w.scale.priorities)))],
		Class: dispatcherd.ClassOf(w.expects()), Wait: d.below(3) == 0,
	}
	if d.below(3) == 0 {
		ev.Deadline = d.span(millisecond, 2*second).duration()
	}
	if ev.Wait && d.below(2) == 0 {
		ev.CapacityWait = d.span(millisecond, second).duration()
	}
	h.step(ev)
	if h.calls.get(id).state != callWaiting {
		return
	}
	if d.below(8) == 0 {
		h.plan(hostAbandon, w.now+d.span(0, second), int32(id))
	}
}

// abandonRequest handles a caller that disconnects before its answer.
func (h *host) abandonRequest(id int32) {
	c := h.calls.get(dispatcherd.JobID(id))
	if c.state != callWaiting {
		return
	}
	c.state = callAbandoned
	h.calls.open--
	h.world.stats.Abandoned++
	h.calls.abandoning = dispatcherd.JobID(id)
	h.step(actor.Abandoned{Job: dispatcherd.JobID(id)})
	h.calls.abandoning = 0
}

// endCapacityWait handles a caller that disconnects because no slot supports the
// type of its request.
func (h *host) endCapacityWait(id int32) {
	if int(-id) <= len(h.calls.all) && h.core.WaitsForCapacity(dispatcherd.JobID(id)) {
		h.abandonRequest(id)
	}
}

// answer delivers the answer of a request. A request has at most one answer,
// and none after its caller has disconnected.
func (h *host) answer(e *effect.Answer) {
	w := h.world
	c := h.calls.get(e.Job)
	if e.Job == h.calls.abandoning && e.Kind == effect.AnswerStopping {
		return // the step went on with its stop before the event
	}
	if c.state != callWaiting {
		w.violate("dispatcher %d answers request %d %q, which is already answered or abandoned", h.id, e.Job, e.Kind)
		return
	}
	c.state = callAnswered
	h.calls.open--
	w.stats.Answered++
}

// lanes returns the lanes of a type.
func (w *world) lanes(typ int) (lanes []contract.Lane) {
	classes := expected[:1]
	if w.faults&Expected != 0 {
		classes = expected[:]
	}
	for _, p := range w.scale.priorities {
		for _, e := range classes {
			lanes = append(lanes, contract.Lane{Type: w.typeNames[typ], Priority: p, Class: dispatcherd.ClassOf(e)})
		}
	}
	return lanes
}

// durationWindow is the duration window of worlds with expected durations. Executions take from milliseconds to seconds.
const durationWindow = time.Second

// expected are the expected durations of such worlds: none, and of four classes.
var expected = [...]time.Duration{0, time.Millisecond, 20 * time.Second, 5 * time.Minute, 20 * time.Hour}

// weights returns the weights of all dispatchers.
func (w *world) weights() scoring.Weights {
	own := weights
	if w.faults&Expected != 0 {
		own.DurationWindow = durationWindow
	}
	return own
}

// pickExpected decides whether jobs have expected durations. They have a random source of their own, so that existing seeds
// keep their worlds.
func (w *world) pickExpected() {
	w.durations.pcg = *rand.NewPCG(w.opt.Seed, 0x65787065)
	w.learned = map[learnedBy]contract.Durations{}
	if !w.opt.Every && w.durations.below(2) == 0 {
		w.faults &^= Expected
	}
}

// expects returns the expected duration of a new job.
func (w *world) expects() time.Duration {
	if w.faults&Expected == 0 {
		return 0
	}
	return expected[w.durations.below(int64(len(expected)))]
}

// learnedBy is the key of the table durations: a dispatcher, under its name, and what it has learned of.
type learnedBy struct {
	host  int16
	typ   string
	class dispatcherd.DurationClass
}

// shareDurations writes what the Core has learned of durations and reads what all dispatchers have, after each heartbeat.
func (h *host) shareDurations() {
	w := h.world
	if w.faults&Expected == 0 {
		return
	}
	for _, d := range h.core.Durations().Changed() {
		w.learned[learnedBy{h.id, d.Type, d.Class}] = d
	}
	var read actor.DurationsRead
	others := map[learnedBy]contract.Durations{}
	for by, d := range w.learned { // order-free: sums, which are sorted below
		if by.host == h.id {
			read.Own = append(read.Own, d)
			continue
		}
		by.host = 0
		d.N, d.S = d.N+others[by].N, d.S+others[by].S
		others[by] = d
	}
	for _, d := range others { // order-free: sorted below
		read.Others = append(read.Others, d)
	}
	for _, list := range [][]contract.Durations{read.Own, read.Others} {
		slices.SortFunc(list, func(a, b contract.Durations) int {
			return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Class, b.Class))
		})
	}
	if h.shared {
		read.Own = nil
	}
	h.shared = true
	w.stats.Shared += len(read.Others)
	h.step(read)
}
