package dispatcherd

import (
	"math/bits"
	"strconv"
	"time"
)

// DurationClass is a class of expected durations of jobs. The zero value, NoDuration, is
// the class of jobs whose producer expects no duration. All other classes are a label:
// the dispatcher learns how long the jobs of a class take.
type DurationClass uint8

// NoDuration is the class of jobs without an expected duration.
const NoDuration DurationClass = 0

// DurationClasses is the number of classes, with NoDuration.
const DurationClasses = 9

// firstOctave is the power of two of milliseconds with which the shortest class begins.
const firstOctave = 12

// MaxExpected is the longest duration that a producer can expect, 24 days.
const MaxExpected = (1<<31 - 1) * time.Millisecond

// ClassOf returns the class of an expected duration. Each class comprises two octaves. The shortest one
// contains all durations below 16.384 s, the longest one those from 2^26 ms (18.6 hours). 0 gives NoDuration. The SQL function
// dispatcherd.duration_class returns the same class, as the number that String returns.
func ClassOf(expected time.Duration) DurationClass {
	if expected <= 0 {
		return NoDuration
	}
	octave := bits.Len64(uint64(max(1, expected.Milliseconds()))) - 1
	return DurationClass(1 + min(max((octave-firstOctave)/2, 0), DurationClasses-2))
}

// Octave returns the power of two of milliseconds in the middle of the class. It panics for NoDuration.
func (c DurationClass) Octave() int {
	if c == NoDuration {
		panic("dispatcherd: jobs without an expected duration have no octave")
	}
	return firstOctave + 1 + 2*int(c-1)
}

// String returns the number of the class, from "0" to "7", or "" for NoDuration.
func (c DurationClass) String() string {
	if c == NoDuration {
		return ""
	}
	return strconv.Itoa(int(c) - 1)
}
