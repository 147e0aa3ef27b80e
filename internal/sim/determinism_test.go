package sim

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEqualSeedsGiveEqualWorlds(t *testing.T) {
	t.Parallel()
	hashes := map[uint64]uint64{}
	for seed := range sized(8) {
		first := Run(Options{Seed: seed, Faults: All, Steps: 20_000})
		again := Run(Options{Seed: seed, Faults: All, Steps: 20_000})
		require.Equal(t, first, again)
		require.NotContains(t, hashes, first.Hash, "two seeds give the same world")
		hashes[first.Hash] = seed
	}
}

// The number of processors, other worlds that run concurrently, and the order
// of maps change no effect.
func TestResultIsIndependentOfGOMAXPROCS(t *testing.T) {
	alone := make([]Result, 6)
	for i := range alone {
		alone[i] = Run(Options{Seed: uint64(i), Faults: All, Steps: 10_000})
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, processors := range []int{1, 2, 16} {
		runtime.GOMAXPROCS(processors)
		together := make([]Result, len(alone))
		var group sync.WaitGroup
		for i := range together {
			group.Go(func() { together[i] = Run(Options{Seed: uint64(i), Faults: All, Steps: 10_000}) })
		}
		group.Wait()
		require.Equal(t, alone, together, "GOMAXPROCS=%d", processors)
	}
}

func TestQueueOrdersByTimeThenInsertion(t *testing.T) {
	t.Parallel()
	var d random
	var q queue
	for i := range 10_000 {
		q.push(task{at: moment(d.below(500)), arg: int32(i)})
		if d.below(3) == 0 {
			q.pop()
		}
	}
	last := q.pop()
	for len(q.heap) > 0 {
		next := q.pop()
		require.True(t, last.at < next.at || last.at == next.at && last.seq < next.seq)
		last = next
	}
}

// BenchmarkWorlds measures events per second on one processor, in worlds with
// all faults and all checks.
func BenchmarkWorlds(b *testing.B) {
	events, steps := 0, 0
	for seed := uint64(0); b.Loop(); seed++ {
		r := Run(Options{Seed: 1_000 + seed%50, Faults: All})
		events += r.Events
		steps += r.Stats.Steps
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(steps)/b.Elapsed().Seconds(), "steps/s")
}
