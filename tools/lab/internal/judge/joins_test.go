package judge

import (
	"slices"
	"testing"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
)

// micros is a second in microseconds.
const micros = 1_000_000

// structures are a batch with a callback, a flow of two nodes, and a parent, all without violations.
func structures() *history.Structures {
	return &history.Structures{
		Jobs: []history.Part{
			{Job: 1, Type: history.Callback, Status: "done", Started: 30 * micros, Ended: 31 * micros, Released: 1},
			{Job: 2, Parent: 1, Type: history.Member, Status: "done", Started: 10 * micros, Ended: 11 * micros},
			{Job: 3, Parent: 1, Type: history.Member, Status: "failed", Started: 12 * micros, Ended: 20 * micros},
			{Job: 11, Parent: 10, Type: history.Node, Status: "done", Started: 10 * micros, Ended: 11 * micros},
			{Job: 12, Parent: 10, Type: history.Node, Status: "done", Started: 13 * micros, Ended: 14 * micros, Released: 1},
			{Job: 13, Parent: 10, Type: history.Node, Status: "cancelled", By: "flow", Ended: 12 * micros},
			{Job: 20, Type: history.Parent, Status: "done", Started: 10 * micros, Ended: 15 * micros},
			{Job: 21, Parent: 20, Type: history.Child, Status: "cancelled", By: "parent", Started: 14 * micros, Ended: 16 * micros},
			{Job: 22, Parent: 20, Type: history.Child, Status: "cancelled", By: "parent", Ended: 16 * micros},
		},
		Joins: []history.Join{
			{ID: 1, Kind: "batch", Callback: true, When: "ended", Fired: 29 * micros, Done: 1, Failed: 1},
			{ID: 10, Kind: "flow", When: "done", Fired: 15 * micros, Done: 2, Stopped: 1},
			{ID: 11, Kind: "node", When: "done"},
			{ID: 12, Kind: "node", When: "done", DependsOn: []int64{11}, Fired: 12 * micros, Done: 1},
			{ID: 13, Kind: "node", When: "failed", DependsOn: []int64{11}, Fired: 12 * micros, Done: 1},
			{ID: 20, Kind: "children", When: "done", Fired: 17 * micros, Stopped: 2},
		},
	}
}

// steady adds jobs that start every half second, so that there is no pause.
func steady(h *history.Structures) {
	for i := range int64(60) {
		h.Jobs = append(h.Jobs,
			history.Part{Job: 100 + i, Type: history.Parent, Status: "done", Started: 5*micros + i*micros/2, Ended: 40 * micros})
	}
}

func joined(h *history.Structures) [4]int {
	r := &Report{}
	r.Joins(h)
	return [4]int{r.JoinedEarly, r.JoinedLost, r.JoinedTwice, r.Orphans}
}

func TestCorrectStructuresPass(t *testing.T) {
	if got := joined(structures()); got != [4]int{} {
		t.Error(got)
	}
}

// Every violation is found, and under its own figure: early, lost, twice, orphans.
func TestEveryViolationOfStructuresIsReported(t *testing.T) {
	type h = history.Structures
	for _, c := range []struct {
		name  string
		want  [4]int
		spoil func(*h)
	}{
		{"a callback starts before the end of a member", [4]int{1}, func(h *h) { h.Jobs[0].Started = 19 * micros }},
		{"a batch fires before the end of a member", [4]int{1}, func(h *h) { h.Joins[0].Fired = 19 * micros }},
		{"a batch fires before a member that runs", [4]int{1, 1, 1}, func(h *h) { h.Jobs[2].Status, h.Jobs[2].Ended = "running", 0 }},
		{"a node starts before the end of its dependency", [4]int{1}, func(h *h) { h.Jobs[4].Started = 10 * micros }},
		{"a callback runs against its rule", [4]int{1}, func(h *h) { h.Joins[0].When = "done" }},
		{"a handler of failures runs without a failure", [4]int{1}, func(h *h) { h.Joins[3].When = "failed" }},
		{"a batch does not fire", [4]int{0, 1}, func(h *h) { h.Joins[0].Fired = 0 }},
		{"a node waits for ever", [4]int{0, 3}, func(h *h) {
			h.Jobs[4].Status, h.Jobs[4].Started, h.Jobs[4].Ended, h.Joins[3].Fired, h.Joins[1].Fired = "waiting", 0, 0, 0, 0
		}},
		{"a callback has no row", [4]int{0, 1}, func(h *h) { h.Jobs[0] = h.Jobs[1]; h.Jobs = h.Jobs[1:] }},
		{"a dependency has no row", [4]int{0, 1, 1}, func(h *h) { h.Joins[3].DependsOn = []int64{99} }},
		{"a node is cancelled although it should run", [4]int{0, 1}, func(h *h) { h.Joins[4].When = "ended" }},
		{"a callback fails without a run", [4]int{0, 1}, func(h *h) { h.Jobs[0].Status, h.Jobs[0].Started = "failed", 0 }},
		{"a user cancels a callback", [4]int{}, func(h *h) { h.Jobs[0].Status, h.Jobs[0].By, h.Jobs[0].Started = "cancelled", "ops", 0 }},
		{"a user cancels a batch", [4]int{}, func(h *h) {
			h.Jobs[0].Status, h.Jobs[0].By, h.Jobs[0].Started, h.Jobs[0].Ended, h.Joins[0].Cancelled = "cancelled", "flow", 0, 5*micros, true
		}},
		{"a callback is released twice", [4]int{0, 0, 1}, func(h *h) { h.Jobs[0].Released = 2 }},
		{"a callback has two rows", [4]int{0, 0, 1}, func(h *h) { h.Jobs = append(h.Jobs, h.Jobs[0]) }},
		{"an end is counted twice", [4]int{0, 0, 1}, func(h *h) { h.Joins[0].Done = 2 }},
		{"an end is not counted", [4]int{0, 0, 1}, func(h *h) { h.Joins[3].Done = 0 }},
		{"a child runs on", [4]int{0, 0, 0, 1}, func(h *h) { h.Jobs[7].Ended, h.Joins[5].Fired = 47*micros, 48*micros }},
		{"a child runs on while no job starts", [4]int{}, func(h *h) {
			h.Jobs[7].Ended, h.Joins[5].Fired = 47*micros, 48*micros
			h.Jobs = slices.DeleteFunc(h.Jobs, func(p history.Part) bool { return p.Started > 16*micros && p.Started < 20*micros })
		}},
		{
			"a child starts later", [4]int{0, 0, 0, 1},
			func(h *h) { h.Jobs[8].Started, h.Jobs[8].Ended, h.Joins[5].Fired = 26*micros, 27*micros, 28*micros },
		},
		{"a child never ends", [4]int{1, 1, 1, 1}, func(h *h) { h.Jobs[8].Status, h.Jobs[8].Ended = "pending", 0 }},
		{"a child of a parent that runs", [4]int{0, 2}, func(h *h) { h.Jobs[6].Ended, h.Jobs[6].Status, h.Joins[5].Fired = 0, "running", 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			spoilt := structures()
			steady(spoilt)
			c.spoil(spoilt)
			if got := joined(spoilt); got != c.want {
				t.Errorf("early, lost, twice, orphans are %v, want %v", got, c.want)
			}
		})
	}
}
