package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// Size is the extent of an experiment.
type Size int

// The sizes. Short is for development, Normal for every release. The faults of all
// trials together last at least 6, 20 and 135 minutes. Starts, drains and controls
// take further time.
const (
	Short Size = iota
	Normal
	Long
)

// Trial is an experiment.
type Trial struct {
	Name  string
	About string
	Setup stage.Setup
	Jobs  [3]int           // minimum number of jobs, by Size
	Least [3]time.Duration // minimum duration of the faults, by Size
	// Cuts alter the daemon's sources, including Go's standard library.
	Cuts []Cut
	// Standbys says that the trial needs replicas of the server.
	Standbys bool
	// Extension is an extension of Postgres that the trial needs; "" = none.
	Extension string
	// OnlyLong excludes it from the smaller sizes, unless it is selected by name.
	OnlyLong bool
	// LongFlags are the daemons' flags in the long size, if they differ.
	LongFlags []string
	// Before runs before the first job of the usual production.
	Before func(ctx context.Context, s *Scene) error
	// Trouble injects faults until ctx ends, and then removes those that would
	// last.
	Trouble func(ctx context.Context, s *Scene) error
	// Whole says that Trouble ends by itself, and that jobs are produced until then.
	Whole bool
	// Verify checks what must hold in addition to the checks of judge. It may add
	// figures.
	Verify func(s *Scene, h *history.History, r *judge.Report) []string
	// Drain bounds the time from the end of the faults until all jobs have ended; 0
	// = a minute.
	Drain time.Duration
}

// Scene is a trial while it runs.
type Scene struct {
	*stage.Stage
	Size    Size
	Dice    *rand.Rand
	figures []string
	refused int             // refused statements of dispatchers that were stopped
	killed  map[int32]int64 // times of kills by the dispatchers' ids in Postgres
	ledger  ledger

	failovers []int64 // when primaries were killed
	returns   []int64 // when Postgres answered again after an outage

	affected map[int64]bool // jobs whose rows were locked or damaged

	structures *history.Structures // after the faults

	least         time.Duration // Trial.Least
	honest        *honest       // what users do whom a hostile one must not delay
	without, with []span        // when they worked alone, and beside a hostile user
	beside        []span        // when they worked beside attacks that are not compared
	probes        []probe       // answers of /readyz
	ready         []span        // when dispatchers had to be ready
	notReady      []span        // when they could not be
	memory        int64         // the most that the first dispatcher had, in bytes
	remote        Remote
}

// Note adds a figure to the trial's line.
func (s *Scene) Note(name string, value any) {
	if d, ok := value.(time.Duration); ok {
		value = round(d)
	}
	s.figures = append(s.figures, fmt.Sprintf("%s=%v", name, value))
}

func round(d time.Duration) time.Duration {
	switch {
	case d > 10*time.Second:
		return d.Round(100 * time.Millisecond)
	case d > 100*time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

// Outcome is the result of a trial.
type Outcome struct {
	Line     string
	Failures []string // why it failed; empty = it passed
	Report   *judge.Report
	History  *history.History
	Remote   Remote // of remote workers
}

// Run runs a trial.
func Run(ctx context.Context, env *rig.Rig, t *Trial, size Size, seed uint64) (_ *Outcome, err error) {
	begun := time.Now()
	if len(t.Cuts) > 0 {
		restore, err := alter(ctx, env, t)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, restore()) }()
	}
	setup := t.Setup
	setup.Name = t.Name
	if size == Long && t.LongFlags != nil {
		setup.Flags = t.LongFlags
	}
	st, err := stage.Start(ctx, env, setup)
	if err != nil {
		return nil, err
	}
	s := &Scene{
		Stage:    st,
		Size:     size,
		Dice:     rand.New(rand.NewPCG(seed, uint64(len(t.Name)))),
		killed:   map[int32]int64{},
		affected: map[int64]bool{},
		least:    t.Least[size],
	}
	o, err := s.play(ctx, t, setup)
	if err != nil {
		st.StopAll()
		return nil, err
	}
	o.Line += fmt.Sprintf(" took=%v", round(time.Since(begun)))
	return o, nil
}

