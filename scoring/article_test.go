package scoring

import (
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/stretchr/testify/require"
)

// The tests check the numbers of article 1, one number each. Where the article does
// not mention rarity, a capacity of 1000 makes the rarity term zero.
const many = 1000

func queued(p dispatcherd.Priority, arrival time.Duration) Job {
	return Job{Mode: dispatcherd.Queued, Priority: p, ArrivalMS: arrival.Milliseconds(), Capacity: many}
}

func onDemand(p dispatcherd.Priority, arrival time.Duration) Job {
	j := queued(p, arrival)
	j.Mode = dispatcherd.OnDemand
	return j
}

func total(j Job, at time.Duration) Milli {
	w := Default()
	return w.Score(j.Mode, j.Priority, at.Milliseconds()-j.ArrivalMS, j.Capacity).Total()
}

func TestAPriority5JobStartsWith5120PointsAndAPriority0JobWith0(t *testing.T) {
	require.EqualValues(t, 5_120_000, total(queued(5, 0), 0))
	require.EqualValues(t, 0, total(queued(0, 0), 0))
}

func TestAPriorityUnitIsWorth1024Points(t *testing.T) {
	for p := range dispatcherd.MaxPriority {
		require.EqualValues(t, 1_024_000, total(queued(p+1, 0), 0)-total(queued(p, 0), 0))
	}
}

func TestAgeGains16PointsASecond(t *testing.T) {
	require.EqualValues(t, 16_000, total(queued(0, 0), time.Second))
	require.EqualValues(t, 16, total(queued(0, 0), time.Millisecond))
	require.EqualValues(t, 16_000_000, total(queued(0, 0), 1000*time.Second))
}

func TestOnePriorityUnitIsWorth64Seconds(t *testing.T) {
	for p := range dispatcherd.MaxPriority {
		for _, now := range []time.Duration{65 * time.Second, time.Hour, 30 * time.Hour} {
			require.Equal(t, total(queued(p, 0), now), total(queued(p+1, 64*time.Second), now))
			require.Less(t, total(queued(p, 0), now), total(queued(p+1, 64*time.Second-time.Millisecond), now))
			require.Greater(t, total(queued(p, 0), now), total(queued(p+1, 64*time.Second+time.Millisecond), now))
		}
	}
}

func TestAPriority0JobCatchesUpWithAFreshPriority5JobAfter320Seconds(t *testing.T) {
	require.Less(t, total(queued(0, 0), 320*time.Second-time.Millisecond), total(queued(5, 0), 0))
	require.Equal(t, total(queued(0, 0), 320*time.Second), total(queued(5, 0), 0))
	// The fresh job overtakes only if it arrives before 320 s.
	_, passes := Default().Overtakes(queued(5, 320*time.Second-time.Millisecond), queued(0, 0))
	require.True(t, passes)
	_, passes = Default().Overtakes(queued(5, 320*time.Second), queued(0, 0))
	require.False(t, passes)
}

func TestTwoQueuedJobsThatWaitTogetherNeverCross(t *testing.T) {
	for now := time.Duration(0); now < 24*time.Hour; now += 7 * time.Minute {
		require.EqualValues(t, 5_120_000, total(queued(5, 0), now)-total(queued(0, 0), now))
	}
}

func TestRarityIs500Over1And2And4And8Slots(t *testing.T) {
	w := Default()
	for slots, points := range map[int]float64{1: 500, 2: 250, 4: 125, 8: 62, 500: 1, 501: 0} {
		require.InDelta(t, points, w.Score(dispatcherd.Queued, 0, 0, slots).Rarity.Points(), 0, "%d slots", slots)
	}
}

func TestRarityOfOneSlotIsAboutHalfAPriorityUnit(t *testing.T) {
	w := Default()
	require.InDelta(t, 0.5, float64(w.Rarity)/float64(w.Priority), 0.02)
}

func TestRarityOfFourSlotsIsWorthAbout8SecondsOfAge(t *testing.T) {
	w := Default()
	bonus := w.Score(dispatcherd.Queued, 0, 0, 4).Rarity
	require.Greater(t, bonus, w.Score(dispatcherd.Queued, 0, 7_500, 4).Age)
	require.Less(t, bonus, w.Score(dispatcherd.Queued, 0, 8_000, 4).Age)
}

func TestAnOnDemandRequestStartsFourPriorityUnitsAhead(t *testing.T) {
	require.EqualValues(t, 4_096_000, total(onDemand(0, 0), 0))
	require.Equal(t, total(queued(4, 0), 0), total(onDemand(0, 0), 0))
	require.Less(t, total(onDemand(0, 0), 0), total(queued(5, 0), 0))
}

func TestAnOnDemandRequestGains48PointsASecond(t *testing.T) {
	require.EqualValues(t, 48_000, total(onDemand(3, 0), 11*time.Second)-total(onDemand(3, 0), 10*time.Second))
	require.EqualValues(t, 48, total(onDemand(0, 0), time.Millisecond)-total(onDemand(0, 0), 0))
}

func TestAQueuedJobPassesAFreshOnDemandRequestAfter256Seconds(t *testing.T) {
	fresh := total(onDemand(0, 0), 0)
	require.Less(t, total(queued(0, 0), 256*time.Second-time.Millisecond), fresh)
	require.Equal(t, fresh, total(queued(0, 0), 256*time.Second))
	require.Greater(t, total(queued(0, 0), 256*time.Second+time.Millisecond), fresh)
}

func TestAnOnDemandRequestIsNotAbsolute(t *testing.T) {
	// "a high-priority queued job that's been waiting long can still pass ahead"
	require.Greater(t, total(queued(9, 0), 5*time.Minute), total(onDemand(9, 5*time.Minute), 5*time.Minute))
}

func TestTheOnDemandExtraStopsGrowingAtTheCap(t *testing.T) {
	// The article has no cap. Here the extra of 32/s ends after 256 s, so the lead
	// stays 4096 + 8192 points.
	require.EqualValues(t, 48, total(onDemand(0, 0), 256*time.Second)-total(onDemand(0, 0), 256*time.Second-time.Millisecond))
	require.EqualValues(t, 16, total(onDemand(0, 0), 256*time.Second+time.Millisecond)-total(onDemand(0, 0), 256*time.Second))
	require.EqualValues(t, 12_288_000, total(onDemand(0, 0), time.Hour)-total(queued(0, 0), time.Hour))
}

func TestTheConstantsArePowersOfTwo(t *testing.T) {
	w := Default()
	for _, c := range []int64{w.Priority, w.Ageing, w.OnDemand, w.OnDemandAgeing} {
		require.Zero(t, c&(c-1), "%d", c)
	}
}
