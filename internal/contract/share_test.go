package contract_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// sharesOf returns the shares of dispatchers with the given numbers of slots.
func sharesOf(slots ...int) []contract.Share {
	total, before := 0, 0
	for _, n := range slots {
		total += n
	}
	shares := make([]contract.Share, len(slots))
	for i, n := range slots {
		others := contract.Others{SmallerIDs: before, LargerIDs: total - before - n}
		if rest := slices.Delete(slices.Clone(slots), i, i+1); len(rest) > 0 {
			others.Least = slices.Min(rest)
		}
		shares[i] = contract.ShareOf(n, others)
		before += n
	}
	return shares
}

func TestEveryRowBelongsToExactlyOneShare(t *testing.T) {
	for _, slots := range [][]int{{1}, {5, 5}, {250, 250, 250, 250}, {1, 2, 3, 90}, {7, 1, 1, 1, 1, 1, 1, 13}, {100, 900, 1000}} {
		total := 0
		for _, n := range slots {
			total += n
		}
		owners := map[dispatcherd.JobID]int{}
		for i, s := range sharesOf(slots...) {
			const ids = 400_000
			own := 0
			for id := dispatcherd.JobID(1); id <= ids; id++ {
				if s.Owns(id) {
					own++
					owners[id]++
				}
			}
			require.InDelta(t, float64(slots[i])/float64(total), float64(own)/ids, 0.01, "%v", slots)
		}
		for id, n := range owners {
			require.Equal(t, 1, n, "owners of %d among %v", id, slots)
		}
	}
}

func TestFewConsecutiveIDsAreSharedProportionally(t *testing.T) {
	half := sharesOf(4, 4)[0]
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

func TestBlockSizeFollowsTheSmallestDispatcher(t *testing.T) {
	for least, want := range map[int]int{1: 8, 4: 8, 47: 8, 48: 16, 96: 32, 191: 32, 192: 64, 250: 64, 1000: 64, math.MaxInt / 4: 64} {
		for _, s := range append(sharesOf(least, math.MaxInt/2, least+1), sharesOf(math.MaxInt/2, least)...) {
			require.Equal(t, want, 1<<s.Block, "%d slots", least)
		}
	}
}

func TestSmallestShareIsNotEverything(t *testing.T) {
	require.False(t, sharesOf(1, 1_000_000)[0].All())
	require.True(t, sharesOf(3)[0].All(), "a single dispatcher owns every row")
	require.True(t, contract.Share{}.Owns(7))
}
