package main

import (
	"context"
	"errors"
	"strings"

	"github.com/dispatcherd/dispatcherd/migrations"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

const (
	workers = 4   // number of worker processes
	slots   = 250 // number of slots of each
)

func fillDispatcherd(ctx context.Context, _ *arena, dsn string, n int) error {
	if _, err := migrations.Up(ctx, dsn); err != nil {
		return err
	}
	return rig.Fill(ctx, dsn, n, 1)
}

func drainDispatcherd(ctx context.Context, a *arena, dsn string, n int) (s span, err error) {
	d, err := a.rig.Daemon(ctx, dsn, "daemon", strings.Fields(a.flags)...)
	if err != nil {
		return span{}, err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	crew, err := a.rig.Crew(d.Workers, workers, slots, 1)
	if err != nil {
		return span{}, err
	}
	defer func() { err = errors.Join(err, crew.Stop()) }()
	if s.from, err = crew.Begun(); err != nil {
		return s, err
	}
	if s.to, err = d.AwaitDone(ctx, n); err != nil {
		return s, err
	}
	return s, rig.Verify(ctx, dsn, n)
}
