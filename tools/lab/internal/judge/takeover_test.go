package judge

import (
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
)

func TestStartsAfterCountsOnlyTheWorkersOfTheDispatcher(t *testing.T) {
	run := func(at int64) history.Execution { return history.Execution{Start: at} }
	h := &history.History{Processes: []history.Process{
		{Daemon: "a", Runs: []history.Execution{run(90), run(250)}},
		{Daemon: "a", Runs: []history.Execution{run(130)}},
		{Daemon: "b", Runs: []history.Execution{run(101), run(900)}},
	}}
	waits, missing := StartsAfter(h, "a", []int64{100, 200, 300})
	if len(waits) != 2 || waits[0] != 30*time.Nanosecond || waits[1] != 50*time.Nanosecond || missing != 1 {
		t.Errorf("got %v and %d missing", waits, missing)
	}
}
