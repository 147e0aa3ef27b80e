package controller

import (
	"fmt"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
	"github.com/dispatcherd/dispatcherd/internal/schedule/cron/crontest"
	"github.com/dispatcherd/dispatcherd/internal/schedule/schedulestest"
)

// verdict counts what a judge has found.
type verdict struct {
	runs                             map[string]int // by kind
	missed, queued, skipped, cancels int

	twice   int // ticks and jobs that no occasion explains
	lost    int // occasions without a tick, and ticks that are missed or skipped without a reason
	overlap int // runs while another one is open, and ticks that wait beyond the policy
	order   int // queued ticks that started before earlier ones
	early   int // runs of intervals before their time
	late    int // runs that start longer than slack after the first possible time
}

// slack is how long after its time a run may start, while a controller works.
const slack = time.Minute

// noticed bounds the time until a controller hears of a change of the database clock.
const noticed = 10 * time.Minute

// judge follows the changes of the tables and shares no code with what makes them.
type judge struct {
	verdict
	cases     map[planName][]time.Time
	schedules map[int64]*judged
	jumps     []jump
	roles     map[int64]role // by term
	role      role
	elected   time.Duration // served time
	served    time.Duration // time in which a controller worked
}

// planName names the plan of a cron schedule.
type planName struct{ spec, zone string }

// role is what the controller of a term knows.
type role struct{ start, version string }

// jump is a change of the database clock.
type jump struct {
	at time.Time // local
	to time.Time
	by time.Duration
}

// judged is what a judge knows of a schedule.
type judged struct {
	plan     *contract.SchedulePlan // nil = deleted
	overlap  string
	want     []time.Time     // of a cron schedule: occasions without a tick
	handled  time.Time       // last planned instant
	ticked   map[string]bool // occasions with a tick, unless the schedule is of kind cron
	open     map[int64]bool  // jobs that have not ended; true = they are to be cancelled
	queue    []waiting
	emptied  time.Time // local: the queued ticks were replaced
	running  string    // occasion whose job follows
	replaced time.Time // the last tick was skipped then because a later one of the statement replaces it
	ran      bool
	ended    time.Time     // local: the last run
	edited   time.Duration // served time
	idle     time.Duration // served time since when a run may start
}

// waiting is a queued tick.
type waiting struct {
	occasion string
	since    time.Time // local
}

func newJudge(pool []crontest.Case) *judge {
	j := &judge{cases: map[planName][]time.Time{}, schedules: map[int64]*judged{}, roles: map[int64]role{}}
	for _, c := range pool {
		j.cases[planName{c.Expr, c.Zone.String()}] = c.Want
	}
	j.runs = map[string]int{}
	return j
}

// hear adopts a change of the tables.
func (j *judge) hear(e *schedulestest.Event) {
	s := j.schedules[e.Schedule]
	switch e.Change {
	case schedulestest.Edited:
		j.edit(e)
	case schedulestest.Elected:
		j.startups()
		j.role, j.elected = j.roles[e.Term], j.served
	case schedulestest.Made:
		j.made(s, e)
	case schedulestest.Started:
		j.started(s, e)
	case schedulestest.Replaced:
		if s.overlap != contract.CancelOther || len(s.queue) == 0 || s.queue[0].occasion != e.Tick.Occasion {
			j.lost++
		}
		j.skipped++
		s.queue, s.emptied = nil, e.At
	case schedulestest.Cancelled:
		if _, ok := s.open[e.Job]; !ok || s.overlap != contract.CancelOther {
			j.lost++
		}
		j.cancels++
		s.open[e.Job] = true
	case schedulestest.Ended:
		if delete(s.open, e.Job); len(s.open) == 0 {
			s.ended, s.idle = e.At, j.served
		}
	}
}

