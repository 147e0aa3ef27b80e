package background

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Observer receives the results of steps. Its methods must not block.
type Observer interface {
	// Stepped reports a step that has ended. err is not nil if it failed or was discontinued.
	Stepped(service string, took time.Duration, outcome Outcome, err error)
}

// Runner runs services, each in a goroutine of its own, because a step may wait for Postgres.
type Runner struct {
	observer Observer
	services []*running
}

// running is a service with its goroutine.
type running struct {
	Service

	wake  chan struct{} // capacity 1: the turn has changed
	state chan struct{} // capacity 1: contains a value while a step or a caller of Between uses the state of the service

	mu     sync.Mutex
	turn   *Turn
	cancel context.CancelFunc // of the step in progress
}

// New returns a Runner for the services that have a Step. None runs before Run.
func New(o Observer, services ...Service) *Runner {
	r := &Runner{observer: o}
	for _, s := range services {
		if s.Step == nil {
			continue
		}
		one := &running{Service: s, wake: make(chan struct{}, 1), state: make(chan struct{}, 1), cancel: func() {}}
		one.turn = NewTurn(&one.Service, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
		r.services = append(r.services, one)
	}
	return r
}

// Run runs the services until ctx is done. Then it cancels the steps in progress and waits for them.
func (r *Runner) Run(ctx context.Context) {
	var group sync.WaitGroup
	for _, s := range r.services {
		group.Go(func() { s.run(ctx, r.observer) })
	}
	group.Wait()
}

// Wake causes steps of the services that have one of the topics. It never blocks.
func (r *Runner) Wake(topics contract.Topics) {
	for _, s := range r.services {
		if s.Topics&topics != 0 {
			s.note(func(t *Turn) bool { t.Wake(topics); return false })
		}
	}
}

// Beat tells the services what a heartbeat found. It never blocks.
func (r *Runner) Beat(b Beat) {
	for _, s := range r.services {
		s.note(func(t *Turn) bool { return t.Beat(b) })
	}
}

// Between calls f while no step of the named service uses its state. It returns false, without a call, if the service is not ready, see
// [Turn.Ready], or ctx is done before. f must not wait.
func (r *Runner) Between(ctx context.Context, name string, f func()) bool {
	for _, s := range r.services {
		if s.Name == name {
			return s.between(ctx, f)
		}
	}
	return false
}

func (s *running) between(ctx context.Context, f func()) bool {
	if !s.ready() {
		return false
	}
	select {
	case s.state <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-s.state }()
	if !s.ready() {
		return false
	}
	f()
	return true
}

// ready reports whether the state of the service may be used.
func (s *running) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn.Ready()
}

// note changes the turn, and cancels the step in progress if change returns true.
func (s *running) note(change func(*Turn) (cancel bool)) {
	s.mu.Lock()
	if change(s.turn) {
		s.cancel()
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run does the steps until ctx is done.
func (s *running) run(ctx context.Context, o Observer) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		s.mu.Lock()
		pause := s.turn.Pause(time.Now())
		s.mu.Unlock()
		if pause == 0 {
			s.step(ctx, o)
			continue
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// step does one step.
func (s *running) step(ctx context.Context, o Observer) {
	select {
	case s.state <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-s.state }()
	s.mu.Lock()
	now := s.turn.Begin(time.Now())
	step, cancel := context.WithCancel(ctx)
	s.cancel = cancel
	s.mu.Unlock()
	wait, err := s.Do(step, now)
	ended := time.Now()
	s.mu.Lock()
	cancel()
	outcome := s.turn.End(ended, wait, err)
	s.mu.Unlock()
	if ctx.Err() == nil {
		o.Stepped(s.Name, ended.Sub(now.At), outcome, err)
	}
}
