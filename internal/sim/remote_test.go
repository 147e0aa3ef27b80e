package sim

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// remoteFaults are the faults under which no job may be executed twice at one time; see strict.
const remoteFaults = All &^ (Restart | Clocks | Suspend)

// Workers move between live dispatchers while connections are held, swallowed or ended on one side only, and while
// dispatchers are cut off from Postgres, from their workers, or from both. No job is lost, none is executed twice at one
// time, and no stale end is accepted.
func TestWorkersMoveBetweenLiveDispatchers(t *testing.T) {
	t.Parallel()
	want := 10_000_000
	if raceDetector || os.Getenv(eventsVariable) != "" {
		want = wantedEvents(t)
	}
	var sum Stats
	events, worlds := 0, 0
	for ; events < want; worlds++ {
		o := Options{Seed: 20_000 + uint64(worlds), Faults: remoteFaults, Dispatchers: 2 + worlds%3, Every: worlds%4 == 0, Steps: 40_000}
		w := newWorld(o)
		if w.remote.keep == 0 {
			continue
		}
		require.True(t, w.strict())
		if worlds%8 > 0 { // mostly fewer jobs, and executions that outlast partitions
			w.scale.jobMax, w.scale.insertGap, w.remote.gap = max(w.scale.jobMax, second), 20*w.scale.insertGap, second/10
		}
		r := w.run()
		require.Nil(t, r.Violation, "seed %d, world %d of TestWorkersMoveBetweenLiveDispatchers: %v", o.Seed, worlds, r.Violation)
		events += r.Events
		sum.Add(r.Stats)
	}
	t.Logf("events=%d worlds=%d moves=%d adopted=%d partitions=%d isolations=%d lost=0 twice=0 stale_accepted=0: %+v",
		events, worlds, sum.Moves, sum.Adopted, sum.Partitions, sum.Isolations, sum)
	require.Equal(t, sum.Jobs, sum.Done+sum.Failed+sum.Cancelled)
	for what, n := range map[string]int{
		"moves": sum.Moves, "adopted rows": sum.Adopted, "resumed executions": sum.Resumed, "partitions": sum.Partitions,
		"dispatchers without Postgres": sum.Isolations, "executions given up": sum.Expired, "stale ends": sum.Stale,
		"drained dispatchers": sum.SentAway,
	} {
		require.Greater(t, n, 100, "%s: rare in these worlds", what)
	}
}
