package sim

import (
	"bytes"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// weights have the proportions of article 1 at the pace of worlds that last
// seconds: a unit of priority is worth one second of waiting, and the
// overtaking window is 18.5 seconds.
var weights = scoring.Weights{
	Priority: 16, Ageing: 16, Rarity: 8, OnDemand: 64, OnDemandAgeing: 32, OnDemandCap: (2 * second).duration(),
}

// judge checks every transition. It shares no code with the statements: it
// compares the row with the change that is about to be made.
type judge struct {
	sends     int
	atEnd     func(*claimfake.Row) // an additional check of every row at the end, or nil
	handOvers map[int32]bool       // runs that have handed over
	leases    map[int32]moment     // end of the lease or of the window of a hand-over, by run
	keys      keyJudge
	joins     joinJudge
	freeSince [maxHosts][maxTypes]moment // since when every sample saw a free slot of a type; 0 = none free
}

// hashEffect adds an effect to the hash of the run.
func (w *world) hashEffect(h *host, e effect.Effect) {
	v := mix(w.hash, uint64(h.id))
	switch e := e.(type) {
	case *effect.Fetch:
		v = mixFetch(v, e.Request)
	case *effect.Claim:
		v = mixClaim(mix(v, 1), e.Request)
	case *effect.Resolve:
		v = mixClaim(mix(v, 2), e.Request)
	case *effect.Finish:
		v = mix(v, 3)
		for i := range e.Request.Items {
			f := &e.Request.Items[i]
			v = mix(v, uint64(f.ID)^uint64(f.Outcome)<<40^uint64(f.Delay)<<3)
		}
	case *effect.Adopt:
		v = mix(v, 4)
		for i := range e.Request.Jobs {
			p := &e.Request.Jobs[i]
			v = mix(mix(v, uint64(p.ID)^uint64(p.Attempt)<<40), uint64(p.From)^uint64(p.To)<<1)
		}
	case *effect.Send:
		v = mix(mixJob(mix(v, 5), e.Session, e.Job, e.Attempt), uint64(e.Terms.Total())^uint64(e.Age)^uint64(e.Slot)<<48)
	case *effect.Cancel:
		v = mixJob(mix(v, 6), e.Session, e.Job, e.Attempt)
	case *effect.Stale:
		v = mixJob(mix(v, 7), e.Session, e.Job, e.Attempt)
	case *effect.NotHeld:
		v = mixJob(mix(v, 8), e.Session, e.Job, e.Attempt)
	case *effect.HangUp:
		v = mixJob(mix(v, 9), e.Session, e.Job, e.Attempt)
	case *effect.Resume:
		v = mixJob(mix(v, 10), e.Session, e.Job, e.Attempt)
	case *effect.Answer:
		v = mixJob(mix(v, 11), 0, e.Job, dispatcherd.Attempt(e.Kind))
	case *effect.Welcome:
		v = mix(mix(v, 12), uint64(e.Session))
	case *effect.TurnAway:
		v = mix(mix(v, 13), uint64(e.Session))
	case *effect.GoAway:
		v = mix(mix(v, 14), uint64(e.Session))
	}
	w.hash = v
}

func mixJob(v uint64, s dispatcherd.SessionID, id dispatcherd.JobID, a dispatcherd.Attempt) uint64 {
	return mix(mix(v, uint64(id)), uint64(s)^uint64(a)<<40)
}

func mixClaim(v uint64, r *contract.ClaimRequest) uint64 {
	for i, id := range r.IDs {
		v = mix(v, uint64(id)^uint64(r.Token[i&15])<<40)
	}
	return v
}

func mixFetch(v uint64, r *contract.FetchRequest) uint64 {
	for i := range r.Lanes {
		l := &r.Lanes[i]
		v = mix(v, uint64(l.Priority)|uint64(l.Limit)<<8^uint64(l.After.ID)<<32)
		if r.Backfill {
			v = mix(v, uint64(l.Before.RunAt)^uint64(l.Before.ID)<<32)
		}
		v = mix(v, uint64(l.Share.From)|uint64(l.Share.Block)<<24|uint64(l.Share.To)<<32)
	}
	return v
}

// claimed checks that a claimed row is pending and due, and that its dispatcher
// has not been declared lost.
func (j *judge) claimed(w *world, r *claimfake.Row, s *claimfake.Statement) {
	switch {
	case r.Status != dispatcherd.Pending:
		w.violate("dispatcher %d claimed job %d, which was not pending but had status %s under dispatcher %d: two leases overlap",
			s.Dispatcher(), r.ID, r.Status, r.Dispatcher)
	case r.Refused != nil:
		w.violate("dispatcher %d claimed job %d although Postgres refuses it", s.Dispatcher(), r.ID)
	case r.RunAt > s.Began():
		w.violate("dispatcher %d claimed job %d before it was due", s.Dispatcher(), r.ID)
	case w.table.Lost(s.Dispatcher()):
		w.violate("dispatcher %d claimed job %d although it was declared lost", s.Dispatcher(), r.ID)
	}
}

// finished checks that the ended attempt is the running one of this dispatcher,
// and that a job recorded as done succeeded on a worker.
func (j *judge) finished(w *world, r *claimfake.Row, f *contract.Finish, s *claimfake.Statement) {
	switch {
	case r.Status != dispatcherd.Running || r.Attempt != f.Attempt || r.Dispatcher != s.Dispatcher():
		w.violate("a stale end of job %d was applied: attempt %d of dispatcher %d, while attempt %d of dispatcher %d is current",
			f.ID, f.Attempt, s.Dispatcher(), r.Attempt, r.Dispatcher)
	case f.Outcome == contract.Succeeded && w.job(f.ID).succeeded < f.Attempt:
		w.violate("attempt %d of job %d is recorded as done, but it succeeded on no worker", f.Attempt, f.ID)
	}
}

// released checks that a dispatcher releases only its own jobs and the jobs of
// lost dispatchers. Handed-over jobs must be released only after their window
// and without a crash.
func (j *judge) released(w *world, r *claimfake.Row, s *claimfake.Statement, crashes int32) {
	if j.handOvers[r.Dispatcher] {
		w.stats.NotAdopted++
		switch {
		case !w.table.Lost(r.Dispatcher):
			w.violate("job %d was handed over and is released at once", r.ID)
		case crashes > 0:
			w.violate("job %d was handed over and counts a crash", r.ID)
		}
	}
	if r.Status != dispatcherd.Running || !w.table.Lost(r.Dispatcher) && r.Dispatcher != s.Dispatcher() {
		w.violate("job %d was released although dispatcher %d is not lost", r.ID, r.Dispatcher)
	}
}

// executionStarted checks that the slot supports the type and that no attempt
// starts twice or before its claim.
func (j *judge) executionStarted(k *worker, s *workerSlot, f *frame) bool {
	w := k.world
	if r := w.job(f.job); r != nil {
		switch {
		case w.table.Row(f.job) == nil || f.attempt > w.table.Row(f.job).Attempt:
			w.violate("attempt %d of job %d starts without a claim", f.attempt, f.job)
		case f.attempt == w.table.Row(f.job).Attempt && f.typ != r.typ:
			w.violate("job %d of type %d was sent as one of type %d", f.job, r.typ, f.typ)
		case f.attempt == r.started:
			w.violate("attempt %d of job %d starts a second time", f.attempt, f.job)
		}
		for at := r.execution; at != 0; at = w.executions.all[at-1].next {
			w.stats.Overlaps++
			o := &w.executions.all[at-1]
			if !o.ended {
				w.executedTwice(f.job)
			}
			if o.attempt == f.attempt {
				w.violate("attempt %d of job %d is executed twice concurrently", f.attempt, f.job)
			}
		}
		if f.attempt > r.started {
			r.started, r.ranBy = f.attempt, k.id
		}
	}
	if f.job < 0 {
		w.serves(k.conn.request(f.job))
	}
	if w.setMasks[s.set]&(1<<f.typ) == 0 {
		w.violate("job %d of type %d was sent to a slot that does not support it", f.job, f.typ)
	}
	return w.broken == nil
}

// sent checks that a dispatcher sends only attempts that it claimed, unless the
// row was released since. Every eighth placement is compared with the
// overtaking window.
func (j *judge) sent(w *world, h *host, e *effect.Send) {
	arrival := w.dbNow()
	if e.Mode == dispatcherd.OnDemand {
		c := h.calls.get(e.Job)
		arrival -= int64(w.now - c.at)
	} else {
		r := w.table.Row(e.Job)
		if w.runsAttempt(e.Job, e.Attempt) && w.hostOf(r.Dispatcher) != h {
			w.violate("dispatcher %d sent attempt %d of job %d, which another dispatcher holds", h.id, e.Attempt, e.Job)
		}
		if e.Attempt > r.Attempt {
			w.violate("dispatcher %d sent attempt %d of job %d without a claim", h.id, e.Attempt, e.Job)
		}
		if r.Unreadable != nil || !bytes.Equal(e.Payload, r.Payload) {
			w.violate("dispatcher %d sent job %d with %d bytes instead of %d (%v)", h.id, e.Job, len(e.Payload), len(r.Payload), r.Unreadable)
		}
		if r.Deadline != 0 && w.dbNow() > r.Deadline && !w.has(Clocks) { // a dispatcher measures the rest of the time with its own clock
			w.violate("dispatcher %d sent job %d after its deadline", h.id, e.Job)
		}
		arrival = w.job(e.Job).insert.RunAt // not its present run_at: after a retry a job may keep the position of an earlier fetch
	}
	if j.sends++; j.sends&7 == 0 && w.undisturbed() {
		j.window(w, h, e, arrival)
	}
}

// calledStale counts ends that are reported as stale although this dispatcher
// recorded them. That is correct for a repeated report and wrong otherwise.
func (j *judge) calledStale(w *world, h *host, e *effect.Stale) {
	r := w.table.Row(e.Job)
	if r != nil && r.Attempt == e.Attempt && r.Status.Final() && r.Dispatcher > 0 && w.hostOf(r.Dispatcher) == h {
		w.stats.WrongStale++
	}
}

// undisturbed reports whether the database answers at once and all clocks
// agree, so that jobs wait only for other jobs.
func (w *world) undisturbed() bool {
	t := &w.postgres
	return w.faults&(Unreachable|Slow|Unknown|Clocks|Stop|Remote) == 0 &&
		!t.down && !t.cut && (t.restored == 0 || w.now-t.restored > 2*slack)
}

// slack is how long a dispatcher may take to notice a row or a slot: some polls
// and the next read of a lane.
const slack = 5 * second

// known returns the moment up to which this dispatcher must know all pending rows. Slow
// full scans are up to five minutes apart. Until the next one, the dispatcher does not
// know a row that became pending before a cursor. So in a world with slow scans it must
// know the rows that were pending when its last scan began.
func (h *host) known() moment {
	if !h.world.opt.SlowScans {
		return h.world.now
	}
	took, age := h.core.LastScan()
	return h.world.now - moment((took + age).Microseconds())
}

// window checks the overtaking window. If a dispatcher knows a waiting job, a
// job that arrived more than W later must not overtake it on a slot that
// supports both.
func (j *judge) window(w *world, h *host, e *effect.Send, arrival int64) {
	set := int16(-1)
	for _, o := range w.conns[e.Session-1].slots {
		if o.number == e.Number && w.now-o.at > slack {
			set = o.set
		}
	}
	if set < 0 {
		return
	}
	bound, _ := w.weights().SharedWindow(scoring.Penalty)
	latest := arrival - bound.Microseconds() - int64(slack)
	known := h.known()
	for t := range w.scale.types {
		if w.setMasks[set]&(1<<t) == 0 {
			continue
		}
		for _, lane := range w.lanes(t) {
			keys := w.table.Pending(lane)
			w.stats.Windows++
			if len(keys) == 0 || keys[0].RunAt >= latest {
				continue
			}
			r, locked := w.job(keys[0].ID), w.table.Row(keys[0].ID).Locked()
			if !locked && r.visible <= known && w.now-r.visible > slack+moment(bound.Microseconds()) {
				w.violate("job %d overtakes job %d, which is %v older and waited for %v: the window is %v",
					e.Job, keys[0].ID, moment(arrival-keys[0].RunAt).duration(), (w.now - r.visible).duration(), bound)
			}
		}
	}
}
