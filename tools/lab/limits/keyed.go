package main

import (
	"context"
	"errors"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// Keyed measures the rate of jobs with 10,000 keys that never fill, as a share of the rate of the same jobs without keys.
func Keyed(ctx context.Context, env *rig.Rig, name string, daemons, n int, bound float64) (f figure.Figures, err error) {
	st, err := stage.Start(ctx, env, stage.Timed(name, daemons, max(1, 4/daemons), 250))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close(ctx)) }()
	if err := st.Exec(ctx, `INSERT INTO dispatcherd.limits (key, capacity) VALUES ('k:*', 1000000)`); err != nil {
		return nil, err
	}
	keyed, plain := stage.Jobs{N: n, Column: "keys", Value: `'k:' || i % 10000`}, stage.Jobs{N: n}
	for _, jobs := range []stage.Jobs{keyed, plain} { // one of each before the rounds: all files exist
		jobs.N /= 10
		if _, err := jobs.Drain(ctx, st); err != nil {
			return nil, err
		}
	}
	ratio, err := rig.Compare(name, func(with bool) (float64, error) {
		if with {
			return keyed.Drain(ctx, st)
		}
		return plain.Drain(ctx, st)
	})
	return figure.Figures{figure.AtLeast(name, ratio, bound)}, err
}
