package scoring

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/stretchr/testify/require"
)

func TestDefaultWindowIs1439Point25Seconds(t *testing.T) {
	// (1024·10 + 4096 + 32·256 + 500) / 16 = 23028 / 16
	window, bounded := Default().Window()
	require.True(t, bounded)
	require.Equal(t, 1439*time.Second+250*time.Millisecond, window)
}

func TestWindowIsRoundedUp(t *testing.T) {
	window, bounded := Weights{Ageing: 3, OnDemand: 1}.Window()
	require.True(t, bounded)
	require.Equal(t, 334*time.Millisecond, window)
}

func TestWindowNeedsACap(t *testing.T) {
	w := Default()
	w.OnDemandCap = NoCap
	_, bounded := w.Window()
	require.False(t, bounded)
	w.OnDemandAgeing = 0
	_, bounded = w.Window()
	require.True(t, bounded, "without additional ageing no cap is needed")
}

func TestWindowBeyondMaxAgeIsUnbounded(t *testing.T) {
	w := Default()
	w.OnDemandAgeing, w.OnDemandCap = maxSlope, MaxAge
	_, bounded := w.Window()
	require.False(t, bounded)
	_, bounded = extreme().Window()
	require.False(t, bounded)
}

// The test checks Window with random jobs and weights. Capacities change from one
// instant to the next.
func TestJobThatArrivesAWindowLaterNeverOvertakes(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 1))
	for range 100_000 {
		w := randomWeights(rng)
		window, bounded := w.Window()
		if !bounded {
			continue
		}
		older, younger := randomJob(rng), randomJob(rng)
		younger.ArrivalMS = older.ArrivalMS + window.Milliseconds() + rng.Int64N(100)
		for range 5 {
			older.Capacity, younger.Capacity = 1+rng.IntN(9), 1+rng.IntN(9)
			now := younger.ArrivalMS + rng.Int64N(20_000)
			require.False(t, w.ahead(younger, older, now), "%+v: %+v passes %+v at %d", w, younger, older, now)
		}
	}
}

// The window is not longer than necessary: if it were one millisecond shorter, the
// most urgent job could reach or overtake the least urgent one.
func TestWindowIsTight(t *testing.T) {
	w := Default()
	window, _ := w.Window()
	least := Job{Mode: dispatcherd.Queued, Capacity: 501}
	most := Job{Mode: dispatcherd.OnDemand, Priority: dispatcherd.MaxPriority, Capacity: 1, ArrivalMS: window.Milliseconds()}
	_, passes := w.Overtakes(most, least)
	require.False(t, passes)
	most.ArrivalMS--
	at, passes := w.Overtakes(most, least)
	require.True(t, passes)
	require.Equal(t, most.ArrivalMS+256_000, at, "the additional ageing has reached its cap")
}

// bruteOvertakes tries every millisecond.
func bruteOvertakes(w Weights, a, b Job, horizon int64) (int64, bool) {
	at, ok := int64(0), false
	for now := max(a.ArrivalMS, b.ArrivalMS); now <= horizon; now++ {
		switch ahead := w.ahead(a, b, now); {
		case ahead && !ok:
			at, ok = now, true
		case !ahead:
			ok = false
		}
	}
	if !ok {
		return 0, false
	}
	return at, ok
}

func TestOvertakesEqualsATrialOfEachMillisecond(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 1))
	found, never, later, pairs := 0, 0, 0, 1_500
	if testing.Short() {
		pairs = 300
	}
	for range pairs {
		w := randomWeights(rng)
		a, b := randomJob(rng), randomJob(rng)
		if rng.IntN(4) == 0 {
			b.ArrivalMS = a.ArrivalMS
		}
		if rng.IntN(2) == 0 { // a pair whose scores often cross while both jobs wait
			a.Mode, b.Mode, b.Priority = dispatcherd.OnDemand, dispatcherd.Queued, a.Priority+2
		}
		// The scores differ by at most 10·7 + 9 + 9 + 20 points, the cap is 4 s,
		// the arrivals are at most 5 s apart, and the age gains at least 1 point
		// per second. So the order is final long before the end of the test.
		const horizon = 130_000
		want, wantOK := bruteOvertakes(w, a, b, horizon)
		got, ok := w.Overtakes(a, b)
		require.Equal(t, wantOK, ok, "%+v %+v %+v", w, a, b)
		require.Equal(t, want, got, "%+v %+v %+v", w, a, b)
		switch {
		case !ok:
			never++
		case got > max(a.ArrivalMS, b.ArrivalMS):
			later++
		default:
			found++
		}
	}
	require.Greater(t, min(found, never, later), pairs/20, "all outcomes occur: %d at once, %d later, %d never", found, later, never)
}

func TestJobsMoreThanMaxAgeApartAreNotCompared(t *testing.T) {
	_, ok := Default().Overtakes(queued(0, 0), queued(10, MaxAge+time.Second))
	require.False(t, ok)
}

func TestOfTwoEqualJobsNeitherOvertakes(t *testing.T) {
	_, ok := Default().Overtakes(queued(3, time.Second), queued(3, time.Second))
	require.False(t, ok)
}

func TestOnDemandRequestMayOvertakeAnotherOneThatReachedTheCap(t *testing.T) {
	// Both gain 48/s, so the younger one stays 200·48 − 4·1024 = 5504 points
	// behind. At 256 s the older one reaches the cap. The younger one then gains
	// 32/s on the older one and reaches its score 172 s later.
	older, younger := onDemand(1, 0), onDemand(5, 200*time.Second)
	at, ok := Default().Overtakes(younger, older)
	require.True(t, ok)
	require.EqualValues(t, 428_001, at)
	// The younger one can gain at most 200·32 = 6400 points, but it is
	// 200·48 − 3·1024 = 6528 points behind.
	_, ok = Default().Overtakes(onDemand(4, 200*time.Second), older)
	require.False(t, ok)
}

func TestSharedWindowIsLongerByThePenalty(t *testing.T) {
	alone, bounded := Default().Window()
	require.True(t, bounded)
	shared, bounded := Default().SharedWindow(Penalty)
	require.True(t, bounded)
	require.Equal(t, 2*time.Second, shared-alone)
	endless := Default()
	endless.OnDemandCap = NoCap
	_, bounded = endless.SharedWindow(Penalty)
	require.False(t, bounded)
	_, bounded = Default().SharedWindow(MaxAge)
	require.False(t, bounded, "beyond MaxAge all ages are equal")
}
