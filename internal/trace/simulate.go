package trace

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/quota"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// Simulate runs the trace through the real core in simulated time. It returns
// the schedule, ordered by job and without the jobs that never start. Workers
// react at once, each statement is answered at the instant at which it is
// sent, and nothing fails. audit gets all facts in the order of the decisions;
// it may be nil. An error means that the core emitted an effect that the
// simulation does not support, which is a defect.
func Simulate(t *Trace, w scoring.Weights, audit *Auditor) ([]Placement, error) {
	if err := w.Validate(); err != nil {
		return nil, fmt.Errorf("simulate trace: %w", err)
	}
	return newSimulation(t, w, audit).run()
}

func (s *simulation) run() ([]Placement, error) {
	events, jobs := s.trace.Registrations(), s.trace.Jobs
	for {
		at := int64(never)
		if len(events) > 0 {
			at = events[0].AtMS
		}
		if len(jobs) > 0 {
			at = min(at, jobs[0].ArrivalMS)
		}
		if len(s.running) > 0 {
			at = min(at, s.running[0].endMS)
		}
		if at == never {
			break
		}
		s.at = at
		s.completions()
		n := countWhile(events, func(e SlotEvent) bool { return e.AtMS == at })
		s.slotEvents(events[:n])
		events = events[n:]
		n = countWhile(jobs, func(j Job) bool { return j.ArrivalMS == at })
		s.arrivals(jobs[:n])
		jobs = jobs[n:]
		s.decide()
		if s.broken != nil {
			return nil, fmt.Errorf("simulate trace at %s s: %w", formatSeconds(at), s.broken)
		}
	}
	sortPlacements(s.placed)
	return s.placed, nil
}

// simulation is the environment of one core. The ids of queued and on-demand
// jobs in the core are consecutive numbers in order of arrival, so that the
// core breaks ties by the rules of the exact schedule.
type simulation struct {
	trace *Trace
	core  *actor.Core
	audit *Auditor
	table *memoryTable
	slots *slotMap

	at      int64 // the instant, milliseconds of the trace
	batch   []actor.Event
	fx      []effect.Effect
	started []decision // in this instant
	running completions
	arrived int
	placed  []Placement
	broken  error

	estimates *estimates // nil = not recorded
}

// decision is a placement of this instant, with its score.
type decision struct {
	job   int // index in trace.Jobs
	slot  int // index in trace.Slots
	score scoring.Milli
}

func newSimulation(t *Trace, w scoring.Weights, audit *Auditor) *simulation {
	cfg := actor.DefaultConfig()
	cfg.Weights = w
	size := len(t.Jobs) + 2*len(t.Registrations()) + 1
	cfg.Limits.Slots = max(cfg.Limits.Slots, quota.For(size))
	cfg.Limits.SlotTypes, cfg.Limits.StepWork = math.MaxInt32, math.MaxInt32 // every decision of an instant is made in one step
	cfg.Limits.Types = max(cfg.Limits.Types, quota.For(size+len(t.Types())))
	cfg.Limits.Requests = max(cfg.Limits.Requests, quota.For(size))
	s := &simulation{trace: t, core: actor.New(cfg), audit: audit, table: newMemoryTable(t), slots: newSlotMap(t)}
	s.at = -1 // the core's instants are one ahead of the trace, see now
	s.batch = append(s.slots.placeholders(), s.slots.placeholderDurations())
	s.hold()
	return s
}

// now is the instant on the core's clock. This clock begins one millisecond
// before the trace. The placeholders are requested then, so they are older
// than every job.
func (s *simulation) now() timing.Instant { return timing.Instant(s.at + 1) }

func (s *simulation) tell(ev actor.Event) { s.batch = append(s.batch, ev) }

func (s *simulation) note(f Fact) {
	if s.audit != nil {
		s.audit.Observe(f)
	}
}

// completions ends the jobs whose time is over.
func (s *simulation) completions() {
	for len(s.running) > 0 && s.running[0].endMS == s.at {
		c := heap.Pop(&s.running).(completion)
		slot := s.trace.Slots[c.slot].ID
		s.note(Fact{Kind: SlotFreed, Job: s.trace.Jobs[c.job].ID, Slot: slot})
		s.note(Fact{Kind: JobEnded, Job: s.trace.Jobs[c.job].ID})
		s.tell(s.slots.release(c.slot))
	}
}

func (s *simulation) slotEvents(events []SlotEvent) {
	for _, e := range events {
		i := s.slots.index(e.Slot)
		if e.Kind == Drain {
			s.note(Fact{Kind: SlotDrained, Slot: e.Slot})
			s.tell(s.slots.withdraw(i))
			continue
		}
		s.note(Fact{Kind: SlotRegistered, Slot: e.Slot, Types: s.trace.Slots[i].Types})
		s.batch = append(s.batch, s.slots.register(i)...)
	}
}

