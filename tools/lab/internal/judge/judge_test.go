package judge

import (
	"slices"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
)

const second = int64(1e9)

// clean is a history without violations. Job 1 is done by its second attempt, after
// the worker of the first one was killed. Job 2 is refused.
func clean() *history.History {
	return &history.History{
		Batches: []history.Batch{
			{Jobs: []history.Work{{N: 11, Type: "pdf"}, {N: 12, Type: "pdf", Do: history.Refuse}}, Begun: 1 * second, Ended: 2 * second},
			{Jobs: []history.Work{{N: 13, Type: "pdf"}}, Begun: 1 * second, Ended: 2 * second, Fate: history.RolledBack},
			{Jobs: []history.Work{{N: 14, Type: "pdf"}, {N: 15, Type: "pdf"}}, Begun: 1 * second, Ended: 2 * second, Fate: history.Unknown},
		},
		Processes: []history.Process{
			{Name: "w0", Died: 5 * second, Killed: 4 * second, Offers: map[int32][]string{0: {"pdf"}}, Runs: []history.Execution{
				{Job: 1, Attempt: 1, Type: "pdf", N: 11, Start: 3 * second},
			}},
			{Name: "w1", Offers: map[int32][]string{0: {"excel", "pdf"}}, Runs: []history.Execution{
				{Job: 1, Attempt: 2, Type: "pdf", N: 11, Start: 7 * second, End: 8 * second, Outcome: history.OK},
				{Job: 2, Attempt: 1, Type: "pdf", N: 12, Start: 9 * second, End: 10 * second, Outcome: history.Refused},
			}},
		},
		Changes: []history.Change{
			{At: 1 * second, Job: 1, Kind: history.Inserted, Type: "pdf"},
			{At: 1 * second, Job: 2, Kind: history.Inserted, Type: "pdf"},
			{At: 2 * second, Job: 1, Kind: history.Claimed, Attempt: 1, Dispatcher: 1},
			{At: 6 * second, Job: 1, Kind: history.Back, Attempt: 1, Dispatcher: 1},
			{At: 6 * second, Kind: history.Lost, Dispatcher: 1},
			{At: 6 * second, Job: 1, Kind: history.Claimed, Attempt: 2, Dispatcher: 2},
			{At: 9 * second, Job: 1, Kind: history.Ended, Attempt: 2, Dispatcher: 2},
			{At: 9 * second, Job: 2, Kind: history.Claimed, Attempt: 1, Dispatcher: 2},
			{At: 11 * second, Job: 2, Kind: history.Ended, Attempt: 1, Dispatcher: 2},
		},
		Rows: []history.Row{
			{Job: 1, N: 11, Type: "pdf", Status: "done", Attempt: 2, Crashes: 1, Result: &history.Result{N: 11, Attempt: 2}},
			{
				Job:      2,
				N:        12,
				Type:     "pdf",
				Status:   "failed",
				Attempt:  1,
				Failures: 1,
				Errors:   []history.BadEnd{{Attempt: 1, Error: history.PlannedError(1)}},
			},
		},
	}
}

func TestCorrectHistoryPasses(t *testing.T) {
	r := Judge(clean())
	if r.Violations() != 0 || r.Jobs != 2 || r.Executions != 3 || r.Twice != 0 || r.Unknown != 1 || r.Crashes != 1 || r.Failures != 1 {
		t.Errorf("%+v", r)
	}
}

