package flow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

var start = time.Unix(0, 0)

// take returns the target that has a turn; 0 = none.
func take(turns *Turns, now time.Time) dispatcherd.JobID {
	id, _, _ := turns.Next(now)
	return id
}

func TestOneOfFourStepsIsOfATargetThatIsNotFresh(t *testing.T) {
	t.Parallel()
	var turns Turns
	turns.Add(1, "", false)
	for id := dispatcherd.JobID(10); id < 20; id++ {
		turns.Add(id, "", true)
	}
	var order []dispatcherd.JobID
	for range 8 {
		id := take(&turns, start)
		order = append(order, id)
		turns.Done(id, id == 1, false, time.Millisecond, start)
	}
	require.Equal(t, []dispatcherd.JobID{10, 11, 12, 1, 13, 14, 15, 1}, order)
}

// Many targets that have more to do, or that try again after a pause, delay a batch whose seal was found by little.
func TestTargetWithoutAStepGoesBeforeThoseThatHadOne(t *testing.T) {
	t.Parallel()
	var turns Turns
	now := start
	for id := dispatcherd.JobID(1); id <= 100; id++ {
		turns.Add(id, "", false)
	}
	for len(turns.queues[1].targets) > 0 {
		id := take(&turns, now)
		turns.Done(id, true, id%2 == 0, time.Millisecond, now)
	}
	now = now.Add(mostPause)
	for id := dispatcherd.JobID(201); id <= 205; id++ {
		turns.Add(id, "", false)
	}
	turns.Add(300, "", true)
	var order []dispatcherd.JobID
	for range 16 {
		id := take(&turns, now)
		turns.Done(id, id%2 == 1 && id < 200, false, time.Millisecond, now)
		if id < 200 {
			id %= 2 // 1: it had more to do
		}
		order = append(order, id)
	}
	require.Equal(t, []dispatcherd.JobID{300, 201, 202, 0, 203, 204, 205, 1, 1, 1, 0, 1, 1, 1, 0, 1}, order)
}

// A batch that must wait for a moment, for the transaction that seals it, does not go behind those that have waited for long.
func TestTargetWithTheShortestPauseGoesBeforeOthersThatHavePaused(t *testing.T) {
	t.Parallel()
	var turns Turns
	now := start
	for id := dispatcherd.JobID(1); id <= 10; id++ {
		turns.Add(id, "", false)
	}
	for range 10 * 5 {
		turns.Done(take(&turns, now), true, true, time.Millisecond, now)
		now = now.Add(mostPause)
	}
	turns.Add(11, "", true)
	require.Equal(t, dispatcherd.JobID(11), take(&turns, now))
	turns.Done(11, true, true, time.Millisecond, now)
	now = now.Add(mostPause)
	require.Equal(t, dispatcherd.JobID(11), take(&turns, now))
}

// A producer inserts many flows at once. Those of others do not wait for all of them, neither at first nor while they have more to do.
func TestOwnersTakeTurns(t *testing.T) {
	t.Parallel()
	var turns Turns
	for id := dispatcherd.JobID(1); id <= 100; id++ {
		turns.Add(id, "many", false)
	}
	turns.Done(take(&turns, start), true, false, time.Millisecond, start)
	turns.Add(201, "few", false)
	turns.Add(202, "few", false)
	turns.Add(301, "one", false)
	var order []dispatcherd.JobID
	for range 14 {
		id := take(&turns, start)
		turns.Done(id, true, false, time.Millisecond, start)
		order = append(order, id)
	}
	require.Equal(t, []dispatcherd.JobID{2, 201, 1, 301, 3, 202, 201, 4, 5, 6, 2, 7, 8, 9}, order)
}

func TestTargetThatMustWaitPausesAloneAndLonger(t *testing.T) {
	t.Parallel()
	var turns Turns
	now := start
	turns.Add(1, "", false)
	for _, pause := range []time.Duration{2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000} {
		require.Equal(t, dispatcherd.JobID(1), take(&turns, now))
		turns.Done(1, true, true, time.Millisecond, now)
		turns.Add(2, "", true)
		require.Equal(t, dispatcherd.JobID(2), take(&turns, now), "another one does not wait")
		turns.Done(2, false, false, time.Millisecond, now)
		id, _, wait := turns.Next(now)
		require.Zero(t, id)
		require.Equal(t, pause*time.Millisecond, wait)
		now = now.Add(wait)
	}
}

