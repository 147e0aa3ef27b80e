package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// The parent and its children of Cancel run until they are cancelled.
const (
	cancelDaemons = 3
	lasting       = time.Hour
	spawnTime     = 2 * time.Minute
)

// Cancel cancels a parent with n children, which all run on workers of three daemons. It measures until the last worker is told.
func Cancel(ctx context.Context, env *rig.Rig, n int) (figures, details figure.Figures, err error) {
	st, err := stage.Start(ctx, env, stage.Setup{
		Name: "cancel", Daemons: cancelDaemons, Workers: 1, Plain: true, Logs: true, Direct: true, Structures: n/cancelDaemons + 100,
	})
	if err != nil {
		return nil, nil, err
	}
	ms := lasting.Milliseconds()
	if err = st.Exec(
		ctx,
		fmt.Sprintf(
			`INSERT INTO dispatcherd.jobs (type, payload)
				VALUES ('parent', '{"do": "spawn", "children": %d, "ms": %d, "child": {"n": 0, "ms": %d}}')`,
			n,
			ms,
			ms,
		),
	); err == nil {
		err = awaitRunning(ctx, st, n+1)
	}
	at := history.Now()
	if err == nil {
		err = st.Exec(ctx, `INSERT INTO dispatcherd.operations (kind, target)
			SELECT 'cancel_tree', id FROM dispatcherd.jobs_live WHERE type = 'parent'`)
	}
	var s *history.Structures
	if err == nil {
		if _, err = st.AwaitStructures(ctx, spawnTime); err == nil {
			s, err = st.Structures(ctx)
		}
	}
	st.StopAll()
	processes, read := st.Processes()
	if err = errors.Join(err, read, st.DropDatabase(context.WithoutCancel(ctx))); err != nil {
		return nil, nil, err
	}
	told, last := stopped(processes)
	r := &judge.Report{}
	r.Joins(s)
	printFindings(r)
	return figure.Figures{figure.AtMost("cancel_tree_ms", float64(last-at)/1e6, 1500)},
		figure.Figures{
			figure.AtLeast("told", float64(told), float64(n+1)), figure.None("cancel_violations", float64(r.Violations())),
			figure.AtMost("cancel_recorded_ms", recorded(s), 10_000),
		}, nil
}

var errStart = errors.New("not all children have started in time")

// awaitRunning waits until n jobs run.
func awaitRunning(ctx context.Context, st *stage.Stage, n int) error {
	for begun := time.Now(); time.Since(begun) < spawnTime; {
		running, err := st.Number(ctx, `SELECT count(*) FROM dispatcherd.jobs_live WHERE status = 'running'`)
		if err != nil || running == n {
			return errors.Join(err, rig.Pause(ctx, time.Second)) // until the workers have them
		}
		if err := rig.Pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return errStart
}

// stopped returns how many executions were stopped, and when the last one was.
func stopped(processes []history.Process) (told int, last int64) {
	for i := range processes {
		for k := range processes[i].Runs {
			if e := &processes[i].Runs[k]; e.Outcome == history.Stopped {
				told, last = told+1, max(last, e.End)
			}
		}
	}
	return told, last
}

// recorded returns the time in milliseconds from the first end of a job to the last one.
func recorded(s *history.Structures) float64 {
	first, last := judge.Forever, int64(0)
	for i := range s.Jobs {
		first, last = min(first, s.Jobs[i].Ended), max(last, s.Jobs[i].Ended)
	}
	return float64(last-first) / 1000
}
