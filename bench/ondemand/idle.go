package main

import (
	"context"
	"errors"
	"time"

	"github.com/dispatcherd/dispatcherd/bench/internal/echo"
	"github.com/dispatcherd/dispatcherd/bench/internal/rig"
)

const (
	idleSlots = 4
	blockSize = 200 // requests, or pairs of echoes, until it is the others' turn
	warmUp    = 10  // blocks that do not count
)

// quiet is what was measured with nothing else to do; microseconds.
type quiet struct{ echoes, requests []float64 }

func measureIdle(ctx context.Context, r *rig.Rig, p plan, flags []string) (res quiet, err error) {
	dsn, err := r.FreshJobs(ctx, "idle")
	if err != nil {
		return res, err
	}
	s, err := open(ctx, r, dsn, idleSlots, flags)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	e, err := echo.Start(ctx)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	block := func(n int) bool { return n == blockSize }
	for i := range warmUp + p.blocks {
		echoes, err := sample(func() (time.Duration, error) { return e.Trips(2) }, block)
		if err != nil {
			return res, err
		}
		requests, err := sample(s.caller.ask, block)
		if err != nil {
			return res, err
		}
		if i >= warmUp {
			res.echoes, res.requests = append(res.echoes, echoes...), append(res.requests, requests...)
		}
		if err := ctx.Err(); err != nil {
			return res, err
		}
	}
	return res, nil
}
