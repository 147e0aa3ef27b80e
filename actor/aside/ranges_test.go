package aside

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// A key is in one part of a lane if it is in the lane and in no range that is left out.
func TestPartsOfALaneAreAllOfItOutsideTheRanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	key := func(n int) contract.Key { return contract.Key{RunAt: int64(n / 8), ID: dispatcherd.JobID(n % 8)} }
	const keys = 64
	for range 300 {
		var r Ranges
		var list []Range
		until := map[Range]timing.Instant{}
		for now := timing.Instant(1); now < 40_000; now += timing.Instant(rng.IntN(8000)) {
			lane := contract.Lane{Type: []string{"a", "b"}[rng.IntN(2)], Priority: 1}
			from := rng.IntN(keys - 1)
			g := Range{lane, key(from), key(from + 1 + rng.IntN(keys-from-1))}
			if _, known := until[g]; !known {
				r.Add(g, "refused", now, rng)
				list = append(list, g)
			}
			for _, again := range r.Refused(g.Lane, now, rng) {
				require.LessOrEqual(t, until[again], now)
			}
			for l, ranges := range r.lanes {
				for _, p := range ranges {
					require.Equal(t, l, p.Lane)
					until[p.Range] = p.until
				}
			}
			after := rng.IntN(keys)
			q := contract.LaneQuery{Type: lane.Type, Priority: 1, After: key(after), Before: key(after + rng.IntN(keys)), Limit: 5}
			for _, all := range []bool{false, true} {
				later := now + timing.Instant(rng.IntN(3000))
				parts, again := r.Split(nil, q, all, later)
				require.False(t, all && again)
				for n := range 2 * keys {
					k, in := key(n), 0
					for _, p := range parts {
						if p.After.Less(k) && k.Less(p.Before) {
							in++
						}
					}
					want := 0
					if q.After.Less(k) && k.Less(q.Before) {
						want = 1
					}
					for _, g := range list {
						if g.Lane == lane && g.From.Less(k) && !g.To.Less(k) && (all || later < until[g]) {
							want = 0
						}
					}
					require.Equal(t, want, in, "%v", k)
				}
			}
		}
		require.Equal(t, len(list), r.Len())
	}
}

func TestAtMostMaxRangesAreLeftOut(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var r Ranges
	for n := range dispatcherd.JobID(2 * MaxRanges) {
		g := Range{contract.Lane{Type: "a"}, contract.Key{ID: 2 * n}, contract.Key{ID: 2*n + 1}}
		r.Add(g, "refused", timing.Instant(n), rng)
		require.LessOrEqual(t, r.Len(), MaxRanges)
		require.Equal(t, "refused", r.Reason(2*n+1))
	}
	r.Add(Range{Lane: contract.Lane{Type: "b"}, To: contract.Key{ID: 1}}, "refused", timing.Instant(2*memory.Milliseconds()), rng)
	require.Equal(t, 1, r.Len(), "the others are forgotten")
}