// Every violation is reported, and under its own figure.
func TestEveryViolationIsReported(t *testing.T) {
	type h = history.History
	for _, c := range []struct {
		name  string
		count func(*Report) int
		spoil func(*h)
	}{
		{"a committed job has no row", lost, func(h *h) { h.Rows = h.Rows[:1] }},
		{"a job waits for ever", lost, func(h *h) { h.Rows[0].Status = "pending" }},
		{
			"a job that was rolled back has a row", unexpected,
			func(h *h) { h.Rows = append(h.Rows, history.Row{Job: 3, N: 13, Type: "pdf", Status: "done"}) },
		},
		{"a job without a producer", unexpected, func(h *h) { h.Rows = append(h.Rows, history.Row{Job: 4, N: 99, Type: "pdf", Status: "done"}) }},
		{
			"a part of a transaction", unexpected,
			func(h *h) { h.Rows = append(h.Rows, history.Row{Job: 5, N: 14, Type: "pdf", Status: "pending"}) },
		},
		{"two rows of one job", unexpected, func(h *h) { h.Rows = append(h.Rows, h.Rows[0]) }},
		{"an execution without a row", unexpected, func(h *h) { h.Processes[1].Runs[0].Job = 77 }},
		{"another job's payload", unexpected, func(h *h) { h.Processes[1].Runs[0].N = 12 }},
		{"another job's result", unexpected, func(h *h) { h.Rows[0].Result.N = 12 }},
		{"another status than the payload demands", unexpected, func(h *h) { h.Rows[0].Status, h.Rows[0].Result = "failed", nil }},
		{"another type", unexpected, func(h *h) { h.Rows[0].Type = "excel" }},
		{"the result of an earlier attempt", stale, func(h *h) { h.Rows[0].Result.Attempt = 1 }},
		{"the failure of an earlier attempt", stale, func(h *h) { h.Rows[1].Errors[0].Attempt = 2 }},
		{"an end by an earlier attempt", stale, func(h *h) { h.Rows[0].Attempt, h.Rows[0].Result.Attempt = 1, 1 }},
		{"an end that no worker reported", stale, func(h *h) { h.Processes[1].Runs[0].Outcome = history.Failed }},
		{"an end before the end of the execution", stale, func(h *h) { h.Processes[1].Runs[0].End = 10 * second }},
		{"a type that the operator changed before the claim", unexpected, func(h *h) {
			h.Changes = slices.Insert(h.Changes, 2, history.Change{At: 2 * second, Job: 2, Kind: history.Updated, Type: "excel"})
			h.Rows[1].Type = "excel"
		}},
		{"a slot that did not offer the type of the row", affinity, func(h *h) {
			h.Changes = slices.Insert(h.Changes, 2, history.Change{At: 2 * second, Job: 1, Kind: history.Updated, Type: "excel"})
			h.Rows[0].Type = "excel"
		}},
		{"a damaged job without a reason", unexpected, func(h *h) { h.Rows[0].Status, h.Rows[0].Damaged = "failed", true }},
		{"a slot that did not offer the type", affinity, func(h *h) { h.Processes[1].Offers[0] = []string{"excel"} }},
		{"a slot that was never offered", affinity, func(h *h) { h.Processes[1].Runs[1].Slot = 5 }},
		{"two jobs on one slot", overlaps, func(h *h) { h.Processes[1].Runs[0].End = 9*second + second/2 }},
		{"a claim of a running job", illegal, func(h *h) { h.Changes = slices.Delete(h.Changes, 3, 4) }},
		{"a claim that skips an attempt", illegal, func(h *h) { h.Changes[5].Attempt = 3 }},
		{"an end of a waiting job", illegal, func(h *h) { h.Changes = slices.Delete(h.Changes, 5, 6) }},
		{"a second end", illegal, func(h *h) { h.Changes = append(h.Changes, h.Changes[6]) }},
		{"a claim by a dispatcher that is lost", illegal, func(h *h) { h.Changes[5].Dispatcher = 1 }},
		{"an end by a former dispatcher", illegal, func(h *h) { h.Changes[6].Dispatcher = 1 }},
		{"an unknown transition", illegal, func(h *h) { h.Changes[3].Kind = history.Illegal }},
		{"a start before the claim", disorder, func(h *h) { h.Processes[1].Runs[0].Start = 5 * second }},
		{"a claim before the insert", disorder, func(h *h) { h.Batches[0].Begun, h.Batches[0].Ended = 4*second, 5*second }},
		{"a start of an attempt that was not claimed", disorder, func(h *h) { h.Processes[0].Runs[0].Attempt = 3 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			spoilt := clean()
			c.spoil(spoilt)
			if r := Judge(spoilt); c.count(r) == 0 || len(r.Findings) == 0 {
				t.Errorf("not found: %+v", r)
			}
		})
	}
}

func lost(r *Report) int       { return r.Lost }
func unexpected(r *Report) int { return r.Unexpected }
func stale(r *Report) int      { return r.Stale }
func affinity(r *Report) int   { return r.Affinity }
func overlaps(r *Report) int   { return r.Overlaps }
func illegal(r *Report) int    { return r.Illegal }
func disorder(r *Report) int   { return r.Disorder }

func TestAdoptedAttemptContinues(t *testing.T) {
	h := clean()
	h.Changes = slices.Insert(h.Changes, 6, history.Change{At: 8 * second, Job: 1, Kind: history.Adopted, Attempt: 2, Dispatcher: 3})
	h.Changes[7].Dispatcher = 3 // its dispatcher after the adoption
	if r := Judge(h); r.Violations() != 0 {
		t.Errorf("%+v", r)
	}
}

