package schedule

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule/cron"
)

// begin is when the tests begin.
var begin = time.Date(2026, 3, 28, 22, 0, 0, 0, time.UTC)

// cronPlan returns a cron schedule with the defaults of the table.
func cronPlan(id int64, spec, zone string) *contract.SchedulePlan {
	return &contract.SchedulePlan{
		ID:          id,
		Name:        fmt.Sprint("s", id),
		Kind:        contract.Cron,
		Spec:        spec,
		TimeZone:    zone,
		CatchUp:     contract.Duration(time.Hour),
		CatchUpMost: 1,
		Version:     1,
		Since:       begin,
	}
}

func intervalPlan(id int64, every time.Duration) *contract.SchedulePlan {
	return &contract.SchedulePlan{
		ID:       id,
		Name:     "i",
		Kind:     contract.Interval,
		Every:    contract.Duration(every),
		TimeZone: "UTC",
		Version:  1,
		Since:    begin,
	}
}

// planned returns a plan with schedules.
func planned(t *testing.T, schedules ...*contract.SchedulePlan) *Plan {
	t.Helper()
	p := New(Start{Founder: 7, AppVersion: "1.2"}, 0)
	for _, s := range schedules {
		require.NoError(t, p.Set(begin, s, time.Time{}))
	}
	return p
}

// runUntil makes all ticks up to an instant at their time, and returns them. Runs of intervals
// are open all the time.
func runUntil(t *testing.T, p *Plan, until time.Time) (all []Tick) {
	t.Helper()
	for {
		at, ok := p.Next()
		if !ok || at.After(until) {
			return all
		}
		ticks, checks := p.Due(at, 1000)
		require.NotZero(t, len(ticks)+len(checks))
		for _, id := range checks {
			p.Checked(at, Run{Schedule: id, Open: true})
		}
		for i := range ticks {
			p.Made(at, &ticks[i], contract.TickRun)
		}
		all = append(all, ticks...)
	}
}

// reference is a naive plan of cron schedules: it keeps no order and computes all occasions of
// each schedule again and again.
type reference struct {
	rows    map[int64]*contract.SchedulePlan
	handled map[int64]time.Time
	blocked map[int64]time.Time // locked or changed schedules: no tick before
}

func (r *reference) ticks(now time.Time) (all []Tick) {
	for id, s := range r.rows {
		if s.Paused || now.Before(r.blocked[id]) {
			continue
		}
		zone, err := time.LoadLocation(s.TimeZone)
		if err != nil {
			continue
		}
		expression, err := cron.Parse(s.Spec)
		if err != nil {
			continue
		}
		after := r.handled[id]
		if s.Since.After(after) {
			after = s.Since
		}
		var due []time.Time
		for at, ok := expression.Next(after, zone); ok && !at.After(now); at, ok = expression.Next(at, zone) {
			if (s.StartsAt == nil || !at.Before(*s.StartsAt)) && (s.EndsAt == nil || at.Before(*s.EndsAt)) {
				due = append(due, at)
			}
		}
		missed, most := 0, s.CatchUpMost
		var run []Tick
		for _, at := range slices.Backward(due) {
			age := now.Sub(at)
			if age <= Prompt || age < time.Duration(s.CatchUp) && most > 0 {
				run = append(run, Tick{Schedule: id, Version: s.Version, Occasion: CronOccasion(at), Planned: at.UTC()})
			} else {
				missed++
			}
			most--
		}
		if missed > 0 {
			at := due[missed-1]
			all = append(all, Tick{Schedule: id, Version: s.Version, Occasion: "missed:" + CronOccasion(at), Planned: at.UTC(), Missed: missed})
		}
		slices.Reverse(run)
		all = append(all, run...)
	}
	return all
}

func sorted(ticks []Tick) []Tick {
	ticks = slices.Clone(ticks)
	for i := range ticks {
		ticks[i].RunAt = time.Time{}
	}
	slices.SortFunc(ticks, func(a, b Tick) int { return cmp.Or(cmp.Compare(a.Schedule, b.Schedule), a.Planned.Compare(b.Planned)) })
	return append([]Tick{}, ticks...)
}

