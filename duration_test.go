package dispatcherd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClassesCompriseTwoOctaves(t *testing.T) {
	for expected, want := range map[time.Duration]DurationClass{
		0: NoDuration, -time.Second: NoDuration, 1: 1, time.Millisecond: 1, time.Second: 1, 16_383 * time.Millisecond: 1,
		16_384 * time.Millisecond: 2, 65_535 * time.Millisecond: 2, 65_536 * time.Millisecond: 3,
		time.Hour: 5, 1<<26*time.Millisecond - 1: 7, 1 << 26 * time.Millisecond: 8, MaxExpected: 8,
	} {
		require.Equal(t, want, ClassOf(expected), expected)
	}
	require.Empty(t, NoDuration.String())
	require.Equal(t, "7", ClassOf(MaxExpected).String())
	require.Panics(t, func() { NoDuration.Octave() })
}

func TestTheMiddleOfAClassIsInTheClass(t *testing.T) {
	for c := DurationClass(1); c < DurationClasses; c++ {
		require.Equal(t, c, ClassOf(time.Duration(1<<c.Octave())*time.Millisecond))
	}
}
