package jobs

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/api"
)

func TestWhyExplainsThatAJobIsNeverOvertaken(t *testing.T) {
	soon := 2.5
	for want, c := range map[string]struct {
		rival api.Rival
		mode  string
	}{
		"job 7 pdf priority 0 queued, score 0: never overtaken: both age at the same rate":                     {api.Rival{Mode: "queued"}, "queued"},
		"job 7 pdf priority 0 on_demand, score 0: never overtaken: an on-demand request ages at least as fast": {api.Rival{Mode: "on_demand"}, "queued"},
		"job 7 pdf priority 0 on_demand, score 0: never overtaken: both age at the same rate":                  {api.Rival{Mode: "on_demand"}, "on_demand"},
		"job 7 pdf priority 0 queued, score 0: overtaken in 2.5s":                                              {api.Rival{Mode: "queued", Passed: &soon}, "on_demand"},
		"job 7 pdf priority 0 queued, score 0: overtaken now":                                                  {api.Rival{Mode: "queued", Passed: new(float64)}, "on_demand"},
	} {
		c.rival.Job, c.rival.Type = 7, "pdf"
		require.Equal(t, want, rivalText(&c.rival, c.mode))
	}
}

func TestWhyPrintsWhenAScheduledJobBecomesDue(t *testing.T) {
	var lines []string
	add := func(name, format string, args ...any) { lines = append(lines, name+" "+fmt.Sprintf(format, args...)) }
	at := time.Date(2026, 1, 31, 23, 0, 0, 0, time.UTC)
	addWhy(add, &api.Why{Job: 7, Type: "pdf", Status: "pending", Reasons: []string{"Scheduled"}, RunAt: &at})
	require.Equal(t, []string{"job 7 pdf, priority 0, pending", "reason Scheduled: its run_at is 2026-01-31T23:00:00.000Z", "run_at 2026-01-31T23:00:00.000Z"}, lines)
}

func TestWhyCountsSlotsOfOtherDispatchers(t *testing.T) {
	require.Equal(t, "0 support the type, 0 of them free", slotsText(&api.Why{}))
	require.Equal(t, "2 support the type, 1 of them free; 3 more at other dispatchers", slotsText(&api.Why{Capacity: 2, Free: 1, OtherSlots: 3}))
}

func TestWhyPrintsTimesInUTC(t *testing.T) {
	var lines []string
	at := time.Date(2026, 1, 31, 23, 0, 0, 0, time.FixedZone("west", -3*3600))
	printDecisions(func(name, format string, args ...any) { lines = append(lines, name+" "+fmt.Sprintf(format, args...)) }, &api.Why{
		Placement: &api.Placement{At: at, Slot: 3, Worker: "w", SlotTypes: 1}, End: &api.End{At: at, Outcome: "done", Attempt: 1},
	})
	require.Equal(t, "placed 2026-02-01T02:00:00.000Z on slot 3 of w, which supports 1 type", lines[0])
	require.Equal(t, "ended 2026-02-01T02:00:00.000Z done after 0s, attempt 1", lines[len(lines)-1])
}
