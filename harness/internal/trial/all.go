package trial

import (
	"context"
	"time"
)

// All returns the experiments in the order in which they run.
func All() []*Trial {
	return []*Trial{
		&workerKill, &dispatcherKill, &takeover, &takeoverPair, &allFaults, &partition, &workerNetwork, &lostAnswers, &stoppedDispatcher, &stoppedWorker,
		&readOnly, &fullDisk, &terminated, &failover, &outages, &notifyOff, &blind, &poison, &rolling,
		&callers, &manyDispatchers, &halfOpen, &bounds, &databaseClock, &clockAhead, &restore, &clockJumps,
		&rowLocks, &unreadableRows, &largeBatches, &operatorUpdates, &connectionFlood, &queueFlood, &ticks, &keys, &flows,
	}
}

// Smoke returns the trials that are short enough to run for every change: less than
// a minute.
func Smoke() []*Trial { return []*Trial{&smoke} }

// SmokeControls returns the controls that run together with Smoke.
func SmokeControls() []*Control {
	for _, c := range Controls() {
		if c.Trial.Name == "status-out" {
			return []*Control{c}
		}
	}
	return nil
}

// smoke is the shortest form of the all-faults trial. Postgres stops every 5 s.
var smoke = Trial{
	Name:    "smoke",
	About:   "all faults for ten seconds: kill -9 of a dispatcher every second, of a worker every 200 ms, Postgres down every 5 s",
	Setup:   allFaults.Setup,
	Jobs:    [3]int{4000, 4000, 4000},
	Least:   [3]time.Duration{10 * time.Second, 10 * time.Second, 10 * time.Second},
	Trouble: func(ctx context.Context, s *Scene) error { return s.allFaults(ctx, 5*time.Second) },
	Verify:  allFaults.Verify,
}