// play runs a trial on its stage. All processes have ended when it returns no error.
func (s *Scene) play(ctx context.Context, t *Trial, setup stage.Setup) (_ *Outcome, err error) {
	o, deadlocks := &Outcome{}, s.Postgres.Deadlocks()
	onStage := history.Now()
	if err := s.act(ctx, t); err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	s.ledger.close(t, onStage)
	twice, lost, err := s.EndTicks(ctx)
	if err != nil {
		return nil, err
	}
	if s.structures, err = s.EndStructures(ctx, cmp.Or(t.Drain, time.Minute)); err != nil {
		return nil, err
	}
	rest := time.Now()
	left, err := s.AwaitDrained(ctx, cmp.Or(t.Drain, time.Minute))
	if err != nil {
		return nil, err
	}
	drained := time.Since(rest)
	leaked, why := s.AwaitSlots(ctx, 20*time.Second)
	if leaked > 0 {
		o.Failures = append(o.Failures, "slots leaked: "+why)
	}
	s.StopAll()
	if o.History, err = s.History(ctx); err != nil {
		return nil, err
	}
	o.History.Capacity = setup.Capacity
	if err := s.DropDatabase(ctx); err != nil {
		return nil, err
	}
	o.judge(s, t, end{
		left:      left,
		leaked:    leaked,
		deadlocks: s.Postgres.Deadlocks() - deadlocks,
		drained:   drained,
		patience:  patience(setup.Flags),
		tickTwice: twice,
		tickLost:  lost,
	})
	return o, nil
}

// end is the state after the faults, when the trial has stopped waiting.
type end struct {
	left, leaked, deadlocks int
	tickTwice, tickLost     int
	drained, patience       time.Duration
}

// judge decides whether the trial has passed, and writes its line.
func (o *Outcome) judge(s *Scene, t *Trial, e end) {
	o.History.Troubles = s.ledger.troubles
	o.Report = judge.Judge(o.History)
	r := o.Report
	r.FindStuck(o.History, e.patience)
	r.TickTwice, r.TickLost = e.tickTwice, e.tickLost
	r.Joins(s.structures)
	if e.deadlocks > 0 {
		o.Failures = append(o.Failures, fmt.Sprintf("%d deadlocks", e.deadlocks))
	}
	if e.left > 0 {
		o.Failures = append(o.Failures, fmt.Sprintf("%d jobs had not ended %v after the last fault", e.left, round(e.drained)))
	}
	o.Failures = append(o.Failures, s.ledger.judge(r)...)
	if r.Violations() > 0 {
		o.Failures = append(o.Failures, fmt.Sprintf("%d violations", r.Violations()))
	}
	if r.Jobs < t.Jobs[s.Size] {
		o.Failures = append(o.Failures, fmt.Sprintf("%d jobs were committed, want %d", r.Jobs, t.Jobs[s.Size]))
	}
	if t.Verify != nil {
		o.Failures = append(o.Failures, t.Verify(s, o.History, r)...)
		o.Remote = s.remote
	}
	o.Line = fmt.Sprintf(
		"chaos: experiment=%s jobs=%d lost=%d unexpected=%d stale_accepted=%d affinity_violations=%d slots_leaked=%d deadlocks=%d"+
			" overlaps=%d illegal=%d disorder=%d stuck=%d executions=%d twice_at_once=%d late_starts=%d unknown_commits=%d "+
			"tick_twice=%d tick_lost=%d key_over=%d key_order=%d"+
			" joined_early=%d joined_lost=%d joined_twice=%d orphans=%d %s drain=%v",
		t.Name,
		r.Jobs,
		r.Lost,
		r.Unexpected,
		r.Stale,
		r.Affinity,
		e.leaked,
		e.deadlocks,
		r.Overlaps,
		r.Illegal,
		r.Disorder,
		r.Stuck,
		r.Executions,
		r.Twice,
		r.Late,
		r.Unknown,
		r.TickTwice,
		r.TickLost,
		r.KeyOver,
		r.KeyOrder,
		r.JoinedEarly,
		r.JoinedLost,
		r.JoinedTwice,
		r.Orphans,
		strings.Join(s.figures, " "),
		round(e.drained),
	)
}

