package shell

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// heard returns what a heartbeat reads about dispatcher 7.
func heard(beatAt int64) []contract.Heard {
	return []contract.Heard{{ID: 7, BeatAt: beatAt, Lease: length}}
}

// lost is that dispatcher 7 is lost unless it has sent a heartbeat since beatAt.
func lost(beatAt int64) []contract.Silent { return []contract.Silent{{ID: 7, BeatAt: beatAt}} }

// observe sends a heartbeat each second. Each takes 100 ms. It returns when dispatcher 7 is
// first found lost, or 0 if it is not lost at the end.
func observe(s *Silence, from, to time.Duration, beatAt func(now time.Duration) int64) time.Duration {
	for now := from; now <= to; now += time.Second {
		if s.Observe(now, now+100*time.Millisecond, heard(beatAt(now))) != nil {
			return now
		}
	}
	return 0
}

func TestDispatcherIsLostAfterALeaseOfObservedSilence(t *testing.T) {
	s := NewSilence(time.Second, 4*time.Second)
	silent := func(time.Duration) int64 { return 5 }
	require.Equal(t, length+time.Second, observe(&s, 0, time.Minute, silent), "the first observation begins with the answer")
	require.Equal(t, lost(5), s.Observe(12*time.Second, 12*time.Second, heard(5)), "until a heartbeat declares it lost")
	require.Nil(t, s.Observe(13*time.Second, 13*time.Second, heard(6)), "it has sent a heartbeat")
	require.Nil(t, s.Observe(14*time.Second, 14*time.Second, nil))
	require.Nil(t, s.Observe(15*time.Second, 15*time.Second, heard(6)))
}

func TestLivingDispatcherIsNotLostWhateverItsClockShows(t *testing.T) {
	s := NewSilence(time.Second, 4*time.Second)
	steps := []int64{0, 3_600_000_000, -3_600_000_000}
	require.Zero(t, observe(&s, 0, time.Minute, func(now time.Duration) int64 { return now.Microseconds() + steps[now/time.Second%3] }))
}

func TestDispatcherWithAHeartbeatInTheFutureIsLostAfterALease(t *testing.T) {
	s := NewSilence(time.Second, 4*time.Second)
	require.Equal(t, length+time.Second, observe(&s, 0, time.Minute, func(time.Duration) int64 { return 1 << 60 }))
}

// All dispatchers lose Postgres for a minute. The first one that connects again must wait
// for the heartbeats of the others.
func TestOutageIsNoSilence(t *testing.T) {
	s := NewSilence(time.Second, 4*time.Second)
	silent := func(time.Duration) int64 { return 5 }
	require.Zero(t, observe(&s, 0, 5*time.Second, silent))
	again := time.Minute
	require.Equal(t, again+length-7*time.Second, observe(&s, again, 2*time.Minute, silent),
		"4.9 s before the outage and three intervals of it count")
}

// The outages are 3 s apart. After each, this dispatcher connects at once, and an attempt of
// another one that began in the outage hangs for up to 5 s. The other one sends one heartbeat
// in two and a half leases.
func TestRepeatedOutagesAreNoSilence(t *testing.T) {
	l, c := newLease(0), core(0)
	for now := time.Duration(0); now < 10*time.Minute; now += time.Second {
		require.Nil(t, l.BeginHeartbeat(now, c, nil).Silent, "after %v", now)
		if now/time.Second%4 != 3 { // otherwise it fails
			l.HeartbeatAnswered(now, contract.HeartbeatResult{Others: heard(int64(now / (25 * time.Second)))})
		}
	}
}

func TestDispatcherIsLostAlthoughHeartbeatsOfTheObserverFail(t *testing.T) {
	for _, every := range []time.Duration{2, 3, 4, 9} {
		l, c := NewLease(length, time.Second, 4*time.Second, 0), core(0)
		for now := time.Duration(0); l.BeginHeartbeat(now, c, nil).Silent == nil; now += time.Second {
			require.LessOrEqual(t, now, maxSilence*length+2*time.Second, "one failure in %d", every)
			if now/time.Second%every != every-1 {
				l.HeartbeatAnswered(now, contract.HeartbeatResult{Others: heard(5)})
			}
		}
	}
}

// A suspended process finds one answer from before the suspension and one from after it.
func TestSuspensionOfTheObserverIsNoSilence(t *testing.T) {
	s := NewSilence(time.Second, 4*time.Second)
	require.Nil(t, s.Observe(0, 0, heard(5)))
	require.Nil(t, s.Observe(time.Second, time.Hour, heard(5)))
	require.Nil(t, s.Observe(time.Hour, time.Hour, heard(5)))
	require.Nil(t, s.Observe(time.Hour+time.Second, time.Hour+time.Second, heard(6)))
}

func TestHeartbeatDeclaresTheSilentDispatcherLost(t *testing.T) {
	l, c := newLease(0), core(0)
	var last contract.HeartbeatRequest
	for now := time.Duration(0); now <= length; now += time.Second {
		last = l.BeginHeartbeat(now, c, nil)
		require.Nil(t, last.Silent)
		l.HeartbeatAnswered(now, contract.HeartbeatResult{Others: heard(5)})
	}
	require.Equal(t, lost(5), l.BeginHeartbeat(11*time.Second, c, nil).Silent)
}

// sent returns the next heartbeat, which succeeds.
func sent(l *Lease, now time.Duration, c *actor.Core) contract.HeartbeatRequest {
	r := l.BeginHeartbeat(now, c, nil)
	l.HeartbeatAnswered(now, contract.HeartbeatResult{})
	return r
}

func TestRowMayContainHeartbeatsOfTheLastTwoLeases(t *testing.T) {
	l, c := newLease(0), core(0)
	for now := time.Duration(0); now < time.Minute; now += time.Second {
		r := sent(&l, now, c)
		at := int64(now / time.Second)
		require.Equal(t, at+1, r.Beat)
		require.LessOrEqual(t, r.OldestBeat, max(0, r.Beat-10), "a failover may lose the heartbeats of a lease")
		require.GreaterOrEqual(t, r.OldestBeat, r.Beat-21)
	}
	l.HeartbeatAnswered(time.Minute, contract.HeartbeatResult{LeaseLost: true})
	l.Joined()
	require.Zero(t, l.BeginHeartbeat(time.Minute, c, nil).OldestBeat, "the new row contains 0")
}

// So a loss is declared soon, and not up to two pauses later.
func TestNextHeartbeatBeginsWhenAnotherDispatcherIsLost(t *testing.T) {
	l := newLease(0)
	beat := func(now time.Duration) {
		l.BeginHeartbeat(now, core(1), nil)
		l.HeartbeatAnswered(now, contract.HeartbeatResult{Others: heard(5)})
	}
	beat(0)
	usual := l.Pause(false)
	beat(usual)
	require.Equal(t, usual, l.Pause(false), "the lease ends later")
	for now := usual + time.Second; now < length-time.Second; now += time.Second {
		beat(now)
	}
	beat(length - 500*time.Millisecond)
	require.Equal(t, 500*time.Millisecond, l.Pause(false))
	beat(length)
	require.Equal(t, retryHeartbeat, l.Pause(false), "the next heartbeat declares it lost")
	require.Equal(t, lost(5), l.BeginHeartbeat(length+retryHeartbeat, core(1), nil).Silent)
}