// Schedules are added, edited, paused and removed, the time passes in small and in large steps,
// and ticks get random outcomes.
func TestPlanAgreesWithTheReference(t *testing.T) {
	specs := []string{"*/4 * * * * *", "*/5 * * * *", "30 2 * * *", "0 * * * *", "0 0 L * *", "15,45 1-3 * * SUN", "bad"}
	zoneNames := []string{"UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/New_York", "nowhere"}
	steps := []time.Duration{time.Second, 7 * time.Second, time.Minute, 50 * time.Minute, 26 * time.Hour}
	seeds := uint64(12)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		p := New(Start{}, 0)
		r := &reference{map[int64]*contract.SchedulePlan{}, map[int64]time.Time{}, map[int64]time.Time{}}
		now, version := begin, int64(0)
		for range 120 {
			for range rng.IntN(3) { // edits
				version++
				s := cronPlan(rng.Int64N(12), specs[rng.IntN(len(specs))], zoneNames[rng.IntN(len(zoneNames))])
				s.Version, s.Since, s.Paused = version, now.Add(-time.Duration(rng.IntN(20))*time.Second), rng.IntN(4) == 0
				s.CatchUp, s.CatchUpMost = contract.Duration(time.Duration(rng.IntN(100))*time.Minute), rng.IntN(40)
				if rng.IntN(3) == 0 {
					from := now.Add(time.Duration(rng.IntN(100)-50) * time.Minute)
					s.StartsAt = &from
				}
				if rng.IntN(3) == 0 {
					until := now.Add(2 * time.Hour)
					s.EndsAt = &until
				}
				delete(r.blocked, s.ID)
				if rng.IntN(5) == 0 {
					p.Remove(s.ID)
					delete(r.rows, s.ID)
					continue
				}
				err := p.Set(now, s, r.handled[s.ID])
				require.Equal(t, s.Spec == "bad" || s.TimeZone == "nowhere", err != nil, "%v", err)
				r.rows[s.ID] = s
			}
			now = now.Add(steps[rng.IntN(len(steps))])
			if rng.IntN(20) == 0 {
				now = now.Add(-time.Hour) // the database clock is set back
				p.ClockMoved(now)
			}
			ticks, checks := p.Due(now, 1<<30)
			require.Empty(t, checks)
			require.Equal(t, sorted(r.ticks(now)), sorted(ticks), "seed %d at %v", seed, now)
			outcomes := map[int64]string{}
			for i := range ticks {
				id := ticks[i].Schedule
				if outcomes[id] == "" {
					outcomes[id] = []string{
						contract.TickRun, contract.TickSkipped, contract.TickExists, contract.TickLocked, contract.TickChanged,
					}[rng.IntN(5)]
				}
				switch outcomes[id] {
				case contract.TickLocked:
					r.blocked[id] = now.Add(lockedPause)
				case contract.TickChanged:
					r.blocked[id] = now.AddDate(1000, 0, 0)
				default:
					r.handled[id] = ticks[i].Planned
				}
				p.Made(now, &ticks[i], outcomes[id])
			}
			require.Len(t, p.entries, len(r.rows))
			require.Equal(t, len(p.entries), p.Counts()["active"]+p.Counts()["paused"]+p.Counts()["invalid"])
		}
	}
}

// Due returns portions. The ticks of all portions are those of one call without a limit.
func TestPortionsOfDueTicksAreComplete(t *testing.T) {
	s := cronPlan(1, "* * * * * *", "UTC")
	s.CatchUp, s.CatchUpMost = contract.Duration(100*time.Hour), 3000
	p := planned(t, s, cronPlan(2, "* * * * * *", "UTC"))
	now := begin.Add(60 * time.Hour) // 216,000 occasions, more than one call counts
	runs, missed := map[int64]int{}, map[int64]int{}
	for range 1000 {
		ticks, _ := p.Due(now, 100)
		if len(ticks) == 0 {
			break
		}
		require.LessOrEqual(t, len(ticks), 100)
		for i := range ticks {
			missed[ticks[i].Schedule] += ticks[i].Missed
			if ticks[i].Missed == 0 {
				runs[ticks[i].Schedule]++
			}
			p.Made(now, &ticks[i], contract.TickRun)
		}
	}
	require.Equal(t, map[int64]int{1: 3000, 2: 6}, runs)
	require.Equal(t, map[int64]int{1: 213_000, 2: 215_994}, missed)
}

