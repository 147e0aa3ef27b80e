package concurrency

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"
)

// Semaphore admits work up to a total weight (article 5, "weighted semaphore"). It serves
// waiting calls in the order of arrival. A release assigns the weight directly to the first
// waiting call. So a later call never gets weight that an earlier call waits for, even if the
// later call needs less.
type Semaphore struct {
	most     int
	weighted *semaphore.Weighted
}

// NewSemaphore returns a semaphore of a total weight of at least 1.
func NewSemaphore(most int) *Semaphore {
	if most < 1 {
		panic(fmt.Sprintf("client: a semaphore of weight %d admits nothing", most))
	}
	return &Semaphore{most: most, weighted: semaphore.NewWeighted(int64(most))}
}

// Acquire waits until it can take the weight, which is from 1 to the total. If it returns an
// error, it has taken nothing.
func (s *Semaphore) Acquire(ctx context.Context, weight int) error {
	if weight < 1 || weight > s.most {
		return fmt.Errorf("a weight of %d can never be admitted: give 1 to %d", weight, s.most)
	}
	return s.weighted.Acquire(ctx, int64(weight))
}

// TryAcquire takes the weight and returns true if it fits and no call waits. So it never passes a
// waiting call. It returns false for a weight that can never be admitted, and for one below 1.
func (s *Semaphore) TryAcquire(weight int) bool {
	return weight >= 1 && s.weighted.TryAcquire(int64(weight))
}

// Release returns weight. It panics if more weight is returned than was taken.
func (s *Semaphore) Release(weight int) {
	if weight < 1 {
		panic(fmt.Sprintf("client: release of %d", weight))
	}
	s.weighted.Release(int64(weight))
}

// Wait waits until all weight that was admitted or queued before is released.
func (s *Semaphore) Wait(ctx context.Context) error {
	if err := s.Acquire(ctx, s.most); err != nil {
		return err
	}
	s.Release(s.most)
	return nil
}
