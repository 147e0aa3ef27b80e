package trial

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

var notifyOff = Trial{
	Name:   "notify-off",
	About:  "no LISTEN: only scans find jobs",
	Setup:  stage.Setup{Daemons: 2, Workers: 2, Flags: []string{"--listen=false"}, Offers: offers, Mix: plain, Types: types, Rate: 500},
	Jobs:   [3]int{1000, 3000, 50_000},
	Least:  [3]time.Duration{3 * time.Second, 5 * time.Second, time.Minute},
	Verify: pickedUpWithin(300 * time.Millisecond), // a scan every 200 ms, and the delay of a busy machine
}

var blind = Trial{
	Name:   "poll-off",
	About:  "a scan of the table once an hour: only NOTIFY announces jobs",
	Setup:  stage.Setup{Daemons: 2, Workers: 2, Flags: []string{"--poll", "1h"}, Offers: offers, Mix: plain, Types: types, Rate: 500},
	Jobs:   [3]int{1000, 3000, 50_000},
	Least:  [3]time.Duration{3 * time.Second, 5 * time.Second, time.Minute},
	Verify: pickedUpWithin(250 * time.Millisecond),
}

// pickedUpWithin is for trials in which some slot is always free. For 99 of 100
// jobs it bounds the time from the commit to the start.
func pickedUpWithin(limit time.Duration) func(*Scene, *history.History, *judge.Report) []string {
	return func(s *Scene, h *history.History, r *judge.Report) []string {
		waits := judge.Pickups(h, nil)
		s.Note("pickup_p50", waits.At(0.5))
		s.Note("pickup_p99", waits.At(0.99))
		s.Note("pickup_max", waits.At(1))
		failures := untroubled(s, h, r)
		if p99 := waits.At(0.99); p99 > limit {
			failures = append(failures, fmt.Sprintf("p99 from the commit to the start is %v, want at most %v", round(p99), limit))
		}
		return failures
	}
}

// untroubled is for trials in which no process dies.
func untroubled(_ *Scene, _ *history.History, r *judge.Report) (failures []string) {
	if r.Crashes > 0 {
		failures = append(failures, fmt.Sprintf("%d crashes were counted and nothing has crashed", r.Crashes))
	}
	if r.Failures > 0 {
		failures = append(failures, fmt.Sprintf("%d failures were counted and no job has failed", r.Failures))
	}
	return failures
}

var rolling = Trial{
	Name:  "rolling",
	About: "SIGTERM to one dispatcher after the other, again and again: no crash, no failure, no job twice",
	Setup: stage.Setup{Daemons: 2, Workers: 3, Flags: []string{"--grace", "10s"}, Offers: offers, Mix: plain, Types: types},
	Jobs:  [3]int{2000, 20_000, 200_000},
	Least: [3]time.Duration{8 * time.Second, 25 * time.Second, 3 * time.Minute},
	Trouble: func(ctx context.Context, s *Scene) error {
		restarts := 0
		for ; ctx.Err() == nil; restarts++ {
			d := s.Daemons[restarts%len(s.Daemons)]
			from := history.Now()
			<-d.Signal(syscall.SIGTERM)
			if err := d.AwaitReady(context.WithoutCancel(ctx), 30*time.Second); err != nil {
				return err
			}
			s.rest(ctx, 500*time.Millisecond)
			s.kept(d.Name, from)
		}
		s.Note("restarts", restarts)
		return nil
	},
	Verify: untroubled,
}

// withPoison returns plain jobs and a few that kill their worker.
func withPoison(n int64) history.Work {
	w := plain(n)
	if n%500 == 17 {
		w.Do, w.Ms = history.Die, 0
	}
	return w
}

// maxCrashes is the daemon's default of --max-crashes.
const maxCrashes = 3

var poison = Trial{
	Name: "poison",
	About: "a few jobs kill every worker that runs them: each is quarantined after three crashes, or a few more if it ran " +
		"together with others; its errors are recorded, and the other jobs continue",
	// If a process runs several jobs and one of them kills it, all of them crash.
	// The harmless ones must not be quarantined.
	Setup: stage.Setup{Daemons: 2, Workers: 5, Offers: []stage.Offer{{Slots: 8, Types: types}}, Mix: withPoison, Types: types, Rate: 300},
	Jobs:  [3]int{1000, 2000, 20_000},
	Least: [3]time.Duration{3 * time.Second, 6 * time.Second, time.Minute},
	Verify: func(s *Scene, h *history.History, _ *judge.Report) (failures []string) {
		quarantined := 0
		for i := range h.Rows {
			row := &h.Rows[i]
			if w := withPoison(row.N); w.Do != history.Die {
				if row.Status != "done" {
					failures = append(failures, fmt.Sprintf("harmless job %d is %s after %d crashes", row.Job, row.Status, row.Crashes))
				}
				continue
			}
			quarantined++
			if row.Status != "failed" || row.Crashes < maxCrashes || len(row.Errors) < maxCrashes || row.Failures != 0 {
				failures = append(failures, fmt.Sprintf("poison job %d is %s after %d crashes and %d failures, with %d recorded errors",
					row.Job, row.Status, row.Crashes, row.Failures, len(row.Errors)))
			}
		}
		s.Note("quarantined", quarantined)
		return failures
	},
}
