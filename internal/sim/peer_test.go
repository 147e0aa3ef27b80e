package sim

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests of this file are named for faults that broke other job queues; the
// letter and number are those of docs/reliability-peers.md. Each runs worlds
// full of that fault and no other, and every world is held to all rules.

// through lives through worlds with the given faults, all of them in each.
func runWorlds(t *testing.T, faults Faults, worlds int, change func(*world)) Stats {
	t.Helper()
	var sum Stats
	for seed := range uint64(worlds) {
		o := Options{Seed: 7_000 + seed, Faults: faults, Every: true, Steps: 20_000}
		w := newWorld(o)
		if change != nil {
			change(w)
		}
		r := w.run()
		require.Nil(t, r.Violation, "seed %d: %v", o.Seed, r.Violation)
		sum.Add(r.Stats)
	}
	require.Equal(t, sum.Jobs, sum.Done+sum.Failed+sum.Cancelled)
	return sum
}

// A rescuer that looks at the id alone overwrites a job that completes between
// its look and its write. Here the release of a lost dispatcher's jobs and the
// late ends of that dispatcher meet on the same rows, and one of them loses.
func TestPeer_B01_ReleaseRacesWithCompletion(t *testing.T) {
	s := runWorlds(t, Stop|Slow, 12, func(w *world) { w.scale.faultGap = second / 10 })
	require.Positive(t, s.TakenOver)
	require.Positive(t, s.Stale, "no late end met a rescued row")
}

// No row keeps running for ever without an owner that somebody looks after:
// after any crash at any point everything ends.
func TestPeer_B02_NoJobStaysRunningForever(t *testing.T) {
	s := runWorlds(t, Crash|Kill, 12, func(w *world) { w.scale.faultGap = second / 20 })
	require.Positive(t, s.Crashes)
	require.Positive(t, s.Kills)
	require.Positive(t, s.TakenOver)
}

