package controller

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
	"github.com/dispatcherd/dispatcherd/internal/schedule/schedulestore"
)

// table is a fake of the tables. The goroutine of the controller uses it in a synctest bubble.
type table struct {
	mu         sync.Mutex // orders the test before the statements, for the race detector
	rows       map[int64]schedulestore.Row
	records    []int64        // edited schedules
	ticked     map[string]int // ticks by occasion
	missed     int
	statements int
	open       bool // a run is open
	endedAt    time.Time
	waiting    int
	portion    int         // records of edits that one statement reads; 0 = all
	endless    atomic.Bool // each statement finds another edit
	locked     int64       // schedule whose record of an edit, and whose row, are locked
	refused    int64       // schedule whose ticks Postgres refuses
	problems   []schedulestore.Problem
	failReport error // of the next Report
	failLoad   error // of each Load
	fail       error // of the next statement, whose answer is lost
	refuse     error // of the next ticks, which have no effect
	deposed    bool
	expiries   int // calls of Expire
	complete   int // those that begin with the first tick
}

func (f *table) begin() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.statements++
	err := f.fail
	f.fail = nil
	return err
}

// published makes what the test has written visible.
func (f *table) published() {
	f.mu.Lock()
	f.mu.Unlock() //nolint:staticcheck // only for the order
}

func (f *table) Start(context.Context, string) (schedule.Start, error) {
	f.published()
	return schedule.Start{Founder: 1}, f.begin()
}

func (f *table) Load(_ context.Context, after int64) (rows []schedulestore.Row, err error) {
	f.published()
	if f.failLoad != nil {
		return nil, f.failLoad
	}
	for id := int64(1); id < 10; id++ {
		if row, ok := f.rows[id]; ok && id > after {
			rows = append(rows, row)
		}
	}
	return rows, f.begin()
}

func (f *table) Edits(_ context.Context, again []int64) (edited map[int64]*schedulestore.Row, more bool, err error) {
	f.published()
	if err := f.begin(); err != nil {
		return nil, false, err
	}
	if f.endless.Load() {
		<-time.After(time.Millisecond)
		f.records = append(f.records, 9)
	}
	edited = map[int64]*schedulestore.Row{}
	read := func(id int64) {
		edited[id] = nil
		if row, ok := f.rows[id]; ok {
			edited[id] = &row
		}
	}
	f.records = slices.DeleteFunc(f.records, func(id int64) bool {
		full := f.portion > 0 && len(edited) == f.portion
		more = more || full
		if f.deposed || id == f.locked || full {
			return false
		}
		read(id)
		return true
	})
	for _, id := range again {
		read(id)
	}
	return edited, more || f.endless.Load(), nil
}

func (f *table) Make(_ context.Context, ticks []schedule.Tick) ([]contract.MadeTick, error) {
	f.published()
	made := make([]contract.MadeTick, len(ticks))
	if err := f.refuse; err != nil {
		f.refuse = nil
		return nil, err
	}
	if f.deposed {
		return made, f.begin()
	}
	for i, t := range ticks {
		made[i].Outcome = contract.TickRun
		switch {
		case t.Schedule == f.refused:
			made[i] = contract.MadeTick{Outcome: contract.TickRefused, Err: errors.New("damaged")}
			continue
		case f.rows[t.Schedule].Version != t.Version:
			made[i].Outcome = contract.TickChanged
			continue
		case f.ticked[t.Occasion] > 0:
			made[i].Outcome = contract.TickExists
			continue
		case t.Missed > 0:
			made[i].Outcome = contract.TickMissed
			f.missed += t.Missed
			continue
		case f.rows[t.Schedule].Kind == contract.Cron && f.open:
			made[i].Outcome = contract.TickQueued
			f.waiting++
		}
		f.ticked[t.Occasion]++
	}
	return made, f.begin() // a failure is that of a lost answer
}

func (f *table) LastRuns(_ context.Context, ids []int64) (runs []schedule.Run, err error) {
	f.published()
	for _, id := range ids {
		runs = append(runs, schedule.Run{Schedule: id, Exists: !f.endedAt.IsZero(), EndedAt: f.endedAt})
	}
	return runs, f.begin()
}

func (f *table) StartQueued(_ context.Context, ids []int64) (started []schedulestore.Started, err error) {
	f.published()
	if !f.open && f.waiting > 0 {
		f.waiting--
	}
	for _, id := range ids {
		started = append(started, schedulestore.Started{Schedule: id, Waiting: f.waiting > 0})
	}
	return started, f.begin()
}