// The handler takes 8 s and the interval is 3 s: runs start 11 s apart. An open run is checked
// once per interval.
func TestIntervalRunsAfterTheEndOfTheLastRun(t *testing.T) {
	p := planned(t, intervalPlan(1, 3*time.Second))
	var starts []time.Duration
	var ended time.Time
	checks := 0
	for range 40 {
		at, ok := p.Next()
		require.True(t, ok)
		ticks, due := p.Due(at, 10)
		for _, id := range due {
			checks++
			p.Checked(at, Run{Schedule: id, Exists: !ended.IsZero(), Open: at.Before(ended), EndedAt: ended})
		}
		for i := range ticks {
			starts = append(starts, at.Sub(begin))
			ended = at.Add(8 * time.Second)
			p.Made(at, &ticks[i], contract.TickRun)
		}
	}
	require.Equal(t, []time.Duration{0, 11 * time.Second, 22 * time.Second}, starts[:3])
	require.LessOrEqual(t, checks, 3*len(starts)+1)
}

// After the clock was set back, the last planned instant is in the future.
func TestIntervalRunsAfterTheEndAlsoIfItsMarkIsLater(t *testing.T) {
	interval := intervalPlan(1, 10*time.Minute)
	p := New(Start{}, 0)
	require.NoError(t, p.Set(begin, interval, begin.Add(time.Hour)))
	p.Checked(begin.Add(4*time.Minute), Run{Schedule: 1, Exists: true, EndedAt: begin})
	at, _ := p.Next()
	require.Equal(t, begin.Add(10*time.Minute), at.UTC())
}

func TestIntervalWaitsForItsStartAndStopsAtItsEnd(t *testing.T) {
	s := intervalPlan(1, time.Minute)
	from, until := begin.Add(time.Hour), begin.Add(time.Hour+90*time.Second)
	s.StartsAt, s.EndsAt = &from, &until
	p := planned(t, s)
	var starts []time.Duration
	for range 10 {
		at, ok := p.Next()
		if !ok {
			break
		}
		ticks, due := p.Due(at, 10)
		for _, id := range due {
			p.Checked(at, Run{Schedule: id, Exists: len(starts) > 0, EndedAt: at.Add(-time.Minute)})
		}
		for i := range ticks {
			starts = append(starts, at.Sub(from))
			p.Made(at, &ticks[i], contract.TickRun)
		}
	}
	require.Equal(t, []time.Duration{0, time.Minute}, starts)
}

// A tick that is locked or refused is tried again later. It is overdue since its instant.
func TestOverdueCountsTicksThatAreTriedAgain(t *testing.T) {
	p := planned(t, cronPlan(1, "* * * * *", "UTC"), cronPlan(2, "0 * * * *", "UTC"))
	due := begin.Add(time.Minute)
	require.Zero(t, p.Overdue(begin))
	require.Equal(t, time.Second, p.Overdue(due.Add(time.Second)))
	ticks, _ := p.Due(due, 10)
	p.Made(due, &ticks[0], contract.TickLocked)
	for i := range 3 {
		now := due.Add(time.Duration(1+i) * 10 * time.Second)
		require.Equal(t, now.Sub(due), p.Overdue(now))
		ticks, _ = p.Due(now, 10)
		p.Made(now, &ticks[0], contract.TickRefused)
		require.Equal(t, now.Sub(due), p.Overdue(now))
		p.wake(p.entries[1], now.UnixMicro())
	}
	now := due.Add(40 * time.Second)
	p.Made(now, &ticks[0], contract.TickRun)
	require.Zero(t, p.Overdue(now))
	p.Made(now, &ticks[0], contract.TickLocked)
	p.Remove(1)
	require.Zero(t, p.Overdue(now))
}

// A run whose row was deleted has no known end: the next run waits for the interval.
func TestIntervalWithoutAKnownEndRunsAgain(t *testing.T) {
	p := New(Start{}, 0)
	require.NoError(t, p.Set(begin, intervalPlan(1, time.Minute), begin.Add(-10*time.Second)))
	p.Checked(begin, Run{Schedule: 1, Exists: true})
	at, _ := p.Next()
	require.True(t, begin.Add(50*time.Second).Equal(at), at)
}