// edit adopts an edit. An occasion that was not yet handled before has no tick.
func (j *judge) edit(e *schedulestest.Event) {
	s := j.schedules[e.Schedule]
	if s == nil {
		s = &judged{overlap: e.Overlap, ticked: map[string]bool{}, open: map[int64]bool{}}
		j.schedules[e.Schedule] = s
	}
	j.punctual(s, e.At)
	j.startup(s)
	s.plan, s.edited, s.idle, s.want = nil, j.served, j.served, nil
	if e.Row == nil {
		return
	}
	s.plan = &e.Row.SchedulePlan
	if s.plan.Kind != contract.Cron || s.plan.Paused {
		return
	}
	if s.plan.Since.After(s.handled) {
		s.handled = s.plan.Since
	}
	s.want = after(j.cases[planName{s.plan.Spec, s.plan.TimeZone}], s.handled)
}

// active reports whether the schedule runs.
func (s *judged) active() bool { return s.plan != nil && !s.plan.Paused }

// made judges a tick.
func (j *judge) made(s *judged, e *schedulestest.Event) {
	t := &e.Tick
	if !s.active() || t.Version != s.plan.Version || s.ticked[t.Occasion] {
		j.twice++
		return
	}
	switch s.plan.Kind {
	case contract.Cron:
		j.cronTick(s, t)
	case contract.Interval:
		j.intervalTick(s, e)
	case contract.Startup:
		s.ticked[t.Occasion] = true
		if t.Occasion != j.role.occasion(s.plan.Once) {
			j.twice++
		}
	default: // dispatchers insert the runs of startup-worker schedules, so the controller makes no ticks for them
		j.twice++
	}
	j.policy(s, e)
}

// policy judges the outcome of a tick.
func (j *judge) policy(s *judged, e *schedulestest.Event) {
	t, before := &e.Tick, len(s.queue)+len(s.open)
	if !s.replaced.IsZero() && !s.replaced.Equal(t.Made) {
		j.lost++
	}
	s.replaced = time.Time{}
	switch t.Outcome {
	case contract.TickMissed:
	case contract.TickRun:
		s.running = t.Occasion
		if before > 0 && s.overlap != contract.AllowAll {
			j.overlap++
		}
	case contract.TickQueued:
		j.queued++
		limit := map[string]int{contract.QueueOne: 1, contract.QueueAll: 1 << 30, contract.CancelOther: len(s.open)}[s.overlap]
		if before > limit {
			j.overlap++
		}
		for _, cancelled := range s.open { // order-free: a sum
			if s.overlap == contract.CancelOther && !cancelled {
				j.overlap++
			}
		}
		if before == 0 && !s.emptied.Equal(e.At) {
			j.late++
		}
		s.queue = append(s.queue, waiting{t.Occasion, e.At})
	case contract.TickSkipped:
		j.skipped++
		least := map[string]int{contract.Skip: 1, contract.QueueOne: 2, contract.QueueAll: 10_000, contract.AllowAll: 1 << 30}[s.overlap]
		if before < least {
			j.lost++
		}
		if s.overlap == contract.CancelOther {
			s.replaced = t.Made
		}
	}
}

// started judges the start of a run.
func (j *judge) started(s *judged, e *schedulestest.Event) {
	if len(s.open) > 0 && s.overlap != contract.AllowAll {
		j.overlap++
	}
	switch at := slices.IndexFunc(s.queue, func(w waiting) bool { return w.occasion == e.Tick.Occasion }); {
	case s.running == e.Tick.Occasion:
		s.running = ""
	case at < 0:
		j.twice++
	default:
		if at > 0 && j.jumped(s.queue[0].since.Add(-noticed)) == 0 { // the order is that of run_at
			j.order++
		}
		j.punctual(s, e.At)
		s.queue = slices.Delete(s.queue, at, at+1)
	}
	if s.plan != nil {
		j.runs[s.plan.Kind]++
	}
	s.open[e.Job], s.ran = false, true
}

