package concurrency

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSemaphoreServesInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSemaphore(10)
		require.NoError(t, s.Acquire(t.Context(), 8))
		var order []int
		for n, weight := range []int{9, 2, 10, 3} { // 2 would fit at once, but 9 was first
			go func() {
				if s.Acquire(t.Context(), weight) != nil {
					return // the check of order below fails
				}
				order = append(order, weight)
				time.Sleep(time.Duration(n+1) * time.Second)
				s.Release(weight)
			}()
			synctest.Wait()
		}
		require.Empty(t, order)
		ctx, cancel := context.WithCancel(t.Context())
		cancelled := make(chan error, 1)
		go func() { cancelled <- s.Acquire(ctx, 3) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-cancelled, context.Canceled)
		s.Release(8)
		require.NoError(t, s.Wait(t.Context()))
		require.Equal(t, []int{9, 2, 10, 3}, order)
		require.Panics(t, func() { s.Release(1) })
		require.Panics(t, func() { NewSemaphore(0) })
	})
}

// Article 4, "Mutex": only one operation is in the critical section at a time. The article's two
// transfers of 100 from a balance of 150 would otherwise both succeed.
func TestSemaphoreOfWeightOneIsAMutex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mutex, balance, transfers := NewSemaphore(1), 150, 0
		for range 2 {
			go func() {
				if mutex.Acquire(t.Context(), 1) != nil {
					return // the check of transfers below fails
				}
				defer mutex.Release(1)
				if read := balance; read >= 100 {
					time.Sleep(time.Second) // the other transfer would read the same balance
					balance, transfers = read-100, transfers+1
				}
			}()
		}
		synctest.Wait()
		require.NoError(t, mutex.Wait(t.Context()))
		require.Equal(t, 1, transfers)
		require.Equal(t, 50, balance)
	})
}

// Articles 3 and 4: a release transfers the permit directly to the next waiting call. The permit
// is never free in between, so a call that comes after the release cannot take it.
func TestReleaseAssignsTheWeightToTheFirstWaitingCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSemaphore(1)
		require.True(t, s.TryAcquire(1))
		admitted := make(chan error, 1)
		go func() { admitted <- s.Acquire(t.Context(), 1) }()
		synctest.Wait()
		s.Release(1)
		require.False(t, s.TryAcquire(1), "the waiting call holds it, even before its goroutine runs")
		require.NoError(t, <-admitted)
	})
}

// Defect of articles 4 and 5: their acquire admits any call that fits, past the queue, so that a
// heavy call starves. Here neither Acquire nor TryAcquire passes a waiting call.
func TestTryAcquireNeverPassesAWaitingCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSemaphore(10)
		require.True(t, s.TryAcquire(8))
		require.False(t, s.TryAcquire(3), "2 are free")
		ctx, cancel := context.WithCancel(t.Context())
		heavy := make(chan error, 1)
		go func() { heavy <- s.Acquire(ctx, 9) }()
		synctest.Wait()
		require.False(t, s.TryAcquire(2), "2 are free, but a call waits")
		cancel()
		require.ErrorIs(t, <-heavy, context.Canceled)
		require.True(t, s.TryAcquire(2))
		require.False(t, s.TryAcquire(1))
		s.Release(10)
	})
}

// Article 4, "Weighted Semaphore": a weight above the maximum is an error. It would wait without
// end, and the calls behind it too.
func TestWeightThatCanNeverBeAdmittedIsRefusedAtOnce(t *testing.T) {
	s := NewSemaphore(10)
	for _, weight := range []int{-1, 0, 11} {
		require.ErrorContains(t, s.Acquire(t.Context(), weight), "give 1 to 10")
		require.False(t, s.TryAcquire(weight))
	}
	require.True(t, s.TryAcquire(10), "nothing was taken")
	require.Panics(t, func() { s.Release(0) })
}

// Article 5: one release of a heavy call starts all three light calls that it leaves room for, and
// stops at the first one without room.
func TestReleaseOfAHeavyCallAdmitsSeveralLightCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSemaphore(10)
		require.True(t, s.TryAcquire(4))
		require.True(t, s.TryAcquire(6))
		var admitted [5]atomic.Bool
		for n, weight := range []int{1, 1, 1, 2, 1} {
			go func() { admitted[n].Store(s.Acquire(t.Context(), weight) == nil) }()
			synctest.Wait()
		}
		count := func() (n int) {
			synctest.Wait()
			for n < len(admitted) && admitted[n].Load() {
				n++
			}
			return n
		}
		require.Zero(t, count())
		s.Release(4)
		require.Equal(t, 3, count(), "2 do not fit")
		require.False(t, admitted[4].Load(), "1 would fit, but is behind them")
		s.Release(6)
		require.Equal(t, 5, count())
	})
}

// Article 5, "wait": with a capacity of 100 and 5 employees the loop ends at once. Wait ends when
// the last call has released its weight.
func TestSemaphoreWaitEndsAfterTheLastRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := NewSemaphore(100), time.Now()
		for n := range 5 {
			require.NoError(t, s.Acquire(t.Context(), 1))
			go func() {
				time.Sleep(time.Duration(n) * time.Second)
				s.Release(1)
			}()
		}
		require.Zero(t, time.Since(began), "nothing waited")
		require.NoError(t, s.Wait(t.Context()))
		require.Equal(t, 4*time.Second, time.Since(began))
		require.True(t, s.TryAcquire(100), "Wait takes nothing")
	})
}

// Defect of article 5: its wait starves while light calls keep arriving, because each of them
// passes it.
func TestSemaphoreWaitIsNotPassedByLaterCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s, began := NewSemaphore(3), time.Now()
		for range 2 {
			go func() { // at each instant at least one of the two holds weight or asks for it
				for s.Acquire(ctx, 1) == nil {
					time.Sleep(time.Second)
					s.Release(1)
				}
			}()
			time.Sleep(time.Second / 2)
		}
		waiting, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		require.NoError(t, s.Wait(waiting))
		require.LessOrEqual(t, time.Since(began), 2*time.Second)
		cancel()
		time.Sleep(time.Hour) // the two goroutines end
	})
}

// Articles 4 and 5: calls that fit are admitted, in the order of arrival. The reference model does
// the same with two slices.
func TestSemaphoreEqualsTheReferenceModel(t *testing.T) {
	compareWithModel(t, newSemaphoreOf5, func(held []arrival, weight int) bool {
		for _, h := range held {
			weight += h.weight
		}
		return weight <= 5
	})
}

func TestCancelDuringReleaseLosesNoWeight(t *testing.T) {
	requireNothingIsLostByCancelDuringRelease(t, newSemaphoreOf5)
}

func newSemaphoreOf5() admission {
	s := NewSemaphore(5)
	return admission{most: 5, acquire: s.Acquire, try: s.TryAcquire, release: s.Release}
}
