package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
)

// The tests of this file are named after faults of other job queues, with the
// numbers of docs/explanation/reliability-peers.md. Each test runs worlds with that fault
// alone, under all checks.

// sized returns how many of n worlds a test runs: all, or a quarter in a short run.
func sized(n int) uint64 {
	if testing.Short() {
		n = (n + 3) / 4
	}
	return uint64(n)
}

// runWorlds runs worlds that have all of the given faults.
func runWorlds(t *testing.T, faults Faults, worlds int, change func(*world)) Stats {
	t.Helper()
	var sum Stats
	for seed := range uint64(worlds) {
		sum.Add(runWorld(t, Options{Seed: 7_000 + seed, Faults: faults, Every: true, Steps: 20_000}, change))
	}
	require.Equal(t, sum.Jobs, sum.Done+sum.Failed+sum.Cancelled)
	return sum
}

// runWorld runs one world that change may change first.
func runWorld(t *testing.T, o Options, change func(*world)) Stats {
	t.Helper()
	w := newWorld(o)
	if change != nil {
		change(w)
	}
	r := w.run()
	require.Nil(t, r.Violation, "seed %d: %v", o.Seed, r.Violation)
	return r.Stats
}

// In other queues, a recovery that compares only the id overwrites a job that
// ends between the read and the write of the recovery. Here a heartbeat
// releases the jobs of a lost dispatcher while late finishes of that dispatcher
// arrive for the same rows. One of the two changes nothing.
func TestPeer_B01_ReleaseRacesWithCompletion(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, Stop|Slow, 12, func(w *world) { w.scale.faultGap = second / 10 })
	require.Positive(t, s.TakenOver)
	require.Positive(t, s.Stale, "no late finish concerned a released row")
}

// After any crash at any point every job ends. No row stays running without an
// owner.
func TestPeer_B02_NoJobStaysRunningForever(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, Crash|Kill, 12, func(w *world) { w.scale.faultGap = second / 20 })
	require.Positive(t, s.Crashes)
	require.Positive(t, s.Kills)
	require.Positive(t, s.TakenOver)
}

// The lease decides, not the age: a job that runs longer than a lease, under a
// dispatcher that sends heartbeats, is never taken from it.
func TestPeer_B04_B12_LongJobOfLiveDispatcherIsNotReleased(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, Nothing, 4, func(w *world) {
		w.scale.jobMin, w.scale.jobMax = 3*w.scale.lease, 6*w.scale.lease
		w.scale.insertGap, w.scale.callGap = second, second
		w.opt.Steps = 3_000
	})
	require.Positive(t, s.Executions)
	require.Zero(t, s.TakenOver)
	require.Zero(t, s.Overlaps)
	require.Zero(t, s.Stale)
}

// A dispatcher that was suspended beyond its lease believes that it still holds
// it. Its statements then change nothing, and it joins as a new run.
func TestPeer_B05_B17_B18_SuspendedDispatcherLosesItsLease(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, Stop, 12, func(w *world) { w.scale.faultGap = second / 10 })
	require.Positive(t, s.Stops)
	require.Positive(t, s.Rejoined)
	require.Positive(t, s.TakenOver)
}

// The heartbeats of a process do not renew the lease of its dead predecessor.
func TestPeer_B13_NewProcessDoesNotRenewJobsOfItsPredecessor(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, Crash, 12, nil)
	require.Positive(t, s.Crashes)
	require.Positive(t, s.TakenOver)
}

// A silent worker is disconnected. Its late answers free no slot twice and end
// no attempt twice.
func TestPeer_B16_LateAnswerOfSilentWorkerIsStale(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, Suspend, 12, func(w *world) { w.scale.keepRunning = true })
	require.Positive(t, s.Suspensions)
	require.Positive(t, s.Overlaps, "no job was released while its worker was suspended")
}

// A crash on the last attempt releases the job like any other crash and is not
// counted as a failure.
func TestPeer_B19_B30_B40_CrashIsNotAFailedAttempt(t *testing.T) {
	t.Parallel()
	runWorlds(t, Kill|Crash, 8, func(w *world) {
		w.scale.failing, w.scale.crashes = 0, 1<<20
		w.scale.cancelGap, w.scale.limited = 10_000*second, 0
		w.judge.atEnd = func(r *claimfake.Row) {
			if r.Status == dispatcherd.Failed || r.Failures > 0 {
				w.violate("a job that no worker failed ended in status %s with %d failures", r.Status, r.Failures)
			}
		}
	})
}

