package controller

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
	"github.com/dispatcherd/dispatcherd/internal/schedule/schedulestest"
	"github.com/dispatcherd/dispatcherd/internal/schedule/schedulestore"
)

// droppingTable makes no tick of some statements, and answers that it has.
type droppingTable struct {
	Table
	calls *int
}

func (t droppingTable) Make(ctx context.Context, ticks []schedule.Tick) ([]contract.MadeTick, error) {
	if *t.calls++; *t.calls%50 != 0 {
		return t.Table.Make(ctx, ticks)
	}
	made := make([]contract.MadeTick, len(ticks))
	for i := range made {
		made[i].Outcome = contract.TickRun
	}
	return made, nil
}

// earlyTable reports that runs of intervals have ended earlier or, with a negative duration, later.
type earlyTable struct {
	Table
	by time.Duration
}

func (t earlyTable) LastRuns(ctx context.Context, ids []int64) ([]schedule.Run, error) {
	runs, err := t.Table.LastRuns(ctx, ids)
	for i := range runs {
		if r := &runs[i]; !r.EndedAt.IsZero() {
			r.EndedAt = r.EndedAt.Add(-t.by)
		}
	}
	return runs, err
}

// closedTable reports that no run of an interval is open.
type closedTable struct{ Table }

func (t closedTable) LastRuns(ctx context.Context, ids []int64) ([]schedule.Run, error) {
	runs, err := t.Table.LastRuns(ctx, ids)
	for i := range runs {
		runs[i].Open = false
	}
	return runs, err
}

// idleTable starts no queued ticks.
type idleTable struct{ Table }

func (idleTable) StartQueued(context.Context, []int64) ([]schedulestore.Started, error) {
	return nil, nil
}

// oldTable knows neither the start of the cluster nor the version of the application.
type oldTable struct{ Table }

func (oldTable) Start(context.Context, string) (schedule.Start, error) {
	return schedule.Start{Founder: 1, AppVersion: "0"}, nil
}

// Without one of the safeguards, the judge finds the failure.
func TestSimulatedYearFindsDefects(t *testing.T) {
	t.Parallel()
	e := extent{days: 3, schedules: 60, zones: 8}
	v, line := simulate(t, e)
	require.Equal(t, none, v.failures(), line)
	for name, c := range map[string]struct {
		missing schedulestest.Safeguard
		double  func(Table) Table
		found   func(verdict) int
	}{
		"an occasion gets a second tick":            {missing: schedulestest.OncePerTick, found: func(v verdict) int { return v.twice }},
		"a tick ignores open runs":                  {missing: schedulestest.OpenRuns, found: func(v verdict) int { return v.overlap }},
		"queued ticks start out of order":           {missing: schedulestest.Order, found: func(v verdict) int { return v.order }},
		"cancel_other neither replaces nor cancels": {missing: schedulestest.Replacement, found: func(v verdict) int { return v.overlap }},
		"a tick is dropped": {
			double: func(t Table) Table { return droppingTable{t, new(int)} },
			found:  func(v verdict) int { return v.lost },
		},
		"an interval starts early": {
			double: func(t Table) Table { return earlyTable{t, 5 * time.Minute} },
			found:  func(v verdict) int { return v.early },
		},
		"an interval starts late": {
			double: func(t Table) Table { return earlyTable{t, -9 * time.Minute} },
			found:  func(v verdict) int { return v.late },
		},
		"an interval ignores its open run": {
			double: func(t Table) Table { return closedTable{t} },
			found:  func(v verdict) int { return v.overlap },
		},
		"a queued tick never starts": {
			double: func(t Table) Table { return idleTable{t} },
			found:  func(v verdict) int { return v.late },
		},
		"a start of the cluster is not noticed": {
			double: func(t Table) Table { return oldTable{t} },
			found:  func(v verdict) int { return min(v.lost, v.twice) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken := e
			broken.missing, broken.double = c.missing, c.double
			v, line := simulate(t, broken)
			require.NotZero(t, c.found(v), line)
		})
	}
}
