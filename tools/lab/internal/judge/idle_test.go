package judge

import (
	"slices"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
)

// waiting is a history in which job 1 waits from second 10 to second 30, while
// worker w0 of dispatcher a offers its type and is idle.
func waiting() *history.History {
	return &history.History{
		Processes: []history.Process{{
			Name: "w0.0", Keeper: "w0", Daemon: "a", Began: 1 * second, Offers: map[int32][]string{0: {"pdf"}},
			Runs: []history.Execution{
				{Job: 9, Attempt: 1, Type: "pdf", Start: 2 * second, End: 3 * second, Outcome: history.OK},
				{Job: 1, Attempt: 1, Type: "pdf", Start: 30 * second, End: 31 * second, Outcome: history.OK},
			},
		}},
		Changes: []history.Change{
			{At: 10 * second, Due: 10 * second, Job: 1, Kind: history.Inserted},
			{At: 30 * second, Job: 1, Kind: history.Claimed, Attempt: 1, Dispatcher: 1},
		},
		Rows: []history.Row{{Job: 1, Type: "pdf", Status: "done", Attempt: 1}},
		Over: 40 * second,
	}
}

// change returns the changes with an update of the type of job 1 at a second.
func change(h *history.History, at int64, typ string) []history.Change {
	return slices.Insert(h.Changes, 1, history.Change{At: at * second, Due: at * second, Job: 1, Kind: history.Updated, Type: typ})
}

func TestJobThatWaitsWhileACompatibleSlotIsIdleIsStuck(t *testing.T) {
	const bound = 15 * time.Second
	for _, c := range []struct {
		name  string
		want  int
		spoil func(h *history.History)
	}{
		{"idle all the time", 1, func(*history.History) {}},
		{"waits for ever", 1, func(h *history.History) { h.Changes, h.Rows[0].Status = h.Changes[:1], "pending" }},
		{"waits after a release", 1, func(h *history.History) { h.Changes[0].Kind = history.Back }},
		{"fault of another worker", 1, func(h *history.History) {
			h.Troubles = []history.Trouble{{From: 10 * second, To: 30 * second, Who: "w1"}}
		}},
		{"an operator changed its type before", 1, func(h *history.History) { h.Changes = change(h, 11, "pdf") }},
		{"an operator changed its type meanwhile", 0, func(h *history.History) { h.Changes = change(h, 20, "pdf") }},
		{"an operator changed its type to another one", 0, func(h *history.History) { h.Changes = change(h, 11, "excel") }},
		{"not due earlier", 0, func(h *history.History) { h.Changes[0].Due = 20 * second }},
		{"it waits for its permits", 0, func(h *history.History) { h.Rows[0].Keys = "k" }},
		{"of another type", 0, func(h *history.History) { h.Processes[0].Offers[0] = []string{"excel"} }},
		{"the slot was busy in between", 0, func(h *history.History) {
			h.Processes[0].Runs[0].Start, h.Processes[0].Runs[0].End = 18*second, 20*second
		}},
		{"the slot was never free again", 0, func(h *history.History) { h.Processes[0].Runs[0].End = 0 }},
		{"the worker was killed", 0, func(h *history.History) { h.Processes[0].Killed = 20 * second }},
		{"the worker started later", 0, func(h *history.History) {
			h.Processes[0].Began, h.Processes[0].Runs = 20*second, h.Processes[0].Runs[1:]
		}},
		{"fault of its dispatcher", 0, func(h *history.History) {
			h.Troubles = []history.Trouble{{From: 18 * second, To: 20 * second, Who: "a"}}
		}},
		{"fault of all processes", 0, func(h *history.History) { h.Troubles = []history.Trouble{{From: 0, To: 28 * second}} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := waiting()
			c.spoil(h)
			r := &Report{}
			if r.FindStuck(h, bound); r.Stuck != c.want || r.Violations() != c.want {
				t.Errorf("%d, want %d", r.Stuck, c.want)
			}
		})
	}
	r := &Report{}
	if r.FindStuck(waiting(), 25*time.Second); r.Stuck != 0 {
		t.Errorf("within the bound: %d", r.Stuck)
	}
}

func TestStartAfterTheEndOfItsAttemptIsLate(t *testing.T) {
	h := clean()
	h.Processes[1].Runs[0].Attempt = 1
	if r := Judge(h); r.Late != 1 {
		t.Errorf("%+v", r)
	}
	if r := Judge(clean()); r.Late != 0 {
		t.Errorf("%+v", r)
	}
}