// Liveness decides, not age: a job that runs far longer than a lease, under a
// dispatcher that beats, is never taken from it.
func TestPeer_B04_B12_LongJobOfLiveDispatcherIsNotReleased(t *testing.T) {
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

// A dispatcher whose lease ran out while it stood still believes that it still
// has it. What it sends then changes nothing, and it joins as a new one.
func TestPeer_B05_B17_B18_SuspendedDispatcherLosesItsLease(t *testing.T) {
	s := runWorlds(t, Stop, 12, func(w *world) { w.scale.faultGap = second / 10 })
	require.Positive(t, s.Stops)
	require.Positive(t, s.Rejoined)
	require.Positive(t, s.TakenOver)
}

// A process that starts again in the place of a dead one does not keep the
// dead one's jobs alive with its heartbeats.
func TestPeer_B13_NewProcessDoesNotRenewJobsOfItsPredecessor(t *testing.T) {
	s := runWorlds(t, Crash, 12, nil)
	require.Positive(t, s.Crashes)
	require.Positive(t, s.TakenOver)
}

// A worker that is alive but silent is given up; what it answers later frees no
// slot twice and ends no attempt twice.
func TestPeer_B16_LateAnswerOfSilentWorkerIsStale(t *testing.T) {
	s := runWorlds(t, Suspend, 12, func(w *world) { w.scale.keepRunning = true })
	require.Positive(t, s.Suspensions)
	require.Positive(t, s.Overlaps, "no job was given away while its worker stood still")
}

// Crash on the last try ends the job like any crash: the queue goes on, and the
// try is not used up.
func TestPeer_B19_B30_B40_CrashIsNotAFailedAttempt(t *testing.T) {
	runWorlds(t, Kill|Crash, 8, func(w *world) {
		w.scale.failing, w.scale.crashes = 0, 1<<20
		w.scale.cancelGap, w.scale.limited = 10_000*second, 0
		w.judge.atEnd = func(r *row) {
			if r.status == failed || r.failures > 0 {
				w.violate("a job that no worker failed ended in status %d with %d failures", r.status, r.failures)
			}
		}
	})
}

// A poison job, which kills whoever runs it, is quarantined after its limit, or
// some deaths later if it never ran apart from others as suspect.
func TestPeer_B19_PoisonJobIsQuarantined(t *testing.T) {
	quarantined := 0
	runWorlds(t, Kill, 8, func(w *world) {
		w.scale.failing, w.scale.crashes = 0, 1
		w.scale.faultGap = second / 50
		w.judge.atEnd = func(r *row) {
			if r.status == failed {
				quarantined++
			}
			if r.crashes > 11 { // ten of them beside others that were as suspect
				w.violate("a job has %d crashes, the limit is 1 and 10 more in company", r.crashes)
			}
		}
	})
	require.Positive(t, quarantined)
}

// Postgres is away for a minute: nobody exits, nobody spins (the worlds check
// both), and work goes on afterwards.
func TestPeer_B20_B34_B39_JobsRunAfterLongUnavailability(t *testing.T) {
	for _, cut := range []bool{false, true} {
		w := newWorld(Options{Seed: 7_100, Steps: 30_000, Dispatchers: 2})
		for w.now < 2*second {
			w.next()
		}
		before := w.stats.Answered
		w.table.down, w.table.cut = !cut, cut
		w.breakConnections()
		for start := w.now; w.now < start+60*second; {
			w.next()
		}
		require.Greater(t, w.stats.Answered, before, "requests need no Postgres")
		won := w.stats.Won
		w.table.down, w.table.cut, w.table.restored = false, false, w.now
		for start := w.now; w.now < start+10*second; {
			w.next()
		}
		require.Greater(t, w.stats.Won, won, "ten seconds after the outage nothing has been claimed")
		r := w.run()
		require.Nil(t, r.Violation, "%v", r.Violation)
	}
}

// A listener that hears nothing, for a while or for ever, costs time and loses
// nothing.
func TestPeer_B21_LostNotificationsLoseNoJob(t *testing.T) {
	s := runWorlds(t, Notify|Late, 12, nil)
	require.Positive(t, s.LostNotifications)
}

// No two statements ever wait for each other, whatever meets.
func TestPeer_B24_B27_NoDeadlock(t *testing.T) {
	s := runWorlds(t, Slow|Stop|Crash|Kill|Unknown, 80, func(w *world) { w.scale.cancelGap = second / 50 })
	require.Positive(t, s.LockWaits, "nothing ever waited")
}

// Slots are conserved through every crash between a claim and its send: the
// worlds compare slots, index and counters all the way, and with the workers'
// own view at the end.
func TestPeer_B25_B26_B33_NoSlotLeaks(t *testing.T) {
	s := runWorlds(t, Kill|Cut|Shuffle|Suspend|Restart, 12, func(w *world) { w.scale.faultGap = second / 50 })
	require.Positive(t, s.Kills)
	require.Positive(t, s.Cuts)
	require.Positive(t, s.Restarts)
}

// State and lease are one row: what is running has an owner whose lease decides.
func TestPeer_B28_RunningJobHasAnOwner(t *testing.T) {
	s := runWorlds(t, Crash|Unknown, 12, nil)
	require.Positive(t, s.TakenOver)
	require.Positive(t, s.Unknowns)
}

// A worker that was given up is told so and its connection is closed; what it
// still does is in vain and does no harm.
func TestPeer_B31_B32_B37_RevokedAttemptIsStale(t *testing.T) {
	s := runWorlds(t, Stop|Suspend|Cut, 12, func(w *world) { w.scale.keepRunning = true })
	require.Positive(t, s.Overlaps)
}

// Rows whose transaction commits late lie before what was read already. They
// are found, with and without polling.
func TestPeer_B35_LateCommitsAreFound(t *testing.T) {
	runWorlds(t, Late, 12, nil)
	for seed := range uint64(12) {
		r := Run(Options{Seed: 7_200 + seed, NoPoll: true, Steps: 20_000})
		require.Nil(t, r.Violation, "seed %d: %v", 7_200+seed, r.Violation)
	}
}

// A commit whose answer never came is decided by reading, also when a copy of
// the statement arrives seconds later.
func TestPeer_B36_UnknownCommitIsResolved(t *testing.T) {
	s := runWorlds(t, Unknown|Slow, 12, func(w *world) { w.scale.misreported = 0 })
	require.Zero(t, s.WrongStale, "a worker was told that its result came too late, although it was recorded")
	require.Positive(t, s.Unknowns)
	require.Positive(t, s.LateStatement)
}