func (f *table) Expire(_ context.Context, after time.Time) (next time.Time, more bool, err error) {
	f.published()
	f.expiries++
	if after.IsZero() {
		f.complete++
	}
	return after.Add(time.Second), f.expiries%3 != 0, nil
}

func (f *table) Report(_ context.Context, problems []schedulestore.Problem) (locked []int64, err error) {
	f.published()
	if err := f.failReport; err != nil {
		f.failReport = nil
		return nil, err
	}
	for _, p := range problems {
		if p.Schedule == f.locked {
			locked = append(locked, p.Schedule)
		} else {
			f.problems = append(f.problems, p)
		}
	}
	return locked, f.begin()
}

// bubble is a controller with a fake table.
type bubble struct {
	runner *background.Runner
	*Controller
	*table
	t *testing.T
}

func cronRow(id int64, spec string) schedulestore.Row {
	return schedulestore.Row{
		SchedulePlan: contract.SchedulePlan{
			ID:          id,
			Name:        "s",
			Kind:        contract.Cron,
			Spec:        spec,
			TimeZone:    "UTC",
			Version:     1,
			Since:       time.Now(),
			CatchUp:     contract.Duration(time.Hour),
			CatchUpMost: 1,
		},
	}
}

// ignore is an observer.
type ignore struct{}

func (ignore) Stepped(string, time.Duration, background.Outcome, error) {}

// run runs f with a controller that has sent its first heartbeat.
func run(t *testing.T, rows []schedulestore.Row, f func(*bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tab := &table{rows: map[int64]schedulestore.Row{}, ticked: map[string]int{}}
		for _, row := range rows {
			row.Since = time.Now()
			tab.rows[row.ID] = row
		}
		b := &bubble{t: t, table: tab}
		b.Controller = New(
			Config{
				Table:       func(int64) Table { return tab },
				WorkerTypes: func(context.Context) ([]string, error) { return nil, nil },
				Log:         zap.NewNop(),
				Metrics:     NewMetrics(prometheus.NewRegistry()),
			},
		)
		b.runner = background.New(ignore{}, b.Services()...)
		b.Wake = b.runner.Wake
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.runner.Run(ctx)
		}()
		b.beat(1, false)
		f(b)
		stop()
		<-done
	})
}

// beat sends a heartbeat and waits until the controller has done its work.
func (b *bubble) beat(term int64, edited bool) {
	b.published()
	beat := background.Beat{Term: term, Clock: time.Now(), Read: time.Now()}
	if edited {
		beat.Found = contract.EditsWait
	}
	b.runner.Beat(beat)
	synctest.Wait()
}

// pass lets time pass.
func (b *bubble) pass(d time.Duration) {
	b.published()
	<-time.After(d)
	synctest.Wait()
}

// overdue returns the metric.
func (b *bubble) overdue() float64 {
	r := prometheus.NewRegistry()
	r.MustRegister(b.Metrics.overdue)
	families, err := r.Gather()
	require.NoError(b.t, err)
	return families[0].GetMetric()[0].GetGauge().GetValue()
}

func TestASecondWithoutTicksCostsNoStatement(t *testing.T) {
	run(t, []schedulestore.Row{cronRow(1, "0 0 1 1 *")}, func(b *bubble) {
		before := b.statements
		for range 3600 {
			b.pass(time.Second)
			b.beat(1, false)
		}
		require.Equal(t, before, b.statements)
	})
}

// Old ticks are deleted from time to time, here in three portions.
func TestOldTicksAreDeletedInPortions(t *testing.T) {
	run(t, []schedulestore.Row{cronRow(1, "* * * * *")}, func(b *bubble) {
		b.pass(expireTime - time.Second)
		require.Equal(t, 3, b.expiries)
		b.pass(3 * expireTime)
		require.Equal(t, 12, b.expiries)
		require.Equal(t, 1, b.complete, "the others continue after the ticks that were kept")
		b.pass(DefaultResync)
		require.Equal(t, 2, b.complete)
	})
}

func TestEachOccasionIsMadeAtItsInstant(t *testing.T) {
	run(t, []schedulestore.Row{cronRow(1, "* * * * *"), cronRow(2, "30 * * * * *")}, func(b *bubble) {
		b.pass(10*time.Minute + time.Second)
		require.Len(t, b.ticked, 20)
	})
}

