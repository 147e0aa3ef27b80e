package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// These tests are attacks on the plan. internal/schedule/schedulestore and e2e contain the others.

// occasionsOf returns the occasions of a schedule between two instants, made at their time.
func occasionsOf(t *testing.T, spec, zone string, from, until time.Time) (list []string) {
	t.Helper()
	s := cronPlan(1, spec, zone)
	s.Since = from
	for _, tick := range runUntil(t, planned(t, s), until) {
		require.Zero(t, tick.Missed)
		list = append(list, tick.Occasion)
	}
	return list
}

func day(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// Attack 1.
func TestScheduleInAGapRunsOnce(t *testing.T) {
	require.Equal(t, []string{"2026-03-29T01:00:00Z"}, occasionsOf(t, "30 2 * * *", "Europe/Berlin", day(2026, 3, 29), day(2026, 3, 30)))
}

// Attack 2.
func TestScheduleInARepeatedHourRunsOnce(t *testing.T) {
	require.Equal(t, []string{"2026-10-25T00:30:00Z"}, occasionsOf(t, "30 2 * * *", "Europe/Berlin", day(2026, 10, 25), day(2026, 10, 26)))
	midnight := time.Date(2026, 10, 24, 21, 59, 59, 0, time.UTC)
	require.Len(t, occasionsOf(t, "*/15 * * * *", "Europe/Berlin", midnight, midnight.Add(25*time.Hour)), 100)
}

// Attack 3.
func TestScheduleFollowsUnusualZones(t *testing.T) {
	require.Equal(t, []string{"2026-04-04T14:45:00Z"},
		occasionsOf(t, "45 1 * * *", "Australia/Lord_Howe", day(2026, 4, 4).Add(12*time.Hour), day(2026, 4, 5).Add(10*time.Hour)),
		"the first of the repeated half hour")
	require.Equal(t, []string{"2026-04-23T22:00:00Z"},
		occasionsOf(t, "0 0 * * *", "Africa/Cairo", day(2026, 4, 23).Add(12*time.Hour), day(2026, 4, 24).Add(12*time.Hour)),
		"midnight is in the gap")
	require.Equal(t, []string{"2011-12-29T22:00:00Z", "2011-12-30T22:00:00Z"},
		occasionsOf(t, "0 12 * * *", "Pacific/Apia", day(2011, 12, 29), day(2011, 12, 31)), "30 December does not exist")
}

// Attack 4.
func TestScheduleOnADayThatNeverComesIsRejected(t *testing.T) {
	require.Error(t, CheckPlan(cronPlan(1, "0 0 31 2 *", "UTC")))
	list, err := Occasions(cronPlan(1, "0 0 29 2 *", "UTC"), day(2096, 3, 1), day(2200, 1, 1), 1)
	require.NoError(t, err)
	require.Equal(t, []time.Time{day(2104, 2, 29)}, list)
}

// Attack 5: the clock moves forward by 1 h.
func TestScheduleDoesNotBurstAfterTheClockMovedForward(t *testing.T) {
	p := planned(t, cronPlan(1, "* * * * *", "UTC"))
	runUntil(t, p, begin.Add(time.Minute))
	ticks, _ := p.Due(begin.Add(61*time.Minute+30*time.Second), 1000)
	require.Len(t, ticks, 2)
	require.Equal(t, 59, ticks[0].Missed)
	require.Equal(
		t,
		Tick{Schedule: 1, Version: 1, Occasion: "2026-03-28T23:01:00Z", Planned: begin.Add(61 * time.Minute), RunAt: begin.Add(61 * time.Minute)},
		ticks[1],
	)
}

// Attack 6: the clock moves back by 1 h.
func TestScheduleRunsNoOccasionTwiceAfterTheClockMovedBack(t *testing.T) {
	interval := intervalPlan(2, 10*time.Minute)
	p := planned(t, cronPlan(1, "* * * * *", "UTC"), interval)
	ran := map[string]bool{}
	for _, tick := range runUntil(t, p, begin.Add(2*time.Minute)) {
		ran[tick.Occasion] = true
	}
	p.Checked(begin.Add(2*time.Minute), Run{Schedule: 2, Exists: true, EndedAt: begin.Add(2 * time.Minute)})
	back := begin.Add(-58 * time.Minute)
	p.ClockMoved(back)
	_, checks := p.Due(back, 10)
	require.Equal(t, []int64{2}, checks)
	p.Checked(back, Run{Schedule: 2, Exists: true, EndedAt: begin.Add(2 * time.Minute)})
	at, _ := p.Next()
	require.Equal(t, back.Add(10*time.Minute), at.UTC(), "an interval waits at most for its length")
	ticks, _ := p.Due(at, 10)
	p.Made(at, &ticks[0], contract.TickRun)
	for _, tick := range runUntil(t, p, begin.Add(5*time.Minute)) {
		if tick.Schedule == 1 {
			require.False(t, ran[tick.Occasion], tick.Occasion)
		}
	}
}

// Attack 10: an outage of 3 days of a schedule that runs every minute.
func TestScheduleCatchesUpAsConfigured(t *testing.T) {
	now := begin.Add(72 * time.Hour)
	p := planned(t, cronPlan(1, "* * * * *", "UTC"))
	ticks, _ := p.Due(now, 10_000)
	require.Len(t, ticks, 2)
	require.Equal(t, 4319, ticks[0].Missed)
	require.Equal(t, now, ticks[1].Planned)

	s := cronPlan(1, "* * * * *", "UTC")
	s.CatchUp, s.CatchUpMost = contract.Duration(72*time.Hour), 5000
	ticks, _ = planned(t, s).Due(now, 10_000)
	require.Len(t, ticks, 4320, "the overlap policy skips all but one")
	for _, tick := range ticks {
		require.Zero(t, tick.Missed)
	}
}

// Attack 17: the successor after a takeover has other time zone data, in which the occasions
// before the high-water mark are other ones.
func TestScheduleRunsNoHandledOccasion(t *testing.T) {
	handled := begin.Add(90 * time.Minute)
	p := New(Start{}, 0)
	require.NoError(t, p.Set(handled.Add(time.Second), cronPlan(1, "13 * * * *", "UTC"), handled))
	ticks := runUntil(t, p, begin.Add(3*time.Hour))
	require.NotEmpty(t, ticks)
	for _, tick := range ticks {
		require.True(t, tick.Planned.After(handled))
	}
}