func TestStartupRunsOnceForItsOccasion(t *testing.T) {
	for once, occasion := range map[string]string{
		contract.OncePerStart: "start:7", contract.OncePerVersion: "version:1.2", contract.OnceEver: "ever",
	} {
		s := &contract.SchedulePlan{ID: 1, Name: "s", Kind: contract.Startup, Once: once, TimeZone: "UTC", Version: 1, Since: begin}
		p := planned(t, s)
		ticks := runUntil(t, p, begin.AddDate(10, 0, 0))
		require.Len(t, ticks, 1)
		require.Equal(t, occasion, ticks[0].Occasion)
		require.True(t, ticks[0].Planned.IsZero(), "an occasion that is no instant does not move the high-water mark")
	}
	s := &contract.SchedulePlan{ID: 1, Name: "s", Kind: contract.Startup, Once: contract.OncePerVersion, TimeZone: "UTC", Version: 1}
	require.ErrorContains(t, New(Start{}, 0).Set(begin, s, time.Time{}), "--app-version")
	s = &contract.SchedulePlan{ID: 1, Name: "s", Kind: contract.StartupWorker, TimeZone: "UTC", Version: 1}
	require.Empty(t, runUntil(t, planned(t, s), begin.AddDate(10, 0, 0)), "each session makes the tick of its own")
}

func TestJitterIsEqualOnAllHostsAndSpread(t *testing.T) {
	s := cronPlan(3, "* * * * *", "UTC")
	s.Jitter = contract.Duration(time.Minute)
	a, b := runUntil(t, planned(t, s), begin.Add(10*time.Hour)), runUntil(t, planned(t, s), begin.Add(10*time.Hour))
	require.Equal(t, a, b)
	quarters := map[time.Duration]int{}
	for _, tick := range a {
		added := tick.RunAt.Sub(tick.Planned)
		require.GreaterOrEqual(t, added, time.Duration(0))
		require.Less(t, added, time.Minute)
		quarters[added/(15*time.Second)]++
	}
	require.Len(t, quarters, 4)
	for _, n := range quarters {
		require.InDelta(t, 150, n, 50, "600 occasions in four quarters")
	}
	other := *s
	other.ID = 4
	require.NotEqual(
		t,
		a[0].RunAt,
		runUntil(t, planned(t, &other), begin.Add(time.Hour))[0].RunAt,
		"schedules at the same time have different jitter",
	)
}

func TestUpcomingOccasionsShowLocalTimeAndDaylightSaving(t *testing.T) {
	list, err := Upcoming(cronPlan(1, "30 2 * * *", "Europe/Berlin"), begin, 2)
	require.NoError(t, err)
	require.Equal(t, "2026-03-29 03:00:00 +0200 CEST", list[0].Local.String())
	require.NotEmpty(t, list[0].Note)
	require.Equal(t, "2026-03-30 02:30:00 +0200 CEST", list[1].Local.String())
	require.Empty(t, list[1].Note)
	_, err = Upcoming(intervalPlan(1, time.Hour), begin, 2)
	require.ErrorContains(t, err, "only schedules of kind cron")
}

// Each error names the column, the value, the rule and an example.
func TestInvalidValuesAreExplained(t *testing.T) {
	valid := contract.Schedule{SchedulePlan: *cronPlan(1, "0 2 * * *", "UTC"), Type: "pdf", MaxAttempts: 5, Overlap: contract.Skip}
	require.NoError(t, Check(&valid))
	zero, early := 0, time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC)
	for want, change := range map[string]func(*contract.Schedule){
		`name "a b": must be`:          func(s *contract.Schedule) { s.Name = "a b" },
		`type "": `:                    func(s *contract.Schedule) { s.Type = "" },
		`overlap "both": must be`:      func(s *contract.Schedule) { s.Overlap = "both" },
		`priority 11: must be`:         func(s *contract.Schedule) { s.Priority = 11 },
		`max_attempts 0: must be`:      func(s *contract.Schedule) { s.MaxAttempts = 0 },
		`timeout_ms 0: must be`:        func(s *contract.Schedule) { s.TimeoutMS = &zero },
		`expected_ms 0: must be`:       func(s *contract.Schedule) { s.ExpectedMS = &zero },
		`kind "daily": must be`:        func(s *contract.Schedule) { s.Kind, s.Spec = "daily", "" },
		`spec: cron expression "x"`:    func(s *contract.Schedule) { s.Spec = "x" },
		`spec "0 2 * * *": only`:       func(s *contract.Schedule) { s.Kind = contract.Interval },
		`every 1m0s: only`:             func(s *contract.Schedule) { s.Every = contract.Duration(time.Minute) },
		`once "ever": only`:            func(s *contract.Schedule) { s.Once = contract.OnceEver },
		`every 0s: must be`:            func(s *contract.Schedule) { s.Kind, s.Spec = contract.Interval, "" },
		`once "": must be`:             func(s *contract.Schedule) { s.Kind, s.Spec = contract.Startup, "" },
		`time_zone "Mars": must be`:    func(s *contract.Schedule) { s.TimeZone = "Mars" },
		`time_zone "Local": must be`:   func(s *contract.Schedule) { s.TimeZone = "Local" },
		`jitter 25h0m0s: must be`:      func(s *contract.Schedule) { s.Jitter = contract.Duration(25 * time.Hour) },
		`catch_up -1s: must be`:        func(s *contract.Schedule) { s.CatchUp = contract.Duration(-time.Second) },
		`catch_up_most 10001: must be`: func(s *contract.Schedule) { s.CatchUpMost = 10_001 },
		`starts_at 1969`:               func(s *contract.Schedule) { s.StartsAt = &early },
		`keys "a": a schedule of kind startup-worker has none`: func(s *contract.Schedule) {
			s.Kind, s.Spec, s.Keys = contract.StartupWorker, "", "a"
		},
		`ends_at 2026-03-28T22:00:00Z: must be after starts_at`: func(s *contract.Schedule) { s.StartsAt, s.EndsAt = &begin, &begin },
	} {
		s := valid
		change(&s)
		err := Check(&s)
		require.ErrorContains(t, err, want)
		require.Regexp(t, ", for example |: remove it, or set kind to ", err.Error())
	}
}

