package cli

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
)

func TestWhyExplainsThatAJobIsNeverOvertaken(t *testing.T) {
	soon := 2.5
	for want, c := range map[string]struct {
		rival contract.Rival
		mode  string
	}{
		"job 7 pdf priority 0 queued, score 0: never overtaken: both age at the same rate": {
			contract.Rival{Mode: "queued"}, "queued",
		},
		"job 7 pdf priority 0 on_demand, score 0: never overtaken: an on-demand request ages at least as fast": {
			contract.Rival{Mode: "on_demand"}, "queued",
		},
		"job 7 pdf priority 0 on_demand, score 0: never overtaken: both age at the same rate": {
			contract.Rival{Mode: "on_demand"}, "on_demand",
		},
		"job 7 pdf priority 0 queued, score 0: overtaken in 2.5s": {
			contract.Rival{Mode: "queued", Passed: &soon}, "on_demand",
		},
		"job 7 pdf priority 0 queued, score 0: overtaken now": {
			contract.Rival{Mode: "queued", Passed: new(float64)}, "on_demand",
		},
	} {
		c.rival.Job, c.rival.Type = 7, "pdf"
		require.Equal(t, want, rivalText(&c.rival, c.mode))
	}
}

func TestWhyPrintsWhenAScheduledJobBecomesDue(t *testing.T) {
	var lines []string
	add := func(name, format string, args ...any) { lines = append(lines, name+" "+fmt.Sprintf(format, args...)) }
	at := time.Date(2026, 1, 31, 23, 0, 0, 0, time.UTC)
	addWhy(add, &httpapi.Why{Job: 7, Type: "pdf", Status: "pending", Reasons: []string{"Scheduled"}, RunAt: &at})
	require.Equal(
		t,
		[]string{"job 7 pdf, priority 0, pending", "reason Scheduled: its run_at is in the future", "run_at 2026-01-31T23:00:00.000Z"},
		lines,
	)
}

// The counter of a batch or flow changes when dispatchers have counted the last ends. The list of the jobs is never late.
func TestWhySaysWhichDependenciesHaveNotEnded(t *testing.T) {
	why := func(left int, first ...contract.Dependency) string {
		return dependenciesText(&contract.Dependencies{Left: &left, First: first})
	}
	a := contract.Dependency{ID: 7, Name: "a", Status: "running"}
	require.Equal(t, "1 of its dependencies has not ended: job 7 a running", why(1, a))
	require.Equal(t, "1 of its dependencies has not ended: job 7 a running", why(2, a), "another one has ended")
	require.Equal(t, "all of its dependencies have ended, and dispatchers count the last ends", why(1))
	require.Regexp(t, "^30 of its dependencies have not ended: .*, …$", why(30, slices.Repeat([]contract.Dependency{a}, 10)...))
}

func TestWhyNamesTheUniqueKeyWithItsOwner(t *testing.T) {
	var lines []string
	add := func(name, format string, args ...any) { lines = append(lines, name+" "+fmt.Sprintf(format, args...)) }
	at := time.Date(2026, 1, 31, 23, 0, 0, 0, time.UTC)
	why := &httpapi.Why{
		Job: 7, Type: "pdf", Status: "done", Reasons: []string{"Final"}, Owner: new("shop"), UniqueKey: new("invoice 7"), KeyUntil: &at,
	}
	addWhy(add, why)
	require.Equal(t, []string{
		"job 7 pdf, priority 0, done", "owner shop", "unique key invoice 7",
		" taken until 2026-01-31T23:00:00.000Z, also after the end of the job",
		"reason Final: it has ended",
	}, lines)
}

func TestWhyCountsSlotsOfOtherDispatchers(t *testing.T) {
	require.Equal(t, "0 support the type, 0 of them free", slotsText(&httpapi.Why{}))
	require.Equal(t, "2 support the type, 1 of them free; 3 more at other dispatchers",
		slotsText(&httpapi.Why{Standing: contract.Standing{Capacity: 2, Free: 1, OtherSlots: 3}}))
}

func TestWhyDescribesTheHoldersOfAKey(t *testing.T) {
	at := time.Date(2026, 1, 31, 23, 0, 0, 0, time.UTC)
	hundred := int64(100)
	for want, c := range map[string]struct {
		reason string
		wait   httpapi.KeyWait
	}{
		"1 of capacity 100 of key k are held by 7; place 1 in the queue": {
			httpapi.ReasonKeyBusy, httpapi.KeyWait{Held: 1, Holders: []int64{7}, Position: 1},
		},
		"1 of capacity 100 of key k are held by 7; place at least 705 in the queue": {
			httpapi.ReasonKeyBusy, httpapi.KeyWait{Held: 1, Holders: []int64{7}, Position: 705, AtLeast: true},
		},
		"job 7 runs alone on key k": {
			httpapi.ReasonKeyBusy, httpapi.KeyWait{Alone: true, Holders: []int64{7}},
		},
		"jobs run alone on key k at their dispatchers; held by 7 8": {
			httpapi.ReasonKeyBusy, httpapi.KeyWait{Alone: true, Holders: []int64{7, 8}, Scope: "dispatcher"},
		},
		"150 of capacity 100 for each dispatcher of key k are held": {
			httpapi.ReasonKeyBusy, httpapi.KeyWait{Held: 150, Scope: "dispatcher"},
		},
		"job 3 has precedence at key k while it waits for its retry (on_retry=wait), until 2026-01-31T23:00:00.000Z, in 1m0s": {
			httpapi.ReasonKeyOrder, httpapi.KeyWait{First: 3, RetryAt: &at},
		},
		"key k is paused: its capacity is 0; 'limit set' with another capacity resumes it": {
			httpapi.ReasonKeyPaused, httpapi.KeyWait{},
		},
	} {
		c.wait.Key, c.wait.Capacity = "k", &hundred
		require.Equal(t, want, keyText(c.reason, &c.wait, at.Add(-time.Minute)))
	}
}

func TestWhyPrintsTimesInUTC(t *testing.T) {
	var lines []string
	at := time.Date(2026, 1, 31, 23, 0, 0, 0, time.FixedZone("west", -3*3600))
	printDecisions(func(name, format string, args ...any) { lines = append(lines, name+" "+fmt.Sprintf(format, args...)) }, &httpapi.Why{
		Placement: &httpapi.Placement{At: at, Slot: 3, Worker: "w", SlotTypes: 1}, End: &httpapi.End{At: at, Outcome: "done", Attempt: 1},
	})
	require.Equal(t, "placed 2026-02-01T02:00:00.000Z on slot 3 of w, which supports 1 type", lines[0])
	require.Equal(t, "ended 2026-02-01T02:00:00.000Z done after 0s, attempt 1", lines[len(lines)-1])
}
