package sim

import (
	"math/bits"
	"math/rand/v2"
)

// random is the only source of randomness of a world. PCG is fully specified
// and the functions use integer arithmetic only, so a seed gives the same world
// on every platform.
type random struct{ pcg rand.PCG }

// below returns a number from 0 to n-1, n ≥ 1.
func (d *random) below(n int64) int64 {
	high, _ := bits.Mul64(d.pcg.Uint64(), uint64(n))
	return int64(high)
}

// between returns a number from a to b, both included.
func (d *random) between(a, b int64) int64 { return a + d.below(b-a+1) }

// chance reports true with a probability of n in 10,000.
func (d *random) chance(n int64) bool { return n > 0 && d.below(10_000) < n }

// span returns a moment from a to b. It is the product of two draws, so short
// ones are more frequent.
func (d *random) span(a, b moment) moment {
	return a + moment(d.below(d.below(int64(b-a)+1)+1))
}

// mix adds a number to a hash.
func mix(h, v uint64) uint64 {
	high, low := bits.Mul64(h^v^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return high ^ low
}
