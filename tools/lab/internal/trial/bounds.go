package trial

import (
	"context"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/fault"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// tight are flags with very low bounds, and tightCuts change the bounds that are
// constants.
var (
	tight     = []string{"--max-requests", "2"}
	tightCuts = []Cut{
		{
			"actor/config.go",
			"ClaimBatch:  1000,\n\t\t\tClaims:      4,\n\t\t\tFinishBatch: 1000,\n\t\t\tFinishes:    2,\n\t\t\tUnfinished:  20_000",
			"ClaimBatch: 4,\n\t\t\tClaims: 1,\n\t\t\tFinishBatch: 4,\n\t\t\tFinishes: 1,\n\t\t\tUnfinished: 8",
			1,
		},
		{"actor/config.go", "LaneLength:       4096,\n\t\t\tLanesPerFetch:    1024", "LaneLength: 16, LanesPerFetch: 2", 1},
		{"workerproto/limits.go", "setDefault(&l.Outbox, 1024)", "setDefault(&l.Outbox, 1)", 1},
		{"internal/daemon/config.go", "Connections: 6", "Connections: 1", 1},
	}
)

var bounds = Trial{
	Name: "bounds",
	About: "every bound is so low that it is reached all the time, Postgres is slow, and many callers send requests at the " +
		"same time: requests wait or get 429, and none is dropped",
	Setup: stage.Setup{Daemons: 2, Workers: 2, Flags: patientFlags(tight...), Offers: offers, Mix: usual, Types: types, Rate: 300},
	Cuts:  tightCuts,
	Jobs:  [3]int{1000, 3000, 30_000},
	Least: [3]time.Duration{5 * time.Second, 12 * time.Second, 2 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		for _, d := range s.Daemons {
			d.Database.Set(fault.Rules{Delay: 5 * time.Millisecond})
		}
		ended := make(chan struct{})
		const concurrentCallers = 24
		for i := range concurrentCallers {
			go func() {
				s.call(ctx, s.Daemons[i%len(s.Daemons)], history.InMemory)
				ended <- struct{}{}
			}()
		}
		for range concurrentCallers {
			<-ended
		}
		for _, d := range s.Daemons {
			d.Database.Set(fault.Rules{})
		}
		return nil
	},
	Verify: func(s *Scene, h *history.History, r *judge.Report) (failures []string) {
		most := 0
		for _, c := range s.Calls() {
			if c.Status == 429 {
				most++
			}
		}
		s.Note("calls", len(s.Calls()))
		s.Note("answered_429", most)
		if r.Crashes > 0 {
			failures = append(failures, fmt.Sprintf("%d crashes were counted and nothing has crashed", r.Crashes))
		}
		return append(failures, answered(s.Calls())...)
	},
}

// answered returns a failure for each call without an answer. It is for
// trials in which every dispatcher runs all the time.
func answered(calls []history.Call) (failures []string) {
	for _, c := range calls {
		if c.Status == 0 {
			failures = append(failures, fmt.Sprintf("the caller of %d was not answered by %s: %s", c.Work.N, c.Daemon, c.Problem))
		}
	}
	return failures
}
