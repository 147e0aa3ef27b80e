package concurrency

import (
	"context"
	"math"
	"sync/atomic"
)

// RWLock is held by any number of readers or by one writer (article 4, "ReadWriteLock"). It serves
// waiting calls in the order of arrival. So a reader that arrives behind a waiting writer waits
// for it, also if readers hold the lock. A release assigns the lock directly to the next waiting
// calls: one writer, or all readers up to the next writer. If the context of a waiting call ends,
// the calls behind it move up at once.
//
// In article 4 a writer that ends also admits the readers that wait behind the next writer. Here
// the order is strict.
//
// A goroutine that holds the lock must not wait for it again: a writer that arrived in between would
// wait for the goroutine, and the goroutine for the writer. Use [NewRWLock].
type RWLock struct {
	admitted *Semaphore   // a reader takes 1, a writer everything
	holders  atomic.Int64 // number of readers, or byWriter; changed by holders only
}

const (
	mostReaders = math.MaxInt
	byWriter    = -1
)

// NewRWLock returns a lock that is not held.
func NewRWLock() *RWLock { return &RWLock{admitted: NewSemaphore(mostReaders)} }

// RLock waits until it holds the lock as a reader. If it returns an error, which is that of ctx, it
// does not hold the lock.
func (l *RWLock) RLock(ctx context.Context) error {
	if err := l.admitted.Acquire(ctx, 1); err != nil {
		return err
	}
	l.holders.Add(1)
	return nil
}

// TryRLock takes the lock as a reader and returns true if no writer holds it and no call waits.
func (l *RWLock) TryRLock() bool {
	taken := l.admitted.TryAcquire(1)
	if taken {
		l.holders.Add(1)
	}
	return taken
}

// RUnlock releases the lock of one reader. It panics if no reader holds the lock. After that panic
// the lock must not be used.
func (l *RWLock) RUnlock() {
	if l.holders.Add(-1) < 0 {
		panic("client: RUnlock of an RWLock that no reader holds")
	}
	l.admitted.Release(1)
}

// Lock waits until it holds the lock as the writer. If it returns an error, which is that of ctx,
// it does not hold the lock.
func (l *RWLock) Lock(ctx context.Context) error {
	if err := l.admitted.Acquire(ctx, mostReaders); err != nil {
		return err
	}
	l.holders.Store(byWriter)
	return nil
}

// TryLock takes the lock as the writer and returns true if the lock is not held and no call waits
// (article 4, "tryLock").
func (l *RWLock) TryLock() bool {
	taken := l.admitted.TryAcquire(mostReaders)
	if taken {
		l.holders.Store(byWriter)
	}
	return taken
}

// Unlock releases the lock of the writer. It panics if no writer holds the lock.
func (l *RWLock) Unlock() {
	if !l.holders.CompareAndSwap(byWriter, 0) {
		panic("client: Unlock of an RWLock that no writer holds")
	}
	l.admitted.Release(mostReaders)
}
