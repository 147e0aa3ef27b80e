package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/heap"
)

// Prompt is how old an occasion may be to run without regard to catch_up.
const Prompt = 5 * time.Second

// MaxSchedules is the default bound of the schedules in a plan.
const MaxSchedules = 100_000

// Limits of one call of Due and of the pauses of the plan.
const (
	stepsPerDue = 200_000     // occasions computed by one Due
	countMost   = 100_000     // occasions of one schedule that one Due counts
	checkMost   = time.Hour   // longest time between two checks of an open run
	lockedPause = time.Second // until a schedule that is locked is tried again
	refusePause = time.Minute // until a tick that Postgres refuses is tried again
	promptMost  = int(Prompt/1e9) + 1
)

// Start identifies what startup schedules run once for.
type Start struct {
	Founder    int32  // dispatcher that founded this start of the cluster
	AppVersion string // empty = unknown
}

// Tick is an occasion that shall get a tick.
type Tick struct {
	Schedule, Version int64
	Occasion          string
	Planned           time.Time // zero = the occasion is not an instant
	RunAt             time.Time // of the job
	Missed            int       // above zero: the tick records that many occasions as missed, of which it is the last
}

// Run is the state of the last run of an interval.
type Run struct {
	Schedule int64
	Exists   bool // there was a run
	Open     bool // a run has not ended
	EndedAt  time.Time
}

// entry is a planned schedule. Instants are in microseconds.
type entry struct {
	id, version  int64
	due          int64 // in Plan.due, unless it is never
	mark         int64 // all occasions up to it are handled
	starts, ends int64
	since        int64
	planned      int64 // of an interval: the next run, or 0 before a check
	rule         *rule // of a cron schedule
	every        int64 // above zero for an interval
	jitter       int64
	catchUp      int64
	most         int32
	filed        int32 // place in Plan.due
	state        byte  // index in Plan.counts
	once         byte  // first letter of once
}

// never is a due time that is not reached.
const never = 1<<63 - 1

// byDue is the order of Plan.due.
type byDue struct{}

func (byDue) Before(a, b *entry) bool { return a.due < b.due || a.due == b.due && a.id < b.id }
func (byDue) Place(e *entry) *int32   { return &e.filed }

// The states of schedules.
const (
	active = iota
	paused
	invalid
)

type ruleName struct{ spec, zone string }

// Plan is the plan of all schedules. The zero Plan is not usable; see New.
type Plan struct {
	start   Start
	entries map[int64]*entry
	due     heap.Heap[*entry, byDue]
	rules   map[ruleName]*rule
	zones   zones
	counts  [invalid + 1]int
	most    int             // schedules
	excess  map[int64]bool  // schedules that the bound has refused
	delayed map[int64]int64 // by schedule: since when a tick is due that could not be made
}

// New returns an empty plan that is bounded to most schedules; 0 = MaxSchedules.
func New(start Start, most int) *Plan {
	return &Plan{
		most:    cmp.Or(most, MaxSchedules),
		start:   start,
		entries: map[int64]*entry{},
		rules:   map[ruleName]*rule{},
		zones:   zones{},
		excess:  map[int64]bool{},
		delayed: map[int64]int64{},
	}
}

// Counts returns the numbers of schedules by state. Those in excess do not run because of the bound.
func (p *Plan) Counts() map[string]int {
	return map[string]int{"active": p.counts[active], "paused": p.counts[paused], "invalid": p.counts[invalid], "excess": len(p.excess)}
}

// Excess returns how many schedules do not run because of the bound.
func (p *Plan) Excess() int { return len(p.excess) }

// Compare says that the caller sets all schedules of the table that the plan does not have.
func (p *Plan) Compare() { clear(p.excess) }

// Version returns the version of a schedule in the plan, or 0.
func (p *Plan) Version(id int64) int64 {
	if e := p.entries[id]; e != nil {
		return e.version
	}
	return 0
}

// IDs returns the ids of all schedules, in no order.
func (p *Plan) IDs() []int64 {
	return slices.Collect(maps.Keys(p.entries)) // order-free: the caller gets a set
}