// act produces jobs and injects faults at the same time.
func (s *Scene) act(ctx context.Context, t *Trial) error {
	if t.Before != nil {
		if err := t.Before(ctx, s); err != nil {
			return err
		}
	}
	trouble, end := context.WithCancel(ctx)
	defer end()
	broken := make(chan error, 1)
	go func() {
		if t.Trouble == nil {
			broken <- nil
			return
		}
		broken <- t.Trouble(trouble, s)
	}()
	s.Producer.Produce(ctx, t.Jobs[s.Size], t.Least[s.Size])
	for t.Whole && ctx.Err() == nil {
		select {
		case err := <-broken:
			return err
		default:
			s.Producer.Produce(ctx, 0, time.Second)
		}
	}
	end()
	return <-broken
}

// PrintFindings writes the findings of a failed trial.
func (o *Outcome) PrintFindings(w io.Writer) {
	const enough = 20
	for _, f := range o.Failures[:min(enough, len(o.Failures))] {
		fmt.Fprintln(w, "  failed:", f)
	}
	if more := len(o.Failures) - enough; more > 0 {
		fmt.Fprintf(w, "  failed: %d more\n", more)
	}
	for _, f := range o.Report.Findings {
		fmt.Fprintf(w, "  %s: job %d: %s\n", f.Kind, f.Job, f.Text)
	}
	for _, f := range o.Report.Findings[:min(3, len(o.Report.Findings))] {
		if f.Job != 0 {
			o.printJob(w, f.Job)
		}
	}
}

// printJob writes everything that the logs contain about a job.
func (o *Outcome) printJob(w io.Writer, id int64) {
	for i := range o.History.Changes {
		if c := &o.History.Changes[i]; c.Job == id {
			fmt.Fprintf(w, "    %d postgres: change %d, attempt %d, dispatcher %d\n", c.At, c.Kind, c.Attempt, c.Dispatcher)
		}
	}
	for i := range o.History.Processes {
		p := &o.History.Processes[i]
		for k := range p.Runs {
			if e := &p.Runs[k]; e.Job == id {
				fmt.Fprintf(w, "    %d %s: attempt %d on slot %d, %q at %d (killed %d, gone %d)\n",
					e.Start, p.Name, e.Attempt, e.Slot, e.Outcome, e.End, p.Killed, p.Died)
			}
		}
	}
	for i := range o.History.Rows {
		if r := &o.History.Rows[i]; r.Job == id {
			fmt.Fprintf(w, "    row: %s, attempt %d, failures %d, crashes %d, result %v, errors %v\n",
				r.Status, r.Attempt, r.Failures, r.Crashes, r.Result, r.Errors)
		}
	}
}

// All returns the experiments in the order in which they run.
func All() []*Trial {
	return []*Trial{
		&workerKill,
		&dispatcherKill,
		&takeover,
		&takeoverPair,
		&allFaults,
		&partition,
		&workerNetwork,
		&lostAnswers,
		&stoppedDispatcher,
		&stoppedWorker,
		&readOnly,
		&fullDisk,
		&terminated,
		&failover,
		&outages,
		&notifyOff,
		&blind,
		&poison,
		&rolling,
		&callers,
		&manyDispatchers,
		&halfOpen,
		&bounds,
		&databaseClock,
		&clockAhead,
		&restore,
		&clockJumps,
		&rowLocks,
		&unreadableRows,
		&largeBatches,
		&operatorUpdates,
		&connectionFlood,
		&queueFlood,
		&ticks,
		&keys,
		&flows,
		&hostileProducer,
		&hostileCaller,
		&publication,
		&readOnlySessions,
	}
}

// Smoke returns the trials that are short enough to run for every change: less than
// a minute.
func Smoke() []*Trial { return []*Trial{&smoke} }

// SmokeControls returns the controls that run together with Smoke.
func SmokeControls() []*Control {
	for _, c := range Controls() {
		if c.Trial.Name == "status-out" {
			return []*Control{c}
		}
	}
	return nil
}

// smoke is the shortest form of the all-faults trial. Postgres stops every 5 s.
var smoke = Trial{
	Name:    "smoke",
	About:   "all faults for ten seconds: kill -9 of a dispatcher every second, of a worker every 200 ms, Postgres down every 5 s",
	Setup:   allFaults.Setup,
	Jobs:    [3]int{4000, 4000, 4000},
	Least:   [3]time.Duration{10 * time.Second, 10 * time.Second, 10 * time.Second},
	Trouble: func(ctx context.Context, s *Scene) error { return s.allFaults(ctx, 5*time.Second) },
	Verify:  allFaults.Verify,
}
