package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

const (
	idleSlots = 4
	blockSize = 200 // number of requests back to back before the next system's turn
	gapSize   = 20  // number of requests with a pause before each
	gap       = 5 * time.Millisecond
	warmUp    = 5 // number of warm-up blocks
)

// trips contains the durations of the requests of one system in microseconds.
type trips struct{ backToBack, gapped []float64 }

// measureIdle measures all systems in turn, block by block, on an otherwise idle
// machine. The result is indexed by the system's name.
func measureIdle(ctx context.Context, r *rig.Rig, p plan, flags []string) (all map[string]*trips, err error) {
	dsn, err := r.FreshJobs(ctx, "idle")
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, r, dsn, idleSlots, flags)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	systems, err := s.systems(ctx)
	defer func() {
		for _, sys := range systems {
			err = errors.Join(err, sys.close())
		}
	}()
	if err != nil {
		return nil, err
	}
	all = map[string]*trips{}
	for i := range warmUp + p.blocks {
		for _, sys := range systems {
			back, gapped, err := sys.block(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", sys.name, err)
			}
			if all[sys.name] == nil {
				all[sys.name] = &trips{}
			}
			if t := all[sys.name]; i >= warmUp {
				t.backToBack, t.gapped = append(t.backToBack, back...), append(t.gapped, gapped...)
			}
		}
	}
	return all, nil
}

// systems opens the systems. If one fails, it returns those that are open.
func (s *scene) systems(ctx context.Context) (all []*system, err error) {
	for _, open := range []func() (*system, error){
		func() (*system, error) { return s.throughClient(ctx) },
		func() (*system, error) { return s.throughHTTP(), nil },
		openNATS,
	} {
		sys, err := open()
		if err != nil {
			return all, err
		}
		all = append(all, sys)
	}
	return all, nil
}

// block measures some requests back to back, and some with a pause before each.
func (s *system) block(ctx context.Context) (back, gapped []float64, err error) {
	timed := func() (time.Duration, error) {
		began := time.Now()
		err := s.ask()
		return time.Since(began), err
	}
	if back, err = sample(timed, func(n int) bool { return n == blockSize }); err != nil {
		return nil, nil, err
	}
	gapped, err = sample(func() (time.Duration, error) {
		time.Sleep(gap)
		return timed()
	}, func(n int) bool { return n == gapSize })
	return back, gapped, errors.Join(err, ctx.Err())
}