// Statements fail, or their answers are lost. They are repeated, and no occasion is lost or made twice.
func TestTicksWithALostAnswerAreRepeated(t *testing.T) {
	run(t, []schedulestore.Row{cronRow(1, "* * * * * *")}, func(b *bubble) {
		for range 20 {
			b.fail = errors.New("conn closed")
			b.pass(3 * time.Second)
			b.refuse = errors.New("lock timeout")
			b.pass(3 * time.Second)
		}
		b.pass(2 * time.Second)
		require.GreaterOrEqual(t, len(b.ticked), 120)
		for _, n := range b.ticked {
			require.Equal(t, 1, n)
		}
		require.Zero(t, b.missed)
	})
}

func TestLoadIsRepeatedAfterAFailure(t *testing.T) {
	run(t, []schedulestore.Row{cronRow(1, "* * * * *")}, func(b *bubble) {
		b.beat(0, false)
		b.fail = errors.New("conn closed")
		b.beat(2, false)
		b.pass(2 * time.Minute)
		require.Len(t, b.ticked, 2)
	})
}

// Attack 5 and 6: the database clock moves by 1 h in both directions.
func TestMovedDatabaseClock(t *testing.T) {
	for _, move := range []time.Duration{time.Hour, -time.Hour} {
		run(t, []schedulestore.Row{cronRow(1, "* * * * *")}, func(b *bubble) {
			b.pass(5*time.Minute + time.Second)
			require.Len(t, b.ticked, 5)
			b.runner.Beat(background.Beat{Term: 1, Clock: time.Now().Add(move), Read: time.Now()})
			b.pass(time.Second)
			if move > 0 {
				require.Len(t, b.ticked, 6, "the last occasion is caught up")
				require.Equal(t, 59, b.missed)
			}
			b.pass(70 * time.Minute)
			for _, n := range b.ticked {
				require.Equal(t, 1, n, "no occasion runs twice")
			}
			if move < 0 {
				require.Len(t, b.ticked, 15, "the hour that passes twice runs once")
			}
		})
	}
}

// Attack 7: another dispatcher has taken the role.
func TestAFormerControllerStops(t *testing.T) {
	run(t, []schedulestore.Row{cronRow(1, "* * * * *")}, func(b *bubble) {
		b.deposed = true
		b.pass(61 * time.Second)
		require.Empty(t, b.ticked)
		before := b.statements
		b.beat(0, true)
		b.pass(10 * time.Minute)
		require.Equal(t, before, b.statements)
		b.deposed = false
		b.beat(3, false)
		b.pass(time.Minute)
		require.NotEmpty(t, b.ticked)
	})
}

// Any session may notify. The controller reads edits at most 20 times per second.
func TestForgedNotificationsCostFewStatements(t *testing.T) {
	run(t, nil, func(b *bubble) {
		before := b.statements
		for range 10_000 {
			b.runner.Wake(contract.EditsMade)
			b.pass(100 * time.Microsecond)
		}
		require.InDelta(t, 20, b.statements-before, 2)
	})
}

func TestEditsTakeEffectAfterANotificationOrAHeartbeat(t *testing.T) {
	for _, notify := range []bool{true, false} {
		run(t, nil, func(b *bubble) {
			b.rows[1] = cronRow(1, "* * * * *")
			b.rows[2] = cronRow(2, "bad")
			b.records = []int64{1, 2}
			if notify {
				b.runner.Wake(contract.EditsMade)
			} else {
				b.beat(1, true)
			}
			b.pass(time.Minute)
			require.Len(t, b.ticked, 1)
			require.Empty(t, b.records, "the records are deleted")
			require.Len(t, b.problems, 1)
			require.Contains(t, b.problems[0].Reason, "bad")
			delete(b.rows, 1)
			b.records = []int64{1}
			b.beat(1, true)
			b.pass(5 * time.Minute)
			require.Len(t, b.ticked, 1)
		})
	}
}

// Edits are read in portions. A locked record does not delay the others.
func TestALockedRecordDelaysNoOtherEdit(t *testing.T) {
	run(t, nil, func(b *bubble) {
		b.portion, b.locked = 2, 1
		for id := int64(1); id <= 6; id++ {
			b.rows[id] = cronRow(id, "* * * * *")
			b.records = append(b.records, id)
		}
		b.runner.Wake(contract.EditsMade)
		b.pass(editPause)
		require.Equal(t, 5, b.plan.Counts()["active"])
		require.Len(t, b.records, 1)
		before := b.statements
		b.pass(30 * time.Second)
		require.Equal(t, before, b.statements, "the record is read again after a heartbeat")
		b.locked = 0
		b.beat(1, true)
		b.pass(editPause)
		require.Equal(t, 6, b.plan.Counts()["active"])
		require.Empty(t, b.records)
	})
}