// Set adds a schedule, or replaces it. mark is its high-water mark, or zero. If the schedule
// cannot run, Set returns the reason.
func (p *Plan) Set(now time.Time, s *contract.SchedulePlan, mark time.Time) error {
	p.Remove(s.ID)
	if len(p.entries) >= p.most {
		p.excess[s.ID] = true
		return fmt.Errorf(
			"%d schedules exist, and no more can run: remove others, for example with 'dispatcherd schedule rm old', then this one "+
				"runs within a minute",
			p.most,
		)
	}
	e := &entry{
		id:      s.ID,
		version: s.Version,
		due:     never,
		since:   s.Since.UnixMicro(),
		every:   time.Duration(s.Every).Microseconds(),
		jitter: time.Duration(s.Jitter).
			Microseconds(),
		catchUp: time.Duration(s.CatchUp).Microseconds(),
		most:    int32(s.CatchUpMost),
	}
	if !mark.IsZero() {
		e.mark = mark.UnixMicro()
	}
	if s.Once != "" {
		e.once = s.Once[0]
	}
	e.bound(s)
	p.entries[s.ID] = e
	err := p.prepare(e, s)
	switch {
	case err != nil:
		e.state = invalid
	case s.Paused:
		e.state = paused
	default:
		p.wake(e, e.firstWake(now.UnixMicro()))
	}
	p.counts[e.state]++
	return err
}

// bound sets starts and ends.
func (e *entry) bound(s *contract.SchedulePlan) {
	e.ends = never
	if s.StartsAt != nil {
		e.starts = s.StartsAt.UnixMicro()
	}
	if s.EndsAt != nil {
		e.ends = s.EndsAt.UnixMicro()
	}
}

// prepare checks a schedule and sets its rule.
func (p *Plan) prepare(e *entry, s *contract.SchedulePlan) error {
	if err := checkColumns(s); err != nil {
		return err
	}
	if s.Kind == contract.Cron {
		name := ruleName{s.Spec, s.TimeZone}
		if p.rules[name] == nil {
			r, err := p.zones.rule(s.Spec, s.TimeZone)
			if err != nil {
				return err
			}
			p.rules[name] = r
		}
		e.rule = p.rules[name]
		e.rule.users++
	}
	if s.Once == contract.OncePerVersion && p.start.AppVersion == "" {
		return errNoVersion
	}
	return nil
}

// firstWake returns when a new entry is due.
func (e *entry) firstWake(now int64) int64 {
	switch {
	case e.rule != nil:
		e.mark = max(e.mark, e.since, e.starts-1)
		return e.next(e.mark)
	case e.every == 0 && e.once == 0, max(e.starts, now) >= e.ends: // each worker process has its own runs
		return never
	}
	return max(e.starts, now)
}

// next returns the first occasion of a cron schedule after an instant, or never.
func (e *entry) next(after int64) int64 {
	if at := e.rule.next(after); at < e.ends {
		return at
	}
	return never
}

// wake makes an entry due at an instant.
func (p *Plan) wake(e *entry, due int64) {
	if e.due = due; due == never {
		p.due.Remove(e)
	} else {
		p.due.Put(e)
	}
}

// Remove removes a schedule.
func (p *Plan) Remove(id int64) {
	delete(p.excess, id)
	delete(p.delayed, id)
	e := p.entries[id]
	if e == nil {
		return
	}
	p.wake(e, never)
	if e.rule != nil {
		if e.rule.users--; e.rule.users == 0 {
			delete(p.rules, e.rule.name)
		}
	}
	p.counts[e.state]--
	delete(p.entries, id)
}

// Next returns when the plan is due next.
func (p *Plan) Next() (time.Time, bool) {
	if first, ok := p.due.First(); ok {
		return time.UnixMicro(first.due), true
	}
	return time.Time{}, false
}

// Overdue returns for how long the first tick is due, also of those that are tried again later.
func (p *Plan) Overdue(now time.Time) time.Duration {
	since := now.UnixMicro()
	if first, ok := p.due.First(); ok {
		since = min(since, first.due)
	}
	for _, due := range p.delayed { // order-free: a minimum
		since = min(since, due)
	}
	return now.Sub(time.UnixMicro(since)).Truncate(time.Microsecond)
}

