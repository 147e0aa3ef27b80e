package actor

import (
	"math/bits"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/backlog"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// Reason is a cause that keeps a job from starting. For a job that does not wait,
// Reason is the state of the job. The texts are part of the interface.
type Reason string

// The reasons, in the order in which they are listed.
const (
	ReasonRunning   Reason = "Running"   // the job runs on a slot
	ReasonRecording Reason = "Recording" // the attempt has ended; the end is being recorded
	// ReasonUnrecordable: the attempt has ended, but its row is locked or Postgres refuses the end; it is sent again after a pause.
	ReasonUnrecordable Reason = "Unrecordable"
	ReasonClaimed      Reason = "Claimed"      // a slot is reserved and the claim is in flight
	ReasonScheduled    Reason = "Scheduled"    // the run_at of the job is in the future
	ReasonBackoff      Reason = "Backoff"      // the job failed, and its next attempt is in the future
	ReasonDraining     Reason = "Draining"     // this dispatcher is about to stop
	ReasonPaused       Reason = "Paused"       // an operator has paused the type
	ReasonSetAside     Reason = "SetAside"     // Postgres refused to claim the row, which is claimed again after a pause
	ReasonFenced       Reason = "Fenced"       // the lease is not renewed, so this dispatcher claims no row
	ReasonCircuitOpen  Reason = "CircuitOpen"  // Postgres does not answer
	ReasonUnrecorded   Reason = "Unrecorded"   // too many ended attempts wait to be recorded
	ReasonTypeUnknown  Reason = "TypeUnknown"  // no slot here has offered the type, or the dispatcher has forgotten the type
	ReasonNoCapacity   Reason = "NoCapacity"   // the type is known, but no slot supports it
	ReasonCapacityBusy Reason = "CapacityBusy" // every slot that supports the type is taken, and this job cannot preempt another one
	// ReasonClaimRaceLost: the cursor is past the row, because its claim was lost or the row was committed late; the next full scan
	// finds it.
	ReasonClaimRaceLost Reason = "ClaimRaceLost"
	ReasonUnread        Reason = "Unread" // the row comes after all candidates read so far
	// ReasonOtherShare: the row belongs to another dispatcher's share; here it is read when slots are free or when the row is old.
	ReasonOtherShare  Reason = "OtherShare"
	ReasonAwaitsFetch Reason = "AwaitsFetch" // a fetch in flight may return a better job
	ReasonClaimsFull  Reason = "ClaimsFull"  // the next claim is full, or the jobs that rank before this one may fill it
	ReasonPermits     Reason = "Permits"     // the job had no permits of its keys; only of a wait that is over
	ReasonOutranked   Reason = "Outranked"   // a job with a higher score can use the same slots
)

// DecisionKind says what was decided and which fields of a Decision are set.
type DecisionKind uint8

// The kinds.
const (
	// DecisionPlaced assigns a slot to a job. All fields except Ran, Started,
	// Outcome and Answer are set. Waited is the time until the decision.
	DecisionPlaced DecisionKind = iota + 1
	// DecisionWaiting leaves the best job of a type waiting. These fields are set:
	// Type; one reason in Reasons; Job, Mode, Priority and Score of the best job.
	DecisionWaiting
	// DecisionEnded ends an attempt, or a request that has never started. These
	// fields are set: Job, Attempt, Mode, Type, Priority, Waited, Ran, Started,
	// and Outcome or Answer.
	DecisionEnded
)

// String returns the name of the kind in exports.
func (k DecisionKind) String() string { return [...]string{"", "placed", "waiting", "ended"}[k] }

// Decision is an entry for the decision log. It contains no payload, no result and
// no error text. A Decision shares its strings with the Core, so that it needs no
// allocation.
type Decision struct {
	Job       dispatcherd.JobID // 0 = a row that is not fetched yet, represented by its upper bound, or no particular job
	Slot      dispatcherd.SlotID
	Type      string
	Worker    string
	Terms     scoring.Terms
	Score     scoring.Milli
	RunnerUp  RunnerUp
	Waited    time.Duration // time before the start of the attempt, or until now
	Ran       time.Duration // 0 if the job did not start
	Attempt   dispatcherd.Attempt
	Capacity  int32 // slots that support the type, free or busy, here and at other dispatchers
	SlotTypes int32 // types that the slot supports
	Kind      DecisionKind
	Mode      dispatcherd.Mode
	Priority  dispatcherd.Priority
	Reasons   WaitReasons // why jobs of the type waited since this job arrived
	Outcome   contract.Outcome
	Answer    effect.AnswerKind // for on-demand requests, which have no Outcome; 0 for rows
	Started   bool              // of an end: a worker had received the job
}

// RunnerUp is the best job that was considered after the placed job. If the placed
// job preempted another one, RunnerUp is the preempted job.
type RunnerUp struct {
	Job   dispatcherd.JobID // 0 = a row that is not fetched yet
	Type  string            // "" = there was no other job
	Score scoring.Milli
}

// Decisions returns the decisions of the last step, in order. The slice is valid
// until the next step.
func (c *Core) Decisions() []Decision { return c.decisions }

// WaitReasons is a set of reasons why the best job of a type did not start.
type WaitReasons uint16

// The positions of the reasons in WaitReasons.
const (
	waitBusy = iota
	waitNoCapacity
	waitFetch
	waitClaims
	waitCircuitOpen
	waitUnrecorded
	waitFenced
	waitDraining
	waitPaused
	waitReasons
)

var waitReasonNames = [waitReasons]Reason{
	ReasonCapacityBusy,
	ReasonNoCapacity,
	ReasonAwaitsFetch,
	ReasonClaimsFull,
	ReasonCircuitOpen,
	ReasonUnrecorded,
	ReasonFenced,
	ReasonDraining,
	ReasonPaused,
}

// List returns the reasons in a fixed order.
func (r WaitReasons) List() (list []Reason) {
	for i, name := range waitReasonNames {
		if r&(1<<i) != 0 {
			list = append(list, name)
		}
	}
	return list
}

// waitLogPause is the minimum time between two entries with the same type and
// reason.
const waitLogPause timing.Instant = 1000

// waitLogsPerStep is the maximum number of such entries of one step. A slot of
// thousands of types may leave thousands of best jobs waiting. Entries that are left
// out follow when their types are examined again.
const waitLogsPerStep = 256

// typeWaits records why jobs of one type waited.
type typeWaits struct {
	periods waitPeriods
	last    [waitReasons]timing.Instant // instant at which each reason last held
	held    WaitReasons                 // reasons that have held at least once; last is valid only for these
	logged  int8                        // position of the reason that was logged last
}

// appeared records that no slot has supported the type since an instant, and that one may
// from now on.
func (w *typeWaits) appeared(since, now timing.Instant) {
	w.periods.add(waitNoCapacity, since)
	w.periods.add(unknownWait, now)
	w.last[waitNoCapacity], w.held, w.logged = now, 1<<waitNoCapacity, -1 // nothing is logged
}

// since returns the reasons that held at or after an instant.
func (w *typeWaits) since(at timing.Instant) (r WaitReasons) {
	for m := w.held; m != 0; m &= m - 1 {
		if w.last[bits.TrailingZeros16(uint16(m))] >= at {
			r |= m & -m
		}
	}
	return r
}

// longest returns the reason that held longest between two instants; "" = none is known.
func (w *typeWaits) longest(from, to timing.Instant) Reason {
	longest := w.periods.longest(from, to, w.since(from))
	if longest == unknownWait {
		return ""
	}
	return waitReasonNames[longest]
}

// logDecision appends an entry for the decision log.
func (c *Core) logDecision(kind DecisionKind) *Decision {
	c.decisions = append(c.decisions, Decision{Kind: kind})
	return &c.decisions[len(c.decisions)-1]
}

// job returns the id of the job of a head, or 0 for an upper bound.
func (h *head) job() dispatcherd.JobID {
	switch {
	case h.bound:
		return 0
	case h.mode == dispatcherd.OnDemand:
		return dispatcherd.JobID(-h.number)
	}
	return dispatcherd.JobID(h.number)
}

// logPlacement writes the entry of a job that has just been assigned to a slot.
func (c *Core) logPlacement(j *job) {
	d := c.logDecision(DecisionPlaced)
	age := c.dueMS(j)
	d.Job, d.Slot, d.Type, d.Worker = j.id, c.index.SlotID(j.slot), c.index.Name(j.Type), c.slots[j.slot].session.worker
	d.Terms, d.Score = j.terms, j.terms.Total()
	d.Waited = msDuration(max(0, age))
	d.Attempt, d.Capacity, d.SlotTypes = j.attempt, int32(c.capacity(j.Type)), int32(len(c.index.TypesOf(j.slot)))
	d.Mode, d.Priority = j.mode, j.Priority
	typ, arrived := &c.types[j.Type].reasons, c.now-timing.Instant(age)
	d.Reasons = typ.since(arrived)
	j.waitedFor = typ.longest(arrived, c.now)
}

// admitted corrects the main reason of the wait of a job with keys, which a claim has taken. The job got its permits some time ago. Before,
// it was no candidate, so the reasons of its type say nothing about it.
func (c *Core) admitted(j *job, ago time.Duration) {
	arrived := c.now - timing.Instant(c.dueMS(j))
	at := max(arrived, min(c.now.After(-ago), j.placedAt))
	j.row.permits, j.waitedFor = msDuration(int64(at-arrived)), ReasonPermits
	if j.placedAt-at >= at-arrived {
		j.waitedFor = c.types[j.Type].reasons.longest(at, j.placedAt)
	}
}

// logRunnerUp sets the runner-up of the latest placement. It does nothing if the
// step has made only n decisions.
func (c *Core) logRunnerUp(n int, h *head) {
	if len(c.decisions) == n {
		return
	}
	d := &c.decisions[len(c.decisions)-1]
	if d.Kind == DecisionPlaced && d.RunnerUp.Type == "" {
		d.RunnerUp = RunnerUp{Job: h.job(), Type: c.index.Name(h.Type), Score: h.score}
	}
}

// logEnd writes the entry of an attempt or waiting request that ends.
func (c *Core) logEnd(j *job, outcome contract.Outcome, answer effect.AnswerKind) {
	d := c.logDecision(DecisionEnded)
	waited := msDuration(c.dueMS(j))
	if j.sentAt != notSent {
		d.Started, d.Ran = true, msDuration(int64(c.now-j.sentAt))
		waited -= d.Ran
	}
	d.Job, d.Type, d.Attempt, d.Mode, d.Priority = j.id, c.index.Name(j.Type), j.attempt, j.mode, j.Priority
	d.Waited, d.Outcome, d.Answer = max(0, waited), outcome, answer
}

// reasonInHand returns the reason of a job that no longer waits. held says that the end
// of the job is held.
func reasonInHand(j *job, held bool) Reason {
	switch {
	case j.state.executing():
		return ReasonRunning
	case j.state == stateRecording && held:
		return ReasonUnrecordable
	case j.state == stateRecording:
		return ReasonRecording
	}
	return ReasonClaimed
}

// reasons returns everything that prevents a waiting job from starting in the next
// step.
func (c *Core) reasons(x *Explanation, a *asked, q Inquiry, unknown, full bool) []Reason {
	var list []Reason
	add := func(r Reason, holds bool) {
		if holds {
			list = append(list, r)
		}
	}
	queued := a.mode == dispatcherd.Queued
	early := queued && a.aged && a.age < 0
	cached := false
	if queued && a.known && !early {
		cached = c.backlog.State(a.Lane).Contains(a.key)
	}
	add(ReasonBackoff, early && q.Failures > 0)
	add(ReasonScheduled, early && q.Failures == 0)
	add(ReasonDraining, c.draining)
	if add(ReasonPaused, x.Paused != ""); x.Paused != "" {
		return list // nothing else is known of its lane, and no slot is looked for
	}
	add(ReasonSetAside, x.SetAside != "")
	add(ReasonFenced, queued && c.disowned)
	add(ReasonCircuitOpen, queued && c.claims.breaker.Open(c.now))
	add(ReasonUnrecorded, queued && c.ends.unrecorded >= c.cfg.Limits.Unfinished)
	add(ReasonTypeUnknown, !a.known)
	add(ReasonNoCapacity, a.known && x.Capacity == 0)
	add(ReasonCapacityBusy, x.Capacity > 0 && x.Free == 0 && x.Slot == 0)
	read := x.Capacity > 0 // no row of a type without slots is fetched, so no decision waits for a fetch
	if queued && read && !early && !cached {
		local := a.Lane
		local.NonLocal = false
		unread := c.backlog.State(local).Cursor.Less(a.key)
		add(ReasonClaimRaceLost, !a.NonLocal && !unread)
		add(ReasonUnread, !a.NonLocal && unread)
		add(ReasonOtherShare, a.NonLocal)
	}
	add(ReasonAwaitsFetch, unknown && read)
	add(ReasonClaimsFull, full)
	add(ReasonOutranked, x.Competing > 0)
	return list
}

// score computes the terms of a job's score at this instant.
func (c *Core) score(mode dispatcherd.Mode, r backlog.Lane, ageMS int64) scoring.Terms {
	terms := c.cfg.Weights.Score(mode, r.Priority, ageMS, c.capacity(r.Type))
	terms.Brevity = c.brevity(r)
	return terms
}

// brevity returns the term for the expected duration of the jobs of a type and class. It is 0 for a forgotten type, which only slots
// support that are drained.
func (c *Core) brevity(r backlog.Lane) scoring.Milli {
	d := c.types[r.Type].durations
	if d == nil {
		return 0
	}
	return c.cfg.Weights.Brevity(c.durations.Expected(d, r.Class, c.now))
}
