package timing

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// naivePolicy computes the shortest and the longest delay with unbounded numbers, one failure after the other.
type naivePolicy struct {
	base, max      int64 // milliseconds
	factor, jitter int64 // hundredths
}

func (p naivePolicy) bounds(n int) (shortest, longest time.Duration) {
	d := new(big.Rat).SetInt64(p.base)
	for range n {
		d.Mul(d, big.NewRat(p.factor, 100))
		if d.Cmp(new(big.Rat).SetInt64(p.max)) > 0 {
			d.SetInt64(p.max) // the factor is at least 1, so it stays there
		}
	}
	ms, _ := d.Float64()
	random := ms * float64(p.jitter) / 100
	return time.Duration((ms - random) * 1e6), time.Duration(ms * 1e6)
}

func TestExponentialDelaysAreThoseOfTheNaiveComputation(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		want := naivePolicy{1 + rng.Int64N(5000), 1 + rng.Int64N(9_999_999), 100 + rng.Int64N(900), rng.Int64N(101)}
		want.max = max(want.max, want.base)
		text := fmt.Sprintf("exponential:%dms,%d.%02d,%dms,%s", want.base, want.factor/100, want.factor%100, want.max,
			strings.TrimSuffix(fmt.Sprintf("%d.%02d", want.jitter/100, want.jitter%100), ".00"))
		p, err := ParsePolicy(text)
		require.NoError(t, err, text)
		for n := range 40 {
			shortest, longest := want.bounds(n)
			for range 20 {
				d := p.Delay(n, rng)
				require.GreaterOrEqual(t, d, shortest-2*time.Millisecond, "%s, failure %d", text, n)
				require.LessOrEqual(t, d, longest, "%s, failure %d", text, n)
			}
		}
		_, longest := want.bounds(3)
		sum := time.Duration(0)
		for range 1000 {
			sum += p.Delay(3, rng)
		}
		require.InDelta(t, float64(longest)*(1-float64(want.jitter)/200), float64(sum/1000), float64(longest)*0.05+1e6, text)
	}
}

func TestDelaysOfAPolicyThatListsThem(t *testing.T) {
	for text, want := range map[string][]time.Duration{
		"fixed:30s":         {30 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second},
		"list:1s,10s,5m":    {time.Second, 10 * time.Second, 5 * time.Minute, 5 * time.Minute},
		"list:24h,1ms":      {24 * time.Hour, time.Millisecond, time.Millisecond, time.Millisecond},
		"exponential:1s,1":  nil,
		"exponential:9999s": nil,
	} {
		p, err := ParsePolicy(text)
		require.NoError(t, err, text)
		for n, d := range want {
			require.Equal(t, d, p.Delay(n, rand.New(rand.NewPCG(1, 1))), text)
		}
	}
}

func TestTextsOfPolicies(t *testing.T) {
	for text, want := range map[string]string{
		"exponential:1s,2,1h,0.2":     "exponential 1s ×2, at most 1h",
		"exponential:90s":             "exponential 1m30s ×2, at most 1h",
		"exponential:2h":              "exponential 2h ×2, at most 2h",
		"exponential:500ms,1.5,10m,1": "exponential 500ms ×1.5, at most 10m",
		"fixed:30s":                   "fixed 30s",
		"list:1s,90m,24h":             "list 1s, 1h30m, 24h",
	} {
		p, err := ParsePolicy(text)
		require.NoError(t, err, text)
		require.Equal(t, want, p.String())
	}
	p := Backoff{Base: time.Second, Max: 10 * time.Minute}.Policy()
	require.Equal(t, "exponential 1s ×2, at most 10m", p.String())
}

func TestBadPoliciesAreRefused(t *testing.T) {
	for _, text := range []string{
		"", "exponential", "exponential:", "fixed:", "fixed:0s", "fixed:1.5s", "fixed:-1s", "fixed:1s,2s", "fixed:1d", "Fixed:1s", "fixed:1s ",
		"exponential:1s,0.5", "exponential:1s,11", "exponential:1s,2,1h,2", "exponential:1s,2,1h,0.2,1", "exponential:1s,2.333", "list:",
		"list:1s,", "fixed:25h", "fixed:1000m", "fixed:10000s", "list:1s,10000000ms", "list:" + strings.Repeat("1s,", 32) + "1s",
	} {
		_, err := ParsePolicy(text)
		require.ErrorContains(t, err, "must be exponential:BASE", text)
		require.Less(t, len(err.Error()), 400)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for text, says := range map[string]string{
		"exponential:1h,2,1m": "MAX 1m0s is less than BASE 1h0m0s",
	} {
		p, err := ParsePolicy(text)
		require.ErrorContains(t, err, says, text)
		for _, n := range []int{math.MinInt, 0, 1, math.MaxInt} {
			require.LessOrEqual(t, p.Delay(n, rng), LongestDelay, "a row that an operator has written is used within the bounds")
		}
	}
}
