package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// chainSQL returns the median and the 99th percentile of the time in milliseconds from the start of a node of a
// chain to the start of the next one.
const chainSQL = `
WITH step AS (
	SELECT extract(epoch FROM j.started_at - lag(j.started_at) OVER (ORDER BY n.place)) * 1000 AS ms
	FROM dispatcherd.nodes n JOIN dispatcherd.jobs j ON j.id = n.id WHERE n.flow = $1
)
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY ms), percentile_disc(0.99) WITHIN GROUP (ORDER BY ms) FROM step`

// Chain measures how long each of the n nodes of a chain takes. They do nothing.
func Chain(ctx context.Context, env *rig.Rig, n int) (figures, details figure.Figures, err error) {
	var p50, p99 float64
	found, err := graph(ctx, env, "chain", n, 1, func(conn *pgx.Conn, flow int64) error {
		return conn.QueryRow(ctx, chainSQL, flow).Scan(&p50, &p99)
	})
	return figure.Figures{figure.AtMost("node_overhead_ms", p50, 5)}, append(found, figure.AtMost("node_p99_ms", p99, 100)), err
}

// dagSQL returns the time in seconds from the insertion of a flow to its end.
const dagSQL = `SELECT extract(epoch FROM ended_at - $2::timestamptz) FROM dispatcherd.batches WHERE id = $1`

// DAG measures how long a flow takes whose nodes depend on all nodes of the layer before.
func DAG(ctx context.Context, env *rig.Rig, layers, width int) (figures, details figure.Figures, err error) {
	var seconds float64
	found, err := graph(ctx, env, "dag", layers, width, func(conn *pgx.Conn, flow int64) error {
		var inserted time.Time
		if err := conn.QueryRow(ctx, `SELECT sealed_at FROM dispatcherd.batches WHERE id = $1`, flow).Scan(&inserted); err != nil {
			return err
		}
		return conn.QueryRow(ctx, dagSQL, flow, inserted).Scan(&seconds)
	})
	return figure.Figures{figure.AtMost("dag10k_s", seconds, 10)}, found, err
}

var errOpen = errors.New("the flow has not ended in time")

// graph runs a flow of layers on one daemon. It judges the flow, and then calls measured.
func graph(
	ctx context.Context,
	env *rig.Rig,
	name string,
	layers, width int,
	measured func(conn *pgx.Conn, flow int64) error,
) (details figure.Figures, err error) {
	o := stage.Timed(name, 1, 1, 1)
	o.Structures = 50
	st, err := stage.Start(ctx, env, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close(ctx)) }()
	conn, err := pgx.Connect(ctx, st.URL())
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	begun := time.Now()
	var flow int64
	plan := map[string]any{"nodes": stage.Layers(layers, width, history.Node)}
	if err := conn.QueryRow(ctx, `SELECT (dispatcherd.insert_flow($1) ->> 'id')::bigint`, plan).Scan(&flow); err != nil {
		return nil, fmt.Errorf("inserting the flow: %w", err)
	}
	insertion := time.Since(begun)
	limit := time.Minute + time.Duration(layers*width)*100*time.Millisecond
	if open, err := st.AwaitStructures(ctx, limit); err != nil || open > 0 {
		return nil, errors.Join(err, errOpen)
	}
	s, err := st.Structures(ctx)
	if err != nil {
		return nil, err
	}
	r := &judge.Report{}
	r.Joins(s)
	printFindings(r)
	return figure.Figures{
		figure.None(name+"_violations", float64(r.Violations())), figure.AtMost(name+"_insert_s", insertion.Seconds(), 10),
	}, measured(conn, flow)
}
