package main

import (
	"context"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/hostile"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// attackTime is how long attacks repeat statements.
const attackTime = 15 * time.Second

// attacks are loads of keys and limits that have delayed other tenants. Sizes are those of the full run.
func attacks() []hostile.Attack {
	return []hostile.Attack{
		hostile.None,
		{
			Name: "types", Types: 2000, // each with jobs of a key of its own
			Prepare: func(ctx context.Context, s *hostile.Site) error {
				return insertKeyed(ctx, s, s.Scaled(100_000), `'type' || i % 2000`, 2000)
			},
			Begin: hostile.None.Begin,
		},
		{
			Name: "edits", // of limits, twenty per second beside many limits
			Prepare: func(ctx context.Context, s *hostile.Site) error {
				_, err := s.Exec(ctx, `INSERT INTO dispatcherd.limits (key) SELECT 'limit' || i FROM generate_series(1, $1) i`, s.Scaled(99_000))
				return err
			},
			Begin: func(ctx context.Context, s *hostile.Site) (func() error, error) {
				return nil, repeat(ctx, 50*time.Millisecond, func(i int) error {
					_, err := s.Exec(ctx, `UPDATE dispatcherd.limits SET capacity = $1 WHERE key = 'limit1'`, i%9+1)
					return err
				})
			},
		},
		{
			Name: "waiting", // as many classes as the book has room for, and more, behind one key
			Prepare: func(ctx context.Context, s *hostile.Site) error {
				if _, err := s.Exec(ctx, `INSERT INTO dispatcherd.limits (key, capacity) VALUES ('flood', 0)`); err != nil {
					return err
				}
				return insertKeyed(ctx, s, s.Scaled(251_000), `'flood flood' || i`, 1)
			},
			Begin: hostile.None.Begin,
		},
		{
			Name: "daily", // keys whose windows of a day count one start each
			Prepare: func(ctx context.Context, s *hostile.Site) error {
				if _, err := s.Exec(ctx,
					`INSERT INTO dispatcherd.limits (key, capacity, rate, per) VALUES ('day*', NULL, 1, '1 day')`); err != nil {
					return err
				}
				return insertKeyed(ctx, s, s.Scaled(300_000), `'day' || i`, 1)
			},
			Begin: hostile.None.Begin,
		},
		{
			Name: "paused", // and resumed, again and again, under load
			Prepare: func(ctx context.Context, s *hostile.Site) error {
				if _, err := s.Exec(ctx, `INSERT INTO dispatcherd.limits (key, capacity) VALUES ('load', 0)`); err != nil {
					return err
				}
				return insertKeyed(ctx, s, s.Scaled(100_000), `'load'`, 1)
			},
			Begin: func(ctx context.Context, s *hostile.Site) (func() error, error) {
				return nil, repeat(ctx, 500*time.Millisecond, func(i int) error {
					_, err := s.Exec(ctx, `UPDATE dispatcherd.limits SET capacity = $1 WHERE key = 'load'`, 1000*(i%2))
					return err
				})
			},
		},
	}
}

// insertKeyed inserts n jobs of a number of types, the i-th with the given keys.
func insertKeyed(ctx context.Context, s *hostile.Site, n int, keys string, types int) error {
	names := make([]string, types)
	for i := range names {
		names[i] = rig.TypeName(i)
	}
	_, err := s.Exec(ctx, fmt.Sprintf(`INSERT INTO dispatcherd.jobs (type, keys) SELECT ($1::text[])[i %% $2 + 1], %s
		FROM generate_series(1, $3) i`, keys), names, types, n)
	return err
}

// repeat calls f for a while, with a pause between two calls.
func repeat(ctx context.Context, pause time.Duration, f func(i int) error) error {
	for i, begun := 0, time.Now(); time.Since(begun) < attackTime; i++ {
		if err := f(i); err != nil {
			return err
		}
		if err := rig.Pause(ctx, pause); err != nil {
			return err
		}
	}
	return nil
}