func TestLostDispatcherMayEndUnreleasedJob(t *testing.T) {
	h := clean()
	h.Changes = slices.Insert(h.Changes, 6, history.Change{At: 8 * second, Kind: history.Lost, Dispatcher: 2})
	h.Changes = slices.Delete(h.Changes, 8, 10) // removes the other job's claim and end by dispatcher 2
	h.Changes = append(h.Changes, history.Change{At: 9 * second, Job: 2, Kind: history.Claimed, Attempt: 1, Dispatcher: 3},
		history.Change{At: 11 * second, Job: 2, Kind: history.Ended, Attempt: 1, Dispatcher: 3})
	if r := Judge(h); r.Violations() != 0 {
		t.Errorf("%+v", r)
	}
}

func TestOperatorMayChangeTheTypeOfARunningRow(t *testing.T) {
	h := clean()
	h.Changes = slices.Insert(h.Changes, 6, history.Change{At: 7 * second, Job: 1, Kind: history.Updated, Attempt: 2, Type: "excel"})
	h.Rows[0].Type = "excel"
	if r := Judge(h); r.Violations() != 0 {
		t.Errorf("%+v", r)
	}
}

func TestDamagedJobMayFailOrBeDoneWithAReason(t *testing.T) {
	for _, status := range []string{"done", "failed"} {
		h := clean()
		h.Rows[0].Status, h.Rows[0].Result, h.Rows[0].Damaged = status, nil, true
		h.Rows[0].Errors = []history.BadEnd{{Attempt: 2, Error: "the payload cannot be read"}}
		if r := Judge(h); r.Violations() != 0 {
			t.Errorf("%s: %+v", status, r)
		}
	}
}

func TestCommitWithoutAnswerMayHaveHappened(t *testing.T) {
	h := clean()
	for _, n := range []int64{14, 15} {
		id := n - 10
		h.Rows = append(h.Rows, history.Row{Job: id, N: n, Type: "pdf", Status: "done", Attempt: 1, Result: &history.Result{N: n, Attempt: 1}})
		h.Changes = append(h.Changes, history.Change{At: 20 * second, Job: id, Kind: history.Claimed, Attempt: 1},
			history.Change{At: 23 * second, Job: id, Kind: history.Ended, Attempt: 1})
		h.Processes[1].Runs = append(h.Processes[1].Runs, history.Execution{
			Job: id, Attempt: 1, Type: "pdf", N: n, Slot: 0, Start: (20 + n - 13) * second, End: (20+n-13)*second + second/2, Outcome: history.OK,
		})
	}
	if r := Judge(h); r.Violations() != 0 || r.Jobs != 4 {
		t.Errorf("%+v", r)
	}
}

func TestExecutionsAtTheSameTimeAreCounted(t *testing.T) {
	h := clean()
	h.Processes[0].Died, h.Processes[0].Killed = 0, 0
	if r := Judge(h); r.Twice != 1 || r.Violations() != 0 {
		t.Errorf("%+v", r)
	}
}

func TestWaitsAreMeasuredFromTheKill(t *testing.T) {
	h := clean()
	if got := AfterKills(h); len(got) != 1 || int64(got[0]) != 3*second {
		t.Errorf("after the kill of the worker: %v, want 3s", got)
	}
	if got := AfterLosses(h, map[int32]int64{1: 5 * second}); len(got) != 1 || int64(got[0]) != 2*second {
		t.Errorf("after the kill of the dispatcher: %v, want 2s", got)
	}
	if got := AfterLosses(h, nil); len(got) != 0 {
		t.Errorf("no process was killed: %v", got)
	}
	if got := Pickups(h, nil); len(got) != 2 || int64(got[0]) != 1*second || int64(got[1]) != 7*second {
		t.Errorf("from the commit to the start: %v, want 1s and 7s", got)
	}
	job2 := func(e *history.Execution) bool { return e.Job == 2 }
	if got := Pickups(h, job2); len(got) != 1 || int64(got[0]) != 7*second {
		t.Errorf("from the commit to the start of job 2: %v, want 7s", got)
	}
	got := Recordings(h, job2)
	if len(got) != 1 || int64(got[0]) != 1*second {
		t.Errorf("from the end to the record of job 2: %v, want 1s", got)
	}
	r := &Report{}
	r.FindDelayed(got, time.Second)
	r.FindDelayed(got, time.Second-1)
	if r.Delayed != 1 {
		t.Errorf("%d waits were late, want 1", r.Delayed)
	}
	sorted := Waits{1, 2, 3, 4}
	if sorted.At(0.5) != 3 || sorted.At(1) != 4 || (Waits)(nil).At(0.5) != 0 {
		t.Error("quantiles are wrong")
	}
}
