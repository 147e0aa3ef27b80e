package main

import (
	"context"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/program"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// Throughput compares the rate of n no-op jobs over TLS with the rate over Unix sockets.
func Throughput(ctx context.Context, env *rig.Rig, n int) (figures, details figure.Figures, err error) {
	credentials, err := env.Credentials()
	if err != nil {
		return nil, nil, err
	}
	port, err := rig.FreePort()
	if err != nil {
		return nil, nil, err
	}
	listen := "127.0.0.1:" + port
	var best [2]float64
	ratio, err := rig.Compare("tls", func(remote bool) (float64, error) {
		way, which := program.Dispatcher{}, 0
		if remote {
			way, which = program.Dispatcher{Addresses: "tls://" + listen, TokenFile: credentials.Token[0], CA: credentials.Cert}, 1
		}
		dsn, err := env.FreshJobs(ctx, "throughput")
		if err != nil {
			return 0, err
		}
		if err := rig.Fill(ctx, dsn, n, 1); err != nil {
			return 0, err
		}
		if err := env.Settle(ctx, dsn); err != nil {
			return 0, err
		}
		d, err := env.DrainOver(ctx, env.Own, way, dsn, n, credentials.Flags(listen)...)
		best[which] = max(best[which], d.Rate())
		return d.Rate(), err
	})
	return figure.Figures{figure.AtLeast("tls_ratio", ratio, 0.7)},
		figure.Figures{figure.AtLeast("tls_per_s", best[1], 1), figure.AtLeast("unix_per_s", best[0], 1)}, err
}
