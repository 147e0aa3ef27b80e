package actor

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEachRepetitionWaitsTwiceAsLongUpToTheLongest(t *testing.T) {
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
		require.Less(t, shortest, full*55/100, "a crowd must spread over the whole second half")
		require.Greater(t, longest, full*95/100, "a crowd must spread over the whole second half")
	}
}

func TestABackoffNeverOverflows(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, b := range []Backoff{{Base: time.Millisecond, Max: 24 * time.Hour}, {Base: 24 * time.Hour, Max: 24 * time.Hour}, {Base: time.Millisecond, Max: time.Millisecond}} {
		for _, n := range []int{-1, 0, 1, 30, 31, 32, 33, 62, 63, 64, 65, math.MaxInt, math.MinInt} {
			d := b.Delay(n, rng)
			require.GreaterOrEqual(t, d, time.Duration(0), "%v %d", b, n)
			require.LessOrEqual(t, d, b.Max, "%v %d", b, n)
		}
		require.GreaterOrEqual(t, b.Delay(math.MaxInt, rng), (b.Max / 2).Truncate(time.Millisecond))
	}
}

func TestANegativeRepetitionCountsAsTheFirst(t *testing.T) {
	b := Backoff{Base: time.Second, Max: time.Hour}
	require.LessOrEqual(t, b.Delay(-5, rand.New(rand.NewPCG(1, 1))), time.Second)
}

// Statements that fail together are one failure: the wait does not jump.
func TestAnOutageThatBreaksManyStatementsCountsOnce(t *testing.T) {
	c := New(DefaultConfig())
	c.now = 1000
	for range 5 {
		c.outage.begin(ends, c)
	}
	require.Equal(t, 1, c.outage[ends].failures)
	at := c.outage[ends].retryAt
	require.LessOrEqual(t, at, c.now+50)
	require.Equal(t, at, c.outage.wake(c.now))
	require.True(t, c.outage.since(ends, c.now))
	require.False(t, c.outage.since(claims, c.now), "the others go on")
	c.outage.over(claims)
	require.True(t, c.outage.failed(ends), "what is answered on another connection says nothing")
	c.now = at
	require.False(t, c.outage.since(ends, c.now))
	require.Equal(t, Never, c.outage.wake(c.now))
	c.outage.begin(ends, c)
	require.Equal(t, 2, c.outage[ends].failures)
	require.True(t, c.Gauges().Outage)
	require.False(t, c.outage.lasts(c.outage[ends].retryAt+oldFailure), "nothing of that kind had to be sent for a minute")
	c.outage.over(ends)
	require.False(t, c.outage.since(ends, c.now))
	require.False(t, c.Gauges().Outage)
}
