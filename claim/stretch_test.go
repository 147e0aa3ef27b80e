package claim_test

import (
	"math/rand/v2"
	"testing"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/stretchr/testify/require"
)

// idsOf returns the ids of ranges, both ends included.
func idsOf(ranges ...[2]int64) (ids []dispatcherd.JobID) {
	for _, r := range ranges {
		for id := r[0]; id <= r[1]; id++ {
			ids = append(ids, dispatcherd.JobID(id))
		}
	}
	return ids
}

func TestIdsAreCutIntoStretchesWhereMoreThanThreeAreMissing(t *testing.T) {
	for name, c := range map[string]struct {
		ids  []dispatcherd.JobID
		want []claim.Stretch
	}{
		"neighbours":           {idsOf([2]int64{1, 16}), []claim.Stretch{{1, 16, 1}}},
		"blocks of a share":    {idsOf([2]int64{8, 15}, [2]int64{40, 47}, [2]int64{64, 71}), []claim.Stretch{{8, 15, 8}, {40, 47, 32}, {64, 71, 48}}},
		"three missing":        {idsOf([2]int64{1, 8}, [2]int64{12, 19}), []claim.Stretch{{1, 19, 1}}},
		"four missing":         {idsOf([2]int64{1, 8}, [2]int64{13, 20}), []claim.Stretch{{1, 8, 1}, {13, 20, 5}}},
		"one far away":         {idsOf([2]int64{1, 15}, [2]int64{9e18, 9e18}), []claim.Stretch{{1, 15, 1}, {9e18, 9e18, 9e18 - 15}}},
		"stretches of four":    {idsOf([2]int64{1, 4}, [2]int64{11, 14}, [2]int64{21, 24}, [2]int64{31, 34}), []claim.Stretch{{1, 4, 1}, {11, 14, 7}, {21, 24, 13}, {31, 34, 19}}},
		"shorter ones":         {idsOf([2]int64{1, 3}, [2]int64{11, 14}, [2]int64{21, 24}, [2]int64{31, 34}, [2]int64{41, 42}), nil},
		"few":                  {idsOf([2]int64{1, 15}), nil},
		"none":                 {nil, nil},
		"not in order":         {append(idsOf([2]int64{2, 20}), 1), nil},
		"one twice":            {append(idsOf([2]int64{1, 20}), 20), nil},
		"such as no table has": {idsOf([2]int64{0, 20}), nil},
	} {
		got, _ := claim.Cut(c.ids)
		require.Equal(t, c.want, got, name)
	}
}

// What is sent for the places is bounded by the number of ids.
func TestEveryIdHasAPlaceOfItsOwn(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 13))
	cut := 0
	for range 500 {
		var ids []dispatcherd.JobID
		far := 1 + rng.IntN(30)
		for id, n := int64(1+rng.IntN(100)), 16+rng.IntN(300); len(ids) < n; id++ {
			if rng.IntN(far) == 0 {
				id += rng.Int64N(40)
			}
			ids = append(ids, dispatcherd.JobID(id))
		}
		list, places := claim.Cut(ids)
		if list == nil {
			continue
		}
		cut++
		require.LessOrEqual(t, 4*len(list), len(ids))
		require.LessOrEqual(t, places, int64(4*len(ids)))
		taken := map[int64]bool{}
		for _, id := range ids {
			for _, s := range list {
				if place := int64(id) - s.Base; s.Low <= int64(id) && int64(id) <= s.High {
					require.False(t, taken[place], "the place of %d", id)
					require.True(t, 0 <= place && place < places, "the place of %d", id)
					taken[place] = true
				}
			}
		}
		require.Len(t, taken, len(ids))
	}
	require.Greater(t, cut, 100)
}
