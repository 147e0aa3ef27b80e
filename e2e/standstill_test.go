package e2e

import (
	"sync/atomic"
	"testing"
	"time"
)

// noise measures how late an idle goroutine is woken on a shared machine.
type noise struct{ wakes, late, stood atomic.Int64 }

// standstill is the delay from which on the process counts as stalled.
const standstill = 10 * time.Millisecond

// stoodStill returns the total time for which the process was stalled.
func (n *noise) stoodStill() time.Duration { return time.Duration(n.stood.Load()) }

// usual returns the mean delay of a wake-up.
func (n *noise) usual() time.Duration {
	return time.Duration(n.late.Load() / max(1, n.wakes.Load()))
}

// measureNoise measures until the test ends. Tests add the measured delays to their time
// bounds.
func measureNoise(t *testing.T) *noise {
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
