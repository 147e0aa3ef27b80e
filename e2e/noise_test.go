package e2e

import (
	"sync/atomic"
	"testing"
	"time"
)

// noise is what a shared machine takes away from a test: how late a goroutine is
// woken that has nothing else to do.
type noise struct{ wakes, late, stood atomic.Int64 }

// standstill is a wake so late that the machine was given to others meanwhile.
const standstill = 10 * time.Millisecond

// stoodStill is how long the machine was given to others so far, all in all.
func (n *noise) stoodStill() time.Duration { return time.Duration(n.stood.Load()) }

// usual is the mean by which a wake is late: what every hand-over costs.
func (n *noise) usual() time.Duration {
	return time.Duration(n.late.Load() / max(1, n.wakes.Load()))
}

// listenToNoise measures until the test ends. A bound on time that is what a test
// is about is extended by what was measured.
func listenToNoise(t *testing.T) *noise {
	t.Helper()
	const every = 2 * time.Millisecond
	n := &noise{}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		wake := time.NewTimer(every)
		defer wake.Stop()
		for {
			asleep := time.Now()
			select {
			case <-wake.C:
			case <-over:
				return
			}
			late := max(0, time.Since(asleep)-every)
			n.wakes.Add(1)
			n.late.Add(int64(late))
			if late >= standstill {
				n.stood.Add(int64(late))
			}
			wake.Reset(every)
		}
	}()
	t.Cleanup(func() {
		close(over)
		<-ended
	})
	return n
}
