package sim

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// stepping makes the database clock jump by up to five seconds, about every 50 ms. A lease
// lasts two seconds.
func stepping(w *world) {
	w.exactHostClocks = true
	w.scale.faultGap = second / 40
}

// No dispatcher is declared lost because the database clock is set.
func TestStepsOfTheDatabaseClockMakeNoDispatcherLost(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, Clocks, 12, stepping)
	require.Zero(t, s.Rejoined)
	require.Zero(t, s.TakenOver)
	require.Zero(t, s.Overlaps)
}

// The jobs of a dead dispatcher are released, whatever the database clock showed at its last
// heartbeat. Package judge checks when.
func TestJobsOfADeadDispatcherAreReleasedUnderStepsOfTheDatabaseClock(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, Clocks|Crash|HandOver, 12, stepping)
	require.Positive(t, s.Crashes)
	require.Positive(t, s.TakenOver)
	require.Positive(t, s.HandedOver)
}

// An interruption that is shorter than a lease makes no dispatcher lost, and one that
// is longer makes none lost that returns.
func TestUnreachablePostgresMakesNoDispatcherLost(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, Unreachable, 12, nil)
	require.Positive(t, s.Unreachable)
	require.Zero(t, s.Rejoined)
	require.Zero(t, s.TakenOver)
}

// A suspended dispatcher is declared lost, finds that out when it continues, and joins again.
func TestSuspendedDispatcherIsLostAndJoinsAgain(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, Stop, 12, nil)
	require.Positive(t, s.Rejoined)
	require.Positive(t, s.TakenOver)
}

// The outages of these worlds follow each other within about a second. In the time between
// them one dispatcher connects again, and an attempt of another one still hangs.
func TestRepeatedOutagesMakeNoDispatcherLost(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{7207, 7375} {
		s := runWorld(t, Options{Seed: seed, Faults: Unreachable, Every: true, Steps: 20_000}, nil)
		require.Greater(t, s.Unreachable, 5)
		require.Zero(t, s.Rejoined, "seed %d", seed)
		require.Zero(t, s.TakenOver, "seed %d", seed)
	}
}
