package dispatcherd_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

func TestSharesDivideEveryRowAmongTheDispatchers(t *testing.T) {
	for _, slots := range [][]int{{1}, {5, 5}, {250, 250, 250, 250}, {1, 2, 3, 90}, {7, 1, 1, 1, 1, 1, 1, 13}} {
		total, before := 0, 0
		for _, n := range slots {
			total += n
		}
		owners := map[dispatcherd.JobID]int{}
		for _, n := range slots {
			s := dispatcherd.ShareOf(before, n, total-before-n)
			before += n
			const ids = 80_000
			own := 0
			for id := dispatcherd.JobID(1); id <= ids; id++ {
				if s.Owns(id) {
					own++
					owners[id]++
				}
			}
			require.InDelta(t, float64(n)/float64(total), float64(own)/ids, 0.01, "%v", slots)
		}
		for id, n := range owners {
			require.Equal(t, 1, n, "owners of %d among %v", id, slots)
		}
	}
}

func TestAFewNeighboursAreSharedFairly(t *testing.T) {
	half := dispatcherd.ShareOf(0, 4, 4)
	for first := dispatcherd.JobID(0); first < 100_000; first += 997 {
		own := 0
		for id := first; id < first+160; id++ {
			if half.Owns(id) {
				own++
			}
		}
		require.InDelta(t, 80, own, 24, "of 160 from %d", first)
	}
}

func TestATinyShareIsNotEverything(t *testing.T) {
	s := dispatcherd.ShareOf(0, 1, 1_000_000)
	require.False(t, s.All())
	require.True(t, dispatcherd.ShareOf(0, 3, 0).All(), "alone")
	require.True(t, dispatcherd.Share{}.Owns(7))
}
