package trace

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/scoring"
)

func constant(d time.Duration) func(*Job, int64) time.Duration {
	return func(*Job, int64) time.Duration { return d }
}

// A schedule that starts a job before another one which arrived earlier is found from the distance of the arrivals on, and only if both
// could use the slot.
func TestOvertakenFindsJobsThatPassed(t *testing.T) {
	tr := small()
	schedule := []Placement{{1, 1000, 1}, {2, 60_000, 2}, {3, 30_000, 2}, {4, 50_000, 2}}
	require.Len(t, tr.Overtaken(schedule, constant(28*time.Second)), 2, "jobs 3 and 4 pass job 2")
	require.Len(t, tr.Overtaken(schedule, constant(29*time.Second)), 1)
	require.Empty(t, tr.Overtaken(schedule, constant(49*time.Second)))
	require.Len(t, tr.Overtaken(schedule[2:], constant(0)), 4, "jobs 1 and 2 never start")
	schedule[1].Slot, schedule[2].Slot, schedule[3].Slot = 1, 1, 1
	tr.Jobs[1].Type = "excel"
	require.Empty(t, tr.Overtaken(schedule, constant(0)), "slot 1 does not support the type")
}

// No job is passed beyond what its own estimate allows, and the check finds estimates that are too short.
func TestJobsArePassedInProportionToTheirExpectedDurations(t *testing.T) {
	tr := overload(false).Hint(1, 2, 0)
	w := scoring.Default()
	w.DurationWindow = time.Hour
	schedule, found, err := Passes(tr, w)
	require.NoError(t, err)
	require.Empty(t, found)
	plain, err := Simulate(tr, w, nil)
	require.NoError(t, err)
	require.Equal(t, plain, schedule)
	shorter := w
	shorter.DurationWindow = 0
	least, _ := shorter.Window()
	require.NotEmpty(t, tr.Overtaken(schedule, constant(least)), "jobs pass others because they are short")
	_, e, err := simulateEstimates(tr, w)
	require.NoError(t, err)
	require.Empty(t, tr.Overtaken(schedule, e.window(w)))
	for _, list := range e.lanes {
		for i := range list {
			list[i].expectedMS /= 2
		}
	}
	require.NotEmpty(t, tr.Overtaken(schedule, e.window(w)), "control: half the estimates")
}
