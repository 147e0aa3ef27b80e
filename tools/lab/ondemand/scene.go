package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// scene is a daemon with one worker process and one caller.
type scene struct {
	daemon *rig.Daemon
	worker *rig.Process
	caller *caller
}

func open(ctx context.Context, r *rig.Rig, dsn string, slots int, flags []string) (_ *scene, err error) {
	s := &scene{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.daemon, err = r.Daemon(ctx, dsn, "daemon", flags...); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if s.worker, err = rig.Run("worker", nil, self, workerProcess, s.daemon.Socket, strconv.Itoa(slots)); err != nil {
		return nil, err
	}
	if s.caller, err = dial(ctx, s.daemon.API); err != nil {
		return nil, err
	}
	return s, s.populate(ctx, slots)
}

// populate waits until the worker's slots are registered.
func (s *scene) populate(ctx context.Context, slots int) error {
	deadline := time.Now().Add(time.Minute)
	for {
		m, err := s.daemon.Metrics(ctx)
		if err != nil || m.State("slots") == float64(slots) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the worker's %d slots were not registered", slots)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *scene) close() error {
	var errs []error
	if s.caller != nil {
		errs = append(errs, s.caller.conn.Close())
	}
	if s.worker != nil {
		errs = append(errs, s.worker.Stop())
	}
	if s.daemon != nil {
		errs = append(errs, s.daemon.Close())
	}
	return errors.Join(errs...)
}

// sample calls f until enough returns true, and returns the durations in
// microseconds.
func sample(f func() (time.Duration, error), enough func(n int) bool) ([]float64, error) {
	var all []float64
	for n := 0; !enough(n); n++ {
		took, err := f()
		if err != nil {
			return nil, err
		}
		all = append(all, float64(took.Nanoseconds())/1000)
	}
	return all, nil
}