// Users edit schedules faster than the controller reads edits.
func TestTicksDoNotWaitForTheEndOfEdits(t *testing.T) {
	run(t, []schedulestore.Row{cronRow(1, "* * * * *")}, func(b *bubble) {
		b.endless.Store(true)
		b.runner.Wake(contract.EditsMade)
		<-time.After(3*time.Minute + time.Second)
		b.endless.Store(false)
		synctest.Wait()
		require.Len(t, b.ticked, 3)
	})
}

// The column error is written after a failure, and when its schedule is no longer locked.
func TestErrorsAreReportedUntilTheyAreWritten(t *testing.T) {
	run(t, nil, func(b *bubble) {
		b.beat(0, false)
		b.rows[1], b.rows[2] = cronRow(1, "bad"), cronRow(2, "bad")
		b.locked, b.failReport = 2, errors.New("conn closed")
		b.beat(2, false)
		b.pass(time.Second)
		require.Len(t, b.problems, 1)
		b.locked = 0
		b.pass(lockPause)
		require.Len(t, b.problems, 2)
		before := b.statements
		b.pass(time.Minute)
		require.Equal(t, before, b.statements)
	})
}

// Postgres refuses the ticks of a schedule for some minutes. The column error says so.
func TestRefusedTicksAreTriedAgainEveryMinute(t *testing.T) {
	run(t, []schedulestore.Row{cronRow(1, "*/10 * * * * *"), cronRow(2, "*/10 * * * * *")}, func(b *bubble) {
		b.table.refused = 1
		before := b.statements
		b.pass(2*time.Minute + time.Second)
		require.Len(t, b.ticked, 12, "the other schedule runs")
		require.Equal(t, []schedulestore.Problem{{Schedule: 1, Version: 1, Reason: "Postgres refuses the tick: damaged"}}, b.problems)
		require.LessOrEqual(t, b.statements-before, 12+3+1)
		require.InDelta(t, 110, b.overdue(), 1, "although no tick is due before the next attempt")
		b.table.refused = 0
		b.pass(time.Minute)
		require.Equal(t, schedulestore.Problem{Schedule: 1, Version: 1}, b.problems[len(b.problems)-1])
		require.Len(t, b.problems, 2)
		require.Positive(t, b.missed)
		require.Less(t, b.overdue(), 1.0)
	})
}

// Queued ticks of a deleted or paused schedule start never, or after a further edit.
func TestQueuedTicksOfDeletedOrPausedSchedulesCostNoStatement(t *testing.T) {
	for _, remove := range []bool{true, false} {
		run(t, []schedulestore.Row{cronRow(1, "* * * * *")}, func(b *bubble) {
			b.open = true
			b.pass(2*time.Minute + time.Second)
			require.Equal(t, 2, b.table.waiting)
			row := cronRow(1, "* * * * *")
			row.Queued, row.Paused, row.Version = true, true, 2
			if b.rows[1] = row; remove {
				delete(b.rows, 1)
			}
			b.records = []int64{1}
			b.beat(1, true)
			b.pass(editPause)
			before := b.statements
			b.pass(50 * time.Second)
			require.Equal(t, before, b.statements)
		})
	}
}

// The table has one schedule more than the plan may have. It runs after another one was deleted.
func TestSchedulesBeyondTheBoundWaitForADeletion(t *testing.T) {
	run(t, []schedulestore.Row{cronRow(1, "0 0 1 1 *"), cronRow(2, "0 0 1 1 *"), cronRow(3, "* * * * *")}, func(b *bubble) {
		b.MaxSchedules = 2
		b.beat(0, false)
		b.beat(2, false) // loads again
		require.Equal(t, 1, b.plan.Excess())
		require.Len(t, b.problems, 1)
		require.Contains(t, b.problems[0].Reason, "2 schedules exist, and no more can run")
		b.pass(2 * time.Minute)
		b.ticked = map[string]int{}
		b.pass(2 * time.Minute)
		require.Empty(t, b.ticked)
		edit := b.rows[3]
		for edit.Version = 2; edit.Version < 5; edit.Version++ {
			b.rows[3] = edit
			b.records = append(b.records, 3)
			b.beat(2, true)
			b.pass(time.Second)
		}
		require.Equal(t, 1, b.plan.Excess(), "edits add no schedule")

		last := b.rows[3]
		last.Error = b.problems[0].Reason
		b.rows[3] = last
		delete(b.rows, 1)
		b.records = append(b.records, 1)
		b.beat(2, true)
		b.pass(fillPause + 2*time.Minute)
		require.NotEmpty(t, b.ticked)
		require.Zero(t, b.plan.Excess())
		require.Empty(t, b.problems[len(b.problems)-1].Reason)
	})
}