// A job that crashes its workers is quarantined after the limit, or after ten
// further crashes beside other suspects if it never ran in isolation.
func TestPeer_B19_PoisonJobIsQuarantined(t *testing.T) {
	t.Parallel()
	quarantined := 0
	runWorlds(t, Kill, 8, func(w *world) {
		w.scale.failing, w.scale.crashes = 0, 1
		w.scale.faultGap = second / 50
		w.judge.atEnd = func(r *claimfake.Row) {
			if r.Status == dispatcherd.Failed {
				quarantined++
			}
			if r.Crashes > 11 { // ten of them beside other suspects
				w.violate("a job has %d crashes, the limit is 1 and 10 more beside other suspects", r.Crashes)
			}
		}
	})
	require.Positive(t, quarantined)
}

// Postgres is unavailable for a minute. No dispatcher exits or spins, and jobs
// run afterwards.
func TestPeer_B20_B34_B39_JobsRunAfterLongUnavailability(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		w := newWorld(Options{Seed: 7_100, Steps: 30_000, Dispatchers: 2})
		for w.now < 2*second {
			w.next()
		}
		before := w.stats.Answered
		w.postgres.down, w.postgres.cut = !cut, cut
		w.breakConnections()
		for start := w.now; w.now < start+60*second; {
			w.next()
		}
		require.Greater(t, w.stats.Answered, before, "requests need no Postgres")
		won := w.stats.Won
		w.postgres.down, w.postgres.cut, w.postgres.restored = false, false, w.now
		for start := w.now; w.now < start+10*second; {
			w.next()
		}
		require.Greater(t, w.stats.Won, won, "nothing was claimed in ten seconds after Postgres returned")
		r := w.run()
		require.Nil(t, r.Violation, "%v", r.Violation)
	}
}

// A listener that receives no notifications causes delay but loses no job.
func TestPeer_B21_LostNotificationsLoseNoJob(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, Notify|Late, 12, nil)
	require.Positive(t, s.LostNotifications)
}

// No combination of faults makes two statements wait for each other.
func TestPeer_B24_B27_NoDeadlock(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, Slow|Stop|Crash|Kill|Unknown, 200, func(w *world) { w.scale.cancelGap = second / 50 })
	require.Positive(t, s.LockWaits, "no statement waited for a lock")
}

// No crash between a claim and its send leaks a slot. The checks compare slots,
// index and counters during the run, and with the workers at the end.
func TestPeer_B25_B26_B33_NoSlotLeaks(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, Kill|Cut|Shuffle|Suspend|Restart, 12, func(w *world) { w.scale.faultGap = second / 50 })
	require.Positive(t, s.Kills)
	require.Positive(t, s.Cuts)
	require.Positive(t, s.Restarts)
}

// Status and owner are in one row, and the owner's lease decides.
func TestPeer_B28_RunningJobHasAnOwner(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, Crash|Unknown, 12, nil)
	require.Positive(t, s.TakenOver)
	require.Positive(t, s.Unknowns)
}

// A worker that was declared dead receives the end of its connection. Its later
// reports are stale.
func TestPeer_B31_B32_B37_RevokedAttemptIsStale(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, Stop|Suspend|Cut, 12, func(w *world) { w.scale.keepRunning = true })
	require.Positive(t, s.Overlaps)
}

// Rows that commit late lie before the cursor. They are found with and without
// polling.
func TestPeer_B35_LateCommitsAreFound(t *testing.T) {
	t.Parallel()
	runWorlds(t, Late, 12, nil)
	for seed := range uint64(12) {
		r := Run(Options{Seed: 7_200 + seed, NoPoll: true, Steps: 20_000})
		require.Nil(t, r.Violation, "seed %d: %v", 7_200+seed, r.Violation)
	}
}

// A commit without an answer is resolved by reading, also if a copy of the
// statement arrives seconds later.
func TestPeer_B36_UnknownCommitIsResolved(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, Unknown|Slow, 12, func(w *world) { w.scale.misreported = 0 })
	require.Zero(t, s.WrongStale, "a recorded result was reported as stale")
	require.Positive(t, s.Unknowns)
	require.Positive(t, s.LateStatement)
}
