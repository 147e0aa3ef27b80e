package main

import (
	"context"
	"strings"

	"github.com/dispatcherd/dispatcherd/migrations"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

func fillDispatcherd(ctx context.Context, _ *arena, dsn string, n int) error {
	if _, err := migrations.Up(ctx, dsn); err != nil {
		return err
	}
	return rig.Fill(ctx, dsn, n, 1)
}

func drainDispatcherd(ctx context.Context, a *arena, dsn string, n int) (span, error) {
	d, err := a.rig.Drain(ctx, a.rig.Own, dsn, n, strings.Fields(a.flags)...)
	return span{from: d.From, to: d.To}, err
}
