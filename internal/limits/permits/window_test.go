package permits

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A window counts each start from its instant for at least a window and at most a part of it longer, in whatever
// order starts are reported. Its parts are bounded, also if starts are in the future.
func TestWindowCountsEachStart(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 3))
		const per, part = 1_000_000, 1_000_000/windowParts + 1_000_000/driftPart + 1
		w, now := &window{}, int64(100_000_000)
		var ats []int64
		for range 2_000 {
			now += rng.Int64N(4_000)
			at := now - 500_000 + rng.Int64N(500_000)
			if rng.IntN(20) == 0 {
				at = now - 2*per
			}
			if w.add(at, 1, per, now) {
				ats = append(ats, at)
			} else {
				require.LessOrEqual(t, at+per, now)
			}
			w.expire(now, per)
			least, most := int64(0), int64(0)
			for _, at := range ats {
				if at+per > now {
					least++
				}
				if at+per+part > now {
					most++
				}
			}
			require.GreaterOrEqual(t, w.sum, least)
			require.LessOrEqual(t, w.sum, most)
			require.LessOrEqual(t, len(w.starts), windowParts+2)
		}
		before := w.sum
		for i := range int64(1_000) {
			w.add(now+i*per, 1, per, now)
			require.LessOrEqual(t, len(w.starts), windowParts+2)
		}
		require.Equal(t, before+1_000, w.sum)
	}
}

// A rate of 3 per 366 days becomes 3 per second. Starts that the long window counted in one part leave the short one after a second.
func TestShorterWindowCountsByTheNewWindow(t *testing.T) {
	const year = 366 * 86_400_000_000
	w := newWorld(t, Limit{Key: "k", Capacity: Unlimited, Rate: 3, Per: year})
	for range 9 {
		w.add("k", "a")
	}
	w.admits(1, 2, 3)
	w.start(1)
	w.start(2)
	w.pass(10)
	w.start(3)
	w.SetLimits([]Limit{{Key: "k", Capacity: Unlimited, Rate: 3, Per: 1_000_000}})
	w.admits()
	w.pass(1.1)
	w.admits(4, 5, 6)
}

// A window that becomes longer counts all starts of the shorter one.
func TestLongerWindowForgetsNothing(t *testing.T) {
	w := newWorld(t, Limit{Key: "k", Capacity: Unlimited, Rate: 3, Per: 10_000_000})
	for range 9 {
		w.add("k", "a")
	}
	w.admits(1, 2, 3)
	for id := int64(1); id <= 3; id++ {
		w.start(id)
		w.pass(2)
	}
	w.SetLimits([]Limit{{Key: "k", Capacity: Unlimited, Rate: 3, Per: 60_000_000}})
	w.pass(53)
	w.admits()
	w.pass(2)
	w.admits(4)
}
