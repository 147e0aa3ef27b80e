package timing

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEachRepetitionWaitsTwiceAsLongUpToTheMaximum(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	b := Backoff{Base: time.Second, Max: 10 * time.Minute}
	for n, full := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600} {
		full *= time.Second
		shortest, longest := time.Duration(math.MaxInt64), time.Duration(0)
		for range 2000 {
			d := b.Delay(n, rng)
			shortest, longest = min(shortest, d), max(longest, d)
		}
		require.GreaterOrEqual(t, shortest, full/2, "repetition %d", n)
		require.LessOrEqual(t, longest, full, "repetition %d", n)
		require.Less(t, shortest, full*55/100, "waits spread over the whole second half")
		require.Greater(t, longest, full*95/100, "waits spread over the whole second half")
	}
}

func TestBackoffDoesNotOverflow(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, b := range []Backoff{
		{Base: time.Millisecond, Max: 24 * time.Hour}, {Base: 24 * time.Hour, Max: 24 * time.Hour},
		{Base: time.Millisecond, Max: time.Millisecond},
	} {
		for _, n := range []int{-1, 0, 1, 30, 31, 32, 33, 62, 63, 64, 65, math.MaxInt, math.MinInt} {
			d := b.Delay(n, rng)
			require.GreaterOrEqual(t, d, time.Duration(0), "%v %d", b, n)
			require.LessOrEqual(t, d, b.Max, "%v %d", b, n)
		}
		require.GreaterOrEqual(t, b.Delay(math.MaxInt, rng), (b.Max / 2).Truncate(time.Millisecond))
	}
}

func TestNegativeRepetitionCountsAsTheFirst(t *testing.T) {
	b := Backoff{Base: time.Second, Max: time.Hour}
	require.LessOrEqual(t, b.Delay(-5, rand.New(rand.NewPCG(1, 1))), time.Second)
}

func TestValidateNamesTheBackoff(t *testing.T) {
	require.NoError(t, Backoff{Base: time.Second, Max: time.Hour}.Validate("retry"))
	for _, b := range []Backoff{{}, {Base: time.Hour, Max: time.Second}, {Base: time.Hour, Max: 25 * time.Hour}} {
		require.ErrorContains(t, b.Validate("retry"), "retry-base is")
	}
}

// Statements that fail together are one failure: the wait does not grow with their
// number.
func TestFailuresWhileTheBreakerIsOpenCountOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	backoff := Backoff{Base: 50 * time.Millisecond, Max: 5 * time.Second}
	now := Instant(1000)
	var b Breaker
	require.False(t, b.Failed())
	require.Equal(t, Never, b.Wake(now))
	for range 5 {
		b.Fail(now, backoff, rng)
	}
	at := b.Wake(now)
	require.LessOrEqual(t, at, now+50)
	require.True(t, b.Open(now))
	require.True(t, b.Failed())
	require.True(t, b.Failing(now))
	require.False(t, b.Open(at))
	require.Equal(t, Never, b.Wake(at))
	b.Fail(at, backoff, rng)
	require.GreaterOrEqual(t, b.Wake(at), at+50, "the second failure in a row waits twice as long")
	require.False(t, b.Failing(b.Wake(at)+recentFailure), "nothing of the kind was sent for a minute")
	b.Succeed()
	require.False(t, b.Open(at))
	require.False(t, b.Failing(at))
}