// 100,000 schedules with 50 expressions use at most 200 bytes each.
func TestAScheduleTakesAtMost200Bytes(t *testing.T) {
	const n = 100_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	p := New(Start{}, 0)
	s := cronPlan(0, "", "Europe/Berlin")
	for i := range int64(n) {
		s.ID, s.Spec = i, fmt.Sprintf("%d 3 * * *", i%50)
		require.NoError(t, p.Set(begin, s, time.Time{}))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.LessOrEqual(t, (after.HeapAlloc-before.HeapAlloc)/n, uint64(200))
	require.Len(t, p.entries, n)
}

func TestPlanListsItsSchedules(t *testing.T) {
	p := planned(t, cronPlan(1, "* * * * *", "UTC"), cronPlan(2, "* * * * *", "UTC"))
	require.ElementsMatch(t, []int64{1, 2}, p.IDs())
	require.Equal(t, int64(1), p.Version(2))
	require.Zero(t, p.Version(3))
	ended := begin.Add(-time.Hour)
	s := &contract.SchedulePlan{ID: 3, Name: "s", Kind: contract.Startup, Once: contract.OnceEver, TimeZone: "UTC", Version: 1, EndsAt: &ended}
	require.NoError(t, p.Set(begin, s, time.Time{}))
	ticks, _ := p.Due(begin, 10)
	require.Empty(t, ticks, "the startup schedule has ended")
}

// A plan keeps no rule that no schedule has: applications create schedules for single runs.
func TestRulesOfFormerSchedulesAreForgotten(t *testing.T) {
	p := planned(t, cronPlan(1, "0 0 1 1 *", "UTC"), cronPlan(2, "0 0 1 1 *", "UTC"))
	for minute := range 60 {
		require.NoError(t, p.Set(begin, cronPlan(3, fmt.Sprint(minute, " 2 * * *"), "UTC"), time.Time{}))
	}
	require.Len(t, p.rules, 2)
	p.Remove(2)
	p.Remove(3)
	require.Len(t, p.rules, 1, "one schedule has the rule")
	p.Remove(1)
	require.Empty(t, p.rules)
}

func TestPlanRefusesSchedulesBeyondItsBound(t *testing.T) {
	p := New(Start{}, 2)
	set := func(id int64) error {
		s := &contract.SchedulePlan{ID: id, Name: "s", Kind: contract.Cron, Spec: "@daily", TimeZone: "UTC", Version: 1, Since: begin}
		return p.Set(begin, s, time.Time{})
	}
	require.NoError(t, set(1))
	require.NoError(t, set(2))
	require.NoError(t, set(2), "an edit")
	require.EqualError(
		t,
		set(3),
		"2 schedules exist, and no more can run: remove others, for example with 'dispatcherd schedule rm old', then this one "+
			"runs within a minute",
	)
	require.Equal(t, []int{2, 1}, []int{len(p.entries), p.Excess()})
	p.Remove(1)
	p.Compare()
	require.NoError(t, set(3))
	require.Zero(t, p.Excess())
}