// cronTick judges whether the occasions of a tick are the next ones.
func (j *judge) cronTick(s *judged, t *schedulestest.Tick) {
	n, found := slices.BinarySearchFunc(s.want, t.Planned, time.Time.Compare)
	if !found {
		j.twice++
		return
	}
	s.want, s.handled = s.want[n+1:], t.Planned
	if omitted := n + 1 - max(t.Missed, 1); omitted >= 0 {
		j.lost += omitted
	} else {
		j.twice -= omitted
	}
	if t.Outcome != contract.TickMissed {
		return
	}
	j.missed += t.Missed
	legal := missable(t, s, t.Made)
	for _, jump := range j.jumps { // the controller hears of it at its next heartbeat
		if since := t.Made.Sub(jump.to); since >= 0 && since < noticed {
			legal = legal || missable(t, s, t.Made.Add(-jump.by))
		}
	}
	if !legal {
		j.lost++
	}
}

// missable reports whether the last occasion of a missed tick may be missed at an instant.
func missable(t *schedulestest.Tick, s *judged, now time.Time) bool {
	age := now.Sub(t.Planned)
	return age > schedule.Prompt && (age >= time.Duration(s.plan.CatchUp) || len(s.want)-len(after(s.want, now)) >= s.plan.CatchUpMost)
}

// after returns the occasions after an instant.
func after(list []time.Time, at time.Time) []time.Time {
	n, found := slices.BinarySearchFunc(list, at, time.Time.Compare)
	if found {
		n++
	}
	return list[n:]
}

// jumped returns the length of all jumps of the database clock since an instant.
func (j *judge) jumped(since time.Time) (sum time.Duration) {
	for _, jump := range slices.Backward(j.jumps) {
		if jump.at.Before(since) {
			break
		}
		sum += jump.by.Abs()
	}
	return sum
}

// intervalTick judges the time of a run of an interval.
func (j *judge) intervalTick(s *judged, e *schedulestest.Event) {
	s.ticked[e.Tick.Occasion] = true
	if len(s.open) > 0 || e.Tick.Outcome != contract.TickRun {
		j.overlap++
	}
	if s.ran && e.At.Sub(s.ended)+j.jumped(s.ended.Add(-noticed))+time.Microsecond < time.Duration(s.plan.Every) {
		j.early++
	}
	j.punctual(s, e.At)
}

// punctual judges whether a run that may start has waited too long.
func (j *judge) punctual(s *judged, now time.Time) {
	wait := j.served - s.idle - slack
	switch {
	case !s.active() || len(s.open) > 0 || wait <= 0:
		return
	case len(s.queue) > 0:
	case s.plan.Kind != contract.Interval:
		return
	case s.ran:
		wait -= time.Duration(s.plan.Every) + j.jumped(s.ended.Add(-noticed))
	}
	if wait > 0 {
		j.late++
	}
}

// occasion returns the occasion of a startup schedule.
func (r role) occasion(once string) string {
	switch once {
	case contract.OncePerStart:
		return "start:" + r.start
	case contract.OncePerVersion:
		return "version:" + r.version
	}
	return "ever"
}

// startup judges whether a startup schedule has its tick.
func (j *judge) startup(s *judged) {
	if s.active() && s.plan.Kind == contract.Startup && j.served-max(s.edited, j.elected) > slack && !s.ticked[j.role.occasion(s.plan.Once)] {
		j.lost++
	}
}

// startups judges all startup schedules.
func (j *judge) startups() {
	for _, s := range j.schedules { // order-free: sums
		j.startup(s)
	}
}

// finish judges what has not happened up to the end, which is now.
func (j *judge) finish(now, clock time.Time) {
	j.startups()
	for _, s := range j.schedules { // order-free: sums
		j.punctual(s, now)
		j.lost += len(s.want) - len(after(s.want, clock.Add(-slack)))
		if !s.replaced.IsZero() || s.running != "" {
			j.lost++
		}
	}
}

// failures returns what is wrong.
func (v *verdict) failures() string {
	return fmt.Sprintf("twice=%d lost=%d overlap=%d order=%d early=%d late=%d", v.twice, v.lost, v.overlap, v.order, v.early, v.late)
}

// none are the failures of a correct simulation.
const none = "twice=0 lost=0 overlap=0 order=0 early=0 late=0"
