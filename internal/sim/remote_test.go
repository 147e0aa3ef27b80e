package sim

import (
	"os"
	"strconv"
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
	var parts [2]movement
	t.Run("parts", func(t *testing.T) {
		for i := range parts {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				parts[i].play(t, i, len(parts), want/len(parts))
			})
		}
	})
	var sum Stats
	events := 0
	for _, p := range parts {
		events += p.events
		sum.Add(p.stats)
	}
	t.Logf("events=%d moves=%d adopted=%d partitions=%d isolations=%d lost=0 twice=0 stale_accepted=0: %+v",
		events, sum.Moves, sum.Adopted, sum.Partitions, sum.Isolations, sum)
	require.GreaterOrEqual(t, events, want)
	require.Equal(t, sum.Jobs, sum.Done+sum.Failed+sum.Cancelled)
	for what, n := range map[string]int{
		"moves": sum.Moves, "adopted rows": sum.Adopted, "resumed executions": sum.Resumed, "partitions": sum.Partitions,
		"dispatchers without Postgres": sum.Isolations, "executions given up": sum.Expired, "stale ends": sum.Stale,
		"drained dispatchers": sum.SentAway,
	} {
		require.Greater(t, n, 100, "%s: rare in these worlds", what)
	}
}

// movement is what happened in the worlds of one part of the test.
type movement struct {
	events int
	stats  Stats
}

// play runs the worlds first, first+step and so on until they had so many events.
func (m *movement) play(t *testing.T, first, step, want int) {
	for world := first; m.events < want; world += step {
		o := Options{Seed: 20_000 + uint64(world), Faults: remoteFaults, Dispatchers: 2 + world%3, Every: world%4 < 2, Steps: 40_000}
		many := world%16 < 2 // jobs, also with permits and successors: they cost most of the time and concern few moves
		if !many {
			o.Faults &^= Joins | Keys
		}
		w := newWorld(o)
		if w.remote.keep == 0 {
			continue
		}
		require.True(t, w.strict())
		if !many { // executions outlast partitions
			w.scale.jobMax, w.scale.insertGap, w.remote.gap = max(w.scale.jobMax, second), 20*w.scale.insertGap, second/10
		}
		r := w.run()
		require.Nil(t, r.Violation, "seed %d, world %d of TestWorkersMoveBetweenLiveDispatchers: %v", o.Seed, world, r.Violation)
		m.events += r.Events
		m.stats.Add(r.Stats)
	}
}
