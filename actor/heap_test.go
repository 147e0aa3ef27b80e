package actor

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/scoring"
)

func TestAlarmsFireInOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for range 200 {
		c := New(DefaultConfig())
		var armed []*job
		for id := range dispatcherd.JobID(60) {
			j := &job{id: id}
			armed = append(armed, j)
			c.arm(j, timing.Instant(rng.IntN(20)))
			switch k := armed[rng.IntN(len(armed))]; rng.IntN(3) {
			case 0:
				c.disarm(k)
				c.disarm(k) // setting an alarm twice is allowed
			case 1:
				c.arm(k, timing.Instant(rng.IntN(20))) // replaces the earlier alarm
			}
			require.NoError(t, c.checkAlarms())
		}
		var got []*job
		for c.firstAlarm() != timing.Never {
			got = append(got, c.alarms[0])
			c.disarm(c.alarms[0])
		}
		require.True(t, slices.IsSortedFunc(got, func(a, b *job) int {
			return cmp.Or(cmp.Compare(a.deadline, b.deadline), cmp.Compare(a.id, b.id))
		}))
		require.Greater(t, len(got), 20)
	}
}

func TestBestHeadIsOnTopAfterEveryChange(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	draw := func(n int64) head {
		return head{score: scoring.Milli(rng.IntN(4)), arrival: int64(rng.IntN(3)), number: n / 2, mode: dispatcherd.Mode(n % 2)}
	}
	for range 500 {
		var h headHeap
		for n := range int64(rng.IntN(20)) {
			h = append(h, draw(n))
		}
		h.init()
		for len(h) > 0 {
			best := slices.MinFunc(h, compareHeads)
			require.Equal(t, best, h[0])
			if rng.IntN(2) == 0 {
				h.pop()
			} else {
				worse := h[0]
				worse.score--
				h.replaceTop(worse)
			}
		}
	}
}

func compareHeads(a, b head) int {
	switch {
	case a.before(&b):
		return -1
	case b.before(&a):
		return 1
	}
	return 0
}