// Due returns what is due: ticks to make, in order for each schedule, and intervals whose last
// run must be read. There are at most a number of each.
func (p *Plan) Due(now time.Time, most int) (ticks []Tick, checks []int64) {
	steps := stepsPerDue
	var due []*entry
	for e, ok := p.due.First(); ok && e.due <= now.UnixMicro() && len(due) < most; e, ok = p.due.First() {
		p.due.Remove(e)
		due = append(due, e)
	}
	for _, e := range due {
		p.due.Put(e)
		switch {
		case e.every > 0 && e.planned == 0:
			checks = append(checks, e.id)
		case len(ticks) < most && steps > 0:
			ticks = append(ticks, p.ticksOf(e, now.UnixMicro(), most-len(ticks), &steps)...)
		}
	}
	return ticks, checks
}

// ticksOf returns the ticks of an entry that is due.
func (p *Plan) ticksOf(e *entry, now int64, most int, steps *int) []Tick {
	switch {
	case e.rule != nil:
		return e.occasions(now, most, steps)
	case e.every > 0:
		return []Tick{e.tick(e.planned, time.UnixMicro(e.planned).UTC().Format(time.RFC3339Nano))}
	}
	t := Tick{Schedule: e.id, Version: e.version, Occasion: p.start.occasion(e.once)}
	t.RunAt = time.UnixMicro(jittered(now, e.jitter, e.id, t.Occasion)).UTC()
	return []Tick{t}
}

// versionPrefix begins the occasion of a startup schedule with once = version.
const versionPrefix = "version:"

// occasion returns the occasion of a startup schedule.
func (s Start) occasion(once byte) string {
	switch once {
	case contract.OncePerStart[0]:
		return fmt.Sprintf("start:%d", s.Founder)
	case contract.OncePerVersion[0]:
		return versionPrefix + s.AppVersion
	}
	return "ever"
}

// tick returns the tick of a planned instant.
func (e *entry) tick(at int64, occasion string) Tick {
	return Tick{Schedule: e.id, Version: e.version, Occasion: occasion, Planned: time.UnixMicro(at).UTC(),
		RunAt: time.UnixMicro(jittered(at, e.jitter, e.id, occasion)).UTC()}
}

// Made reports the outcome of a tick.
func (p *Plan) Made(now time.Time, t *Tick, outcome string) {
	e := p.entries[t.Schedule]
	if e == nil || e.version != t.Version || e.state != active {
		return
	}
	if !t.Planned.IsZero() && outcome != contract.TickChanged && outcome != contract.TickLocked && outcome != contract.TickRefused {
		e.mark = max(e.mark, t.Planned.UnixMicro())
	}
	if _, found := p.delayed[e.id]; outcome != contract.TickLocked && outcome != contract.TickRefused {
		delete(p.delayed, e.id)
	} else if !found {
		p.delayed[e.id] = min(e.due, now.UnixMicro())
	}
	switch {
	case outcome == contract.TickLocked:
		p.wake(e, now.Add(lockedPause).UnixMicro())
	case outcome == contract.TickRefused:
		p.wake(e, now.Add(refusePause).UnixMicro())
	case outcome == contract.TickChanged:
		p.wake(e, never) // until Set is called again
	case e.rule != nil:
		p.wake(e, e.next(e.mark))
	case e.every > 0:
		e.planned = 0
		p.wake(e, now.UnixMicro()+min(e.every, checkMost.Microseconds()))
	default:
		p.wake(e, never)
	}
}

// Checked reports the last run of an interval.
func (p *Plan) Checked(at time.Time, r Run) {
	e := p.entries[r.Schedule]
	if e == nil || e.state != active || e.every == 0 || e.planned != 0 {
		return
	}
	now := at.UnixMicro()
	if r.Open {
		p.wake(e, now+min(e.every, checkMost.Microseconds()))
		return
	}
	e.planned = max(min(e.since, now), e.starts)
	if r.Exists || e.mark != 0 {
		after := e.mark // if the end is unknown, the row of the job was deleted
		if !r.EndedAt.IsZero() {
			after = r.EndedAt.UnixMicro() // the mark is later if the clock was set back
		}
		e.planned = max(e.planned, min(after, now)+e.every)
	}
	if e.planned >= e.ends {
		p.wake(e, never)
		return
	}
	p.wake(e, e.planned)
}

// ClockMoved adapts the plan to a database clock that was set back: no interval waits longer
// than its length.
func (p *Plan) ClockMoved(at time.Time) {
	now := at.UnixMicro()
	for _, e := range p.entries { // order-free: each entry is changed on its own
		if e.every > 0 && e.due != never && e.due > now+e.every && e.due > e.starts {
			e.planned = 0
			p.wake(e, now)
		}
	}
}