func (s *simulation) arrivals(jobs []Job) {
	notify := false
	for i := range jobs {
		j := &jobs[i]
		s.note(Fact{Kind: JobSubmitted, Job: j.ID, Types: []string{j.Type}})
		id := s.jobID(s.arrived)
		s.arrived++
		if j.Mode == dispatcherd.OnDemand {
			s.tell(actor.Requested{Job: id, Type: j.Type, Priority: j.Priority, Class: j.class(), Wait: true})
			continue
		}
		s.table.insert(j.lane(), contract.Key{RunAt: int64(s.now()) * 1000, ID: id})
		notify = true
	}
	if notify {
		s.tell(actor.Notified{})
	}
}

// jobID is the name of a job, given by its index, in the core.
func (s *simulation) jobID(job int) dispatcherd.JobID {
	id := dispatcherd.JobID(job + 1 + s.slots.count)
	if s.trace.Jobs[job].Mode == dispatcherd.OnDemand {
		return -id
	}
	return id
}

// hold passes the events of this instant to the core, which makes no decision.
// It answers the statements of the core until the core sends no more, so that
// the core knows all pending rows.
func (s *simulation) hold() {
	for len(s.batch) > 0 {
		ev := actor.Together{Events: s.batch, Hold: true}
		s.batch = nil
		s.step(ev)
	}
}

// decide lets the core place jobs until no event of this instant is left.
func (s *simulation) decide() {
	s.hold()
	if s.estimates != nil {
		s.estimates.record(s.at, s.now(), s.core)
	}
	s.step(actor.Tick{})
	for len(s.batch) > 0 {
		ev := actor.Together{Events: s.batch}
		s.batch = nil
		s.step(ev)
	}
	s.record()
}

func (s *simulation) step(ev actor.Event) {
	s.fx = s.core.Step(s.now(), ev, s.fx[:0])
	for i := range s.fx {
		s.perform(s.fx[i])
	}
}

// perform carries out an effect. The core gets the answer in the next step.
func (s *simulation) perform(e effect.Effect) {
	switch e := e.(type) {
	case *effect.Fetch:
		s.tell(actor.Fetched{Request: e.Request, Result: s.table.fetch(e.Request, int64(s.now())*1000)})
	case *effect.Claim:
		s.tell(actor.Claimed{Request: e.Request, Result: s.table.claim(e.Request)})
	case *effect.Finish:
		s.tell(actor.Finished{Request: e.Request})
	case *effect.SetGate:
		s.tell(actor.GateSet{Subscribed: e.Subscribed})
	case *effect.Send:
		s.start(e)
	case *effect.Started, *effect.Answer:
	default:
		s.fail("the core asked for %T: %+v", e, e)
	}
}

func (s *simulation) fail(format string, args ...any) {
	if s.broken == nil {
		s.broken = fmt.Errorf(format, args...)
	}
}

// start records a job that starts. For a placeholder it checks the slot.
func (s *simulation) start(fx *effect.Send) {
	slot := s.slots.slotOf(fx.Slot)
	job := int(max(fx.Job, -fx.Job)) - 1 - s.slots.count
	if placeholder := job < 0; placeholder {
		if int64(fx.Slot) != -int64(fx.Job) {
			s.fail("the placeholder %d was placed on slot %d", fx.Job, fx.Slot)
		}
		return
	}
	s.started = append(s.started, decision{job: job, slot: slot, score: fx.Terms.Total()})
	heap.Push(&s.running, completion{endMS: s.at + s.trace.Jobs[job].DurationMS, job: job, slot: slot})
	s.slots.occupy(slot, fx)
}

// record keeps the placements of this instant in the order in which they were
// decided. The order of the effects is different, because a claim answers
// many jobs together.
func (s *simulation) record() {
	slices.SortFunc(s.started, func(a, b decision) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.job, b.job))
	})
	for _, d := range s.started {
		p := Placement{Job: s.trace.Jobs[d.job].ID, StartMS: s.at, Slot: s.trace.Slots[d.slot].ID}
		s.placed = append(s.placed, p)
		s.note(Fact{Kind: JobPlaced, Job: p.Job, Slot: p.Slot})
	}
	s.started = s.started[:0]
}

// completion is the end of a running job. The first one in the heap is the
// earliest; among equals, the one of the earlier job.
type completion struct {
	endMS int64
	job   int
	slot  int
}

type completions []completion

func (c completions) Len() int { return len(c) }
func (c completions) Less(i, k int) bool {
	return c[i].endMS < c[k].endMS || c[i].endMS == c[k].endMS && c[i].job < c[k].job
}
func (c completions) Swap(i, k int) { c[i], c[k] = c[k], c[i] }
func (c *completions) Push(x any)   { *c = append(*c, x.(completion)) }
func (c *completions) Pop() any {
	old := *c
	x := old[len(old)-1]
	*c = old[:len(old)-1]
	return x
}

func countWhile[T any](list []T, holds func(T) bool) int {
	if n := slices.IndexFunc(list, func(x T) bool { return !holds(x) }); n >= 0 {
		return n
	}
	return len(list)
}
