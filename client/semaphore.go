package client

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"
)

// Semaphore admits work up to a total weight (article 5, "weighted semaphore"). Waiting calls
// are served in order of arrival, and a release assigns the weight directly to the first of
// them. A later call never gets weight that an earlier one waits for, even if it needs
// less.
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

// Acquire takes a weight of 1 or more, at most the total, and waits for it. If it returns the
// error of ctx, nothing was taken.
func (s *Semaphore) Acquire(ctx context.Context, weight int) error {
	if weight < 1 || weight > s.most {
		return fmt.Errorf("a weight of %d can never be admitted: give 1 to %d", weight, s.most)
	}
	return s.weighted.Acquire(ctx, int64(weight))
}

// Release returns weight. It panics if more is returned than was taken.
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
