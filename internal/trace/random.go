package trace

import (
	"math/bits"
	"math/rand/v2"
)

// random is a random source with the same output on every platform and in every
// release: the definition of PCG fixes its output, and this file uses only
// integer arithmetic.
type random struct{ pcg *rand.PCG }

// newRandom returns the random source for one purpose. Each purpose has a source of
// its own, so that a change of one part of a workload does not change the others.
func newRandom(seed, purpose uint64) random { return random{rand.NewPCG(seed, purpose)} }

// below returns a number from 0 to n-1. The bias, n in 2^64, is of no
// consequence here.
func (d random) below(n int64) int64 {
	high, _ := bits.Mul64(d.pcg.Uint64(), uint64(n))
	return int64(high)
}

// pick returns an index with the given weights.
func (d random) pick(weights []int64) int {
	sum := int64(0)
	for _, w := range weights {
		sum += w
	}
	at := d.below(sum)
	for i, w := range weights {
		if at -= w; at < 0 {
			return i
		}
	}
	panic("trace: random beyond the sum of the weights")
}

// perMille are the points at which quantile tables are measured.
var perMille = [...]int64{0, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 950, 990, 999, 1000}

// quantiles is an empirical distribution: its values at the points perMille,
// in whole seconds.
type quantiles [len(perMille)]int64

// draw returns a length in milliseconds, at least one second. It draws a rank
// uniformly, and interpolates linearly between the measured points.
func (q *quantiles) draw(d random) int64 {
	rank := d.below(1_000_000) // millionths
	i := 0
	for rank >= perMille[i+1]*1000 {
		i++
	}
	from, to := perMille[i]*1000, perMille[i+1]*1000
	ms := q[i]*1000 + (q[i+1]-q[i])*1000*(rank-from)/(to-from)
	return max(ms, 1000)
}
