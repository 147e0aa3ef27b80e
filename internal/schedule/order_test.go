package schedule

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOrderAgreesWithASortedList(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var o order
	var list []place
	for range 30_000 {
		p := place{rng.Int64N(4000), rng.Int64N(3)}
		at, found := slices.BinarySearchFunc(list, p, place.compare)
		switch {
		case rng.IntN(5) == 0 && len(list) > 0: // from the beginning, as the plan does
			p = list[rng.IntN(min(len(list), 600))]
			o.remove(p)
			list = slices.DeleteFunc(list, func(q place) bool { return q == p })
		case rng.IntN(8) == 0:
			o.remove(p)
			if found {
				list = slices.Delete(list, at, at+1)
			}
		default:
			o.insert(p)
			if !found {
				list = slices.Insert(list, at, p)
			}
		}
		require.Equal(t, len(list), o.n)
		first, ok := o.first()
		require.Equal(t, len(list) > 0, ok)
		if ok {
			require.Equal(t, list[0], first)
		}
		if rng.IntN(200) == 0 {
			require.Equal(t, list, slices.Concat(o.chunks...))
			now := rng.Int64N(4000)
			want := list[:min(700, len(list))]
			at, _ := slices.BinarySearchFunc(want, place{now + 1, 0}, place.compare)
			require.Equal(t, want[:at:at], append([]place{}, o.upTo(now, 700)...))
			for _, c := range o.chunks {
				require.NotEmpty(t, c)
				require.LessOrEqual(t, len(c), chunkSize)
			}
		}
	}
}