func TestTheBoundOfSchedulesIsAMetric(t *testing.T) {
	for configured, want := range map[int]float64{0: 100_000, 7: 7} {
		r := prometheus.NewRegistry()
		New(Config{MaxSchedules: configured, Metrics: NewMetrics(r)})
		families, err := r.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == "dispatcherd_schedules_max" {
				require.InDelta(t, want, f.GetMetric()[0].GetGauge().GetValue(), 0)
				want = -1 // found
			}
		}
		require.InDelta(t, -1, want, 0)
	}
}

// The record of an edit was lost. A tick finds the edit, or the comparison with the table does.
func TestLostEditsAreRepaired(t *testing.T) {
	run(t, []schedulestore.Row{cronRow(1, "* * * * *")}, func(b *bubble) {
		row := cronRow(1, "*/2 * * * *")
		row.Version = 2
		b.rows[1] = row
		b.pass(10*time.Minute + time.Second)
		require.Len(t, b.ticked, 5)
		delete(b.rows, 1)
		b.rows[2] = cronRow(2, "* * * * *")
		b.pass(12 * time.Hour)
		require.NotContains(t, b.plan.IDs(), int64(1))
		require.Contains(t, b.plan.IDs(), int64(2))
	})
}

// The comparison with the table fails, for example because a row cannot be read. Ticks do not wait for its success.
func TestTicksContinueWhileTheComparisonFails(t *testing.T) {
	run(t, []schedulestore.Row{cronRow(1, "*/10 * * * * *")}, func(b *bubble) {
		b.failLoad = errors.New("damaged")
		b.pass(DefaultResync + 10*time.Minute)
		made := len(b.ticked) // a failure prints no list
		require.Equal(t, int((DefaultResync+10*time.Minute)/(10*time.Second)), made)
		require.Zero(t, b.missed)
		b.failLoad = nil
		b.rows[2] = cronRow(2, "0 0 1 1 *")
		b.pass(2 * time.Minute)
		require.Contains(t, b.plan.IDs(), int64(2))
	})
}

// A run is open for 90 s, and two ticks are queued meanwhile. They start one after the other.
func TestQueuedTicksStartAfterTheOpenRun(t *testing.T) {
	run(t, []schedulestore.Row{cronRow(1, "* * * * *")}, func(b *bubble) {
		b.open = true
		b.pass(2*time.Minute + time.Second)
		require.Equal(t, 2, b.table.waiting)
		b.open = false
		b.Ended()
		b.pass(handOff)
		require.Equal(t, 1, b.table.waiting, "a run of this dispatcher has ended")
		b.pass(time.Second)
		require.Zero(t, b.table.waiting, "a run of another dispatcher has ended")
		before := b.statements
		b.pass(50 * time.Second)
		require.Equal(t, before, b.statements, "no tick is queued")
	})
}

// The answer that a tick is queued is lost. The repeated statement says only that the tick exists.
func TestQueuedTickWithALostAnswerStarts(t *testing.T) {
	run(t, []schedulestore.Row{cronRow(1, "0 * * * *")}, func(b *bubble) {
		b.pass(59 * time.Minute)
		b.open, b.fail = true, errors.New("conn closed")
		b.pass(2 * time.Minute)
		require.Equal(t, 1, b.table.waiting)
		b.open = false
		b.pass(queuePause)
		require.Zero(t, b.table.waiting)
	})
}

// The interval is 10 s and a run takes no time: an hour has 360 runs.
func TestIntervalsAreCheckedAndRun(t *testing.T) {
	row := cronRow(1, "")
	row.Kind, row.Every = contract.Interval, contract.Duration(10*time.Second)
	run(t, []schedulestore.Row{row}, func(b *bubble) {
		for range 60 {
			b.endedAt = time.Now()
			b.pass(10 * time.Second)
		}
		require.InDelta(t, 60, len(b.ticked), 1)
	})
}
