package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// The lanes are the products of types, eleven priorities, and nine classes. Meanwhile jobs run, 2,000 in a second, so that fetches do not
// compete with other work for processors.
const (
	types   = 100
	running = 100_000
	slots   = 200
	takes   = 100 // milliseconds
)

// Fetch measures the 99th percentile of the time of a fetch while jobs of many lanes run and rows are pending in all of them.
func Fetch(ctx context.Context, env *rig.Rig, rows int) (figures, details figure.Figures, err error) {
	setup := stage.Timed("lanes", 1, 4, slots/4, "--duration-window", window.String())
	setup.Types = nil
	for i := range types {
		setup.Types = append(setup.Types, fmt.Sprintf("t%02d", i))
	}
	setup.Offers = []stage.Offer{{Slots: slots / 4, Types: setup.Types}}
	setup.Mix = func(n int64) history.Work { return history.Work{N: n, Type: setup.Types[0]} }
	st, err := stage.Start(ctx, env, setup)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, st.Close(ctx)) }()
	if err := st.Exec(ctx, fmt.Sprintf(`INSERT INTO dispatcherd.jobs (type, payload, priority, expected_ms, run_at)
		SELECT 't' || lpad((i %% %d)::text, 2, '0'), '{"ms": %d}', i / %d %% 11,
			(ARRAY[NULL, 1, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26])[1 + i / %d %% 9], now() - interval '1 hour'
		FROM generate_series(1, %d) i`, types, takes, types, 11*types, rows+running), `VACUUM ANALYZE`); err != nil {
		return nil, nil, err
	}
	d := st.Daemons[0]
	if err := claimed(ctx, st, running/10); err != nil {
		return nil, nil, err
	}
	before, err := d.Metrics(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := claimed(ctx, st, running); err != nil {
		return nil, nil, err
	}
	after, err := d.Metrics(ctx)
	if err != nil {
		return nil, nil, err
	}
	m := after.Minus(before)
	n, _, _ := m.Statements("fetch")
	return figure.Figures{figure.AtMost("fetch_ms_p99", 1000*m.Quantile("fetch", 0.99), 3)},
		figure.Figures{
			figure.AtLeast("fetches", n, 100),
			figure.AtLeast("fetch_ms_p50", 1000*m.Quantile("fetch", 0.5), math.Inf(-1)),
		}, nil
}

// claimed waits until n jobs have been claimed.
func claimed(ctx context.Context, st *stage.Stage, n int) error {
	for {
		m, err := st.Daemons[0].Metrics(ctx)
		if err != nil || m.Event("won") >= float64(n) {
			return err
		}
		if err := rig.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}