func TestMessageDuringAStepIsNotForgotten(t *testing.T) {
	t.Parallel()
	var turns Turns
	turns.Add(1, "", true)
	require.Equal(t, dispatcherd.JobID(1), take(&turns, start))
	turns.Add(1, "", true)
	turns.Done(1, false, false, time.Millisecond, start)
	require.Equal(t, dispatcherd.JobID(1), take(&turns, start))
	turns.Done(1, false, false, time.Millisecond, start)
	require.Zero(t, take(&turns, start))
	require.Empty(t, turns.turns)
}

func TestLongRoundHalvesTheLimitsOfItsTarget(t *testing.T) {
	t.Parallel()
	var turns Turns
	turns.Add(1, "", true)
	items := func(took time.Duration) int {
		_, l, _ := turns.Next(start)
		turns.Done(1, true, false, took, start)
		return l.Items
	}
	require.Equal(t, 1000, items(time.Second))
	require.Equal(t, 500, items(time.Second))
	require.Equal(t, 250, items(30*time.Millisecond))
	require.Equal(t, 250, items(20*time.Millisecond))
	require.Equal(t, 500, items(time.Millisecond))
	require.Equal(t, 1000, items(time.Millisecond))
	for _, limit := range []int{1000, 500, 250, 125, 125} {
		require.Equal(t, limit, items(time.Second))
	}
	turns.Next(start)
	require.False(t, turns.Failed(1, true, start))
	later := start.Add(time.Second)
	_, l, _ := turns.Next(later)
	require.Equal(t, 31, l.Items, "failures halve them further")
	turns.Done(1, true, false, time.Second, later)
	require.Equal(t, 31, items(time.Second))
}

// The first steps of many large flows would each be long, and delay others.
func TestTargetBeginsWithTheLimitsOfTheLastOneThatHadMoreToDo(t *testing.T) {
	t.Parallel()
	var turns Turns
	now := start
	items := func(left bool, took time.Duration) int {
		id, l, _ := turns.Next(now)
		turns.Done(id, left, false, took, now)
		return l.Items
	}
	for id := range dispatcherd.JobID(3) {
		turns.Add(id+1, "", false)
	}
	require.Equal(t, 1000, items(true, time.Second))
	require.Equal(t, 500, items(false, time.Millisecond), "it was small, so its time says nothing")
	require.Equal(t, 500, items(true, time.Second))
	turns.Add(9, "", false)
	for _, limit := range []int{250, 125, 125} {
		require.Equal(t, limit, items(true, time.Second))
	}
	for _, limit := range []int{125, 125, 125, 250} {
		require.Equal(t, limit, items(true, time.Millisecond))
	}
}

func TestTargetWhoseSmallestStepFailsThreeTimesIsSetAside(t *testing.T) {
	t.Parallel()
	var turns Turns
	turns.Add(1, "", true)
	now := start
	for n := 1; ; n++ {
		id, l, wait := turns.Next(now)
		if now = now.Add(wait); id == 0 {
			n--
			continue
		}
		if turns.Failed(1, true, now) {
			require.Equal(t, 8, n)
			require.Equal(t, Limits{1, 4096, Full.Time >> smallest}, l)
			break
		}
	}
	require.Zero(t, take(&turns, now.Add(time.Hour)))
}

// A statement that takes too long may have any cause, for example a disk that does not answer.
func TestFailureOfUnknownCauseCountsOnlyIfOthersSucceedMeanwhile(t *testing.T) {
	t.Parallel()
	var turns Turns
	now := start
	fails := func() (aside bool) {
		now = now.Add(mostPause)
		require.Equal(t, dispatcherd.JobID(1), take(&turns, now))
		return turns.Failed(1, false, now)
	}
	turns.Add(1, "", false)
	for range 100 {
		require.False(t, fails())
	}
	for n := range 3 {
		turns.Add(2, "", true)
		require.Equal(t, dispatcherd.JobID(2), take(&turns, now))
		turns.Done(2, false, false, time.Millisecond, now)
		require.Equal(t, n == 2, fails())
	}
}

func TestTurnsAreBounded(t *testing.T) {
	t.Parallel()
	var turns Turns
	for id := dispatcherd.JobID(1); id <= mostTurns+10; id++ {
		turns.Add(id, "", true)
	}
	require.Len(t, turns.queues[0].targets, mostTurns)
}
