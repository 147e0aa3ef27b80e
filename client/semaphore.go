package client

import (
	"container/list"
	"context"
	"fmt"
	"sync"
)

// Semaphore admits work up to a total weight (article 5, "weighted semaphore"). Waiting calls
// are served in order of arrival, and a release assigns the weight directly to the first of
// them. A later call never gets weight that an earlier one waits for, also if it asks for
// less.
type Semaphore struct {
	most int

	mu      sync.Mutex
	taken   int
	waiting list.List // of *ticket
}

type ticket struct {
	weight int
	ready  chan struct{} // closed when the weight was handed over
}

// NewSemaphore returns a semaphore of a total weight of at least 1.
func NewSemaphore(most int) *Semaphore {
	if most < 1 {
		panic(fmt.Sprintf("client: a semaphore of weight %d admits nothing", most))
	}
	return &Semaphore{most: most}
}

// Acquire takes a weight of 1 or more, at most the total, and waits for it. If it returns the
// error of ctx, nothing was taken.
func (s *Semaphore) Acquire(ctx context.Context, weight int) error {
	if weight < 1 || weight > s.most {
		return fmt.Errorf("a weight of %d can never be admitted: give 1 to %d", weight, s.most)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.waiting.Len() == 0 && s.taken+weight <= s.most {
		s.taken += weight
		s.mu.Unlock()
		return nil
	}
	me := &ticket{weight: weight, ready: make(chan struct{})}
	at := s.waiting.PushBack(me)
	s.mu.Unlock()
	select {
	case <-me.ready:
		return nil
	case <-ctx.Done():
		s.giveUp(at)
		return ctx.Err()
	}
}

// giveUp removes the ticket from the queue, or returns weight that was assigned meanwhile.
func (s *Semaphore) giveUp(at *list.Element) {
	s.mu.Lock()
	defer s.mu.Unlock()
	me := at.Value.(*ticket)
	select {
	case <-me.ready:
		s.taken -= me.weight
	default:
		s.waiting.Remove(at)
	}
	s.handOver() // a smaller one may have waited after it
}

// Release returns weight. It panics if more is returned than was taken.
func (s *Semaphore) Release(weight int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if weight < 1 || weight > s.taken {
		panic(fmt.Sprintf("client: release of %d, but %d is taken", weight, s.taken))
	}
	s.taken -= weight
	s.handOver()
}

func (s *Semaphore) handOver() {
	for at := s.waiting.Front(); at != nil; at = s.waiting.Front() {
		next := at.Value.(*ticket)
		if s.taken+next.weight > s.most {
			return
		}
		s.waiting.Remove(at)
		s.taken += next.weight
		close(next.ready)
	}
}

// Wait waits until all weight that was admitted or queued before is released.
func (s *Semaphore) Wait(ctx context.Context) error {
	if err := s.Acquire(ctx, s.most); err != nil {
		return err
	}
	s.Release(s.most)
	return nil
}
