package scoring

import (
	"math/bits"

	"github.com/dispatcherd/dispatcherd"
)

// A logarithm is 1024 times the binary logarithm of milliseconds, linear between powers
// of two.
const octave = 1024

// The weight of a sample, and the decay of an Estimate: after 64 further samples a sample
// counts a third.
const (
	sample = 1024
	decay  = 64
)

// Estimate is a decayed geometric mean of durations. The zero value contains no sample.
type Estimate struct {
	N int64 // number of samples times 1024, decayed
	S int64 // sum of their logarithms, decayed
}

// Observe adds a duration in milliseconds.
func (e *Estimate) Observe(ms int64) {
	e.N += sample - e.N/decay
	e.S += logarithm(ms) - e.S/decay
}

// Plus returns the estimate of the samples of both.
func (e Estimate) Plus(o Estimate) Estimate { return Estimate{e.N + o.N, e.S + o.S} }

// Capped returns the estimate with at most as many samples as Observe lets one have, and with the same mean.
func (e Estimate) Capped() Estimate {
	const most = sample * decay
	if e.N <= most {
		return e
	}
	return Estimate{most, e.S * most / e.N}
}

// Mean returns the logarithm of the mean of the samples and of one prior sample.
func (e Estimate) Mean(prior int64) int64 { return (sample*e.S + sample*prior) / (e.N + sample) }

// FirstPrior is the logarithm that is expected before any sample: 2^16 ms, about a minute.
const FirstPrior = 16 * octave

// Prior returns the logarithm that is expected of a named class before any sample: the
// middle of the class.
func Prior(c dispatcherd.DurationClass) int64 { return int64(c.Octave()) * octave }

// Expected returns the milliseconds of a logarithm.
func Expected(logarithm int64) int64 {
	logarithm = min(max(logarithm, 0), 40*octave)
	return (octave + logarithm%octave) << (logarithm / octave) / octave
}

func logarithm(ms int64) int64 {
	ms = max(ms, 1)
	power := bits.Len64(uint64(ms)) - 1
	return int64(power)*octave + (ms-1<<power)*octave>>power
}
