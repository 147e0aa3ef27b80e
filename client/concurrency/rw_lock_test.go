package concurrency

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// lockTrial is an RWLock with calls that hold it for a given time.
type lockTrial struct {
	*RWLock
	read, write func(name string, hold time.Duration) // return when the call holds the lock or waits
	wantStarts  func(map[string]time.Duration)        // compares when each call got the lock, after all have ended
}

func tryLock(t *testing.T, trial func(t *testing.T, l lockTrial)) {
	synctest.Test(t, func(t *testing.T) {
		l, began := lockTrial{RWLock: NewRWLock()}, time.Now()
		var mu sync.Mutex
		starts := map[string]time.Duration{}
		begin := func(lock func(context.Context) error, unlock func()) func(string, time.Duration) {
			return func(name string, hold time.Duration) {
				go func() {
					if lock(t.Context()) != nil {
						return // wantStarts fails
					}
					mu.Lock()
					starts[name] = time.Since(began)
					mu.Unlock()
					time.Sleep(hold)
					unlock()
				}()
				synctest.Wait()
			}
		}
		l.read, l.write = begin(l.RLock, l.RUnlock), begin(l.Lock, l.Unlock)
		l.wantStarts = func(want map[string]time.Duration) {
			time.Sleep(time.Hour)
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, want, starts)
		}
		trial(t, l)
	})
}

// Article 4: ten concurrent reads proceed simultaneously. One write waits for all reads to finish.
func TestReadersShareTheLockAndAWriterWaitsForAll(t *testing.T) {
	tryLock(t, func(_ *testing.T, l lockTrial) {
		want := map[string]time.Duration{}
		for n := range 10 {
			name := fmt.Sprint("reader ", n)
			l.read(name, time.Duration(n+1)*time.Second)
			want[name] = 0
		}
		l.write("writer", time.Second)
		want["writer"] = 10 * time.Second
		l.wantStarts(want)
	})
}

// Article 4: a writer has exclusive access. It blocks all readers and other writers.
func TestWriterBlocksReadersAndOtherWriters(t *testing.T) {
	tryLock(t, func(t *testing.T, l lockTrial) {
		l.write("first", 3*time.Second)
		require.False(t, l.TryLock())
		require.False(t, l.TryRLock())
		l.write("second", time.Second)
		l.read("reader", time.Second)
		l.wantStarts(map[string]time.Duration{"first": 0, "second": 3 * time.Second, "reader": 4 * time.Second})
	})
}

// Article 4: a reader gets the lock if no writer holds it and none waits, so that a writer does not
// starve. Readers arrive without end here, and the writer waits for those that came before it.
func TestReadersBehindAWaitingWriterWait(t *testing.T) {
	tryLock(t, func(t *testing.T, l lockTrial) {
		l.read("early", 2*time.Second)
		l.write("writer", time.Second)
		require.False(t, l.TryRLock(), "only a reader holds the lock, but a writer waits")
		want := map[string]time.Duration{"early": 0, "writer": 2 * time.Second}
		for n := range 5 {
			name := fmt.Sprint("late ", n)
			l.read(name, 5*time.Second)
			want[name] = 3 * time.Second // all readers up to the next writer, at once
		}
		l.wantStarts(want)
	})
}

// Defect of article 4: a writer that ends also admits the readers behind the next writer.
func TestReadersBehindTheNextWriterDoNotPassIt(t *testing.T) {
	tryLock(t, func(_ *testing.T, l lockTrial) {
		l.write("first writer", time.Second)
		l.read("reader", time.Second)
		l.read("second reader", 2*time.Second)
		l.write("next writer", time.Second)
		l.read("reader behind it", time.Second)
		l.wantStarts(map[string]time.Duration{
			"first writer": 0, "reader": time.Second, "second reader": time.Second,
			"next writer": 3 * time.Second, "reader behind it": 4 * time.Second,
		})
	})
}

// Article 4: the release itself sets the new holder. A call that comes between the release and the
// new holder's next step cannot take the lock.
func TestReleaseAssignsTheLockToTheNextHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewRWLock()
		got := make(chan error)
		for _, next := range []struct {
			lock   func(context.Context) error
			unlock func()
		}{{l.Lock, l.Unlock}, {l.RLock, l.RUnlock}} {
			require.True(t, l.TryLock())
			go func() { got <- next.lock(t.Context()) }()
			synctest.Wait()
			l.Unlock()
			require.False(t, l.TryLock(), "the waiting call holds it, even before its goroutine runs")
			require.NoError(t, <-got)
			next.unlock()
		}
	})
}

// Article 4, "CancellablePromise": a waiting operation can be cancelled. A writer that stops waiting
// no longer blocks the readers behind it.
func TestCancelledWriterAdmitsTheReadersBehindItAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewRWLock()
		require.NoError(t, l.RLock(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		writer, readers := make(chan error, 1), make(chan error, 3)
		go func() { writer <- l.Lock(ctx) }()
		synctest.Wait()
		for range cap(readers) {
			go func() { readers <- l.RLock(t.Context()) }()
		}
		synctest.Wait()
		require.Empty(t, readers)
		cancel()
		require.ErrorIs(t, <-writer, context.Canceled)
		synctest.Wait()
		require.Len(t, readers, cap(readers))
		for range cap(readers) + 1 {
			l.RUnlock()
		}
		require.ErrorIs(t, l.RLock(ctx), context.Canceled, "an ended context gets no lock, even a free one")
		require.ErrorIs(t, l.Lock(ctx), context.Canceled)
		require.True(t, l.TryLock())
	})
}

// Article 4, "unlock": to unlock what is not locked is an error.
func TestUnlockOfWhatIsNotHeldPanics(t *testing.T) {
	locked := func(lock func(*RWLock) bool) *RWLock {
		l := NewRWLock()
		require.True(t, lock(l))
		return l
	}
	for name, unlock := range map[string]func(){
		"Unlock of a free lock":      NewRWLock().Unlock,
		"Unlock of a reader's lock":  locked((*RWLock).TryRLock).Unlock,
		"RUnlock of a free lock":     NewRWLock().RUnlock,
		"RUnlock of a writer's lock": locked((*RWLock).TryLock).RUnlock,
	} {
		require.Regexp(t, "^client: R?Unlock of an RWLock that no (reader|writer) holds$", panicOf(unlock), name)
	}
}

func newRWLockAdmission() admission {
	l := NewRWLock()
	return admission{
		most: 2,
		acquire: func(ctx context.Context, weight int) error {
			if weight == 2 {
				return l.Lock(ctx)
			}
			return l.RLock(ctx)
		},
		try: func(weight int) bool { return weight == 2 && l.TryLock() || weight == 1 && l.TryRLock() },
		release: func(weight int) {
			if weight == 2 {
				l.Unlock()
			} else {
				l.RUnlock()
			}
		},
	}
}

// The reference model is a queue. Its first call is admitted if it is a writer and nothing is held,
// or if it is a reader and no writer holds the lock.
func TestRWLockEqualsTheReferenceModel(t *testing.T) {
	compareWithModel(t, newRWLockAdmission, func(held []arrival, weight int) bool {
		return len(held) == 0 || weight == 1 && held[0].weight == 1
	})
}

func TestCancelDuringUnlockLosesNoLock(t *testing.T) {
	requireNothingIsLostByCancelDuringRelease(t, newRWLockAdmission)
}
