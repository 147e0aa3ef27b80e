package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// The kills of Batch, and the time from the last member to the end of the callback.
const (
	batchKills   = time.Second
	callbackTime = 30 * time.Second
)

// Batch measures the rate of the members of a batch of n jobs on three daemons, one of which is killed every
// second, as a share of the rate of jobs without a batch under the same kills, before and after.
func Batch(ctx context.Context, env *rig.Rig, n int) (figures, details figure.Figures, err error) {
	// A daemon is killed sooner than the usual time for which it would keep the jobs of its predecessor for their workers.
	o := stage.Timed("batch", 3, 1, 250, "--lease", "10s", "--max-crashes", "30000", "--resume", "1s")
	o.Structures = 1
	st, err := stage.Start(ctx, env, o)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, st.Close(ctx)) }()
	plain := stage.Jobs{N: n / 2}
	if _, err := (stage.Jobs{N: n / 10}).Drain(ctx, st); err != nil { // all files exist
		return nil, nil, err
	}
	kills := 0
	beside := func(j stage.Jobs) (float64, error) { return killing(ctx, st, &kills, j) }
	before, err := beside(plain)
	if err != nil {
		return nil, nil, err
	}
	batch, err := st.Number(ctx, `SELECT dispatcherd.open_batch('{"type": "callback"}', 'ended')`)
	if err != nil {
		return nil, nil, err
	}
	members, err := beside(stage.Jobs{N: n, Column: "parent", Value: strconv.Itoa(batch), Inserted: func() error {
		return st.Exec(ctx, fmt.Sprintf(`SELECT dispatcherd.seal_batch(%d)`, batch))
	}})
	if err != nil {
		return nil, nil, err
	}
	if details, err = callbackFigures(ctx, st, n); err != nil {
		return nil, details, err
	}
	after, err := beside(plain)
	if err != nil {
		return nil, details, err
	}
	fmt.Fprintf(os.Stderr, "batch: %.0f members/s, without a batch %.0f and %.0f jobs/s, %d kills\n", members, before, after, kills)
	return figure.Figures{figure.AtLeast("batch1m_rate", 2*members/(before+after), 0.6)},
		append(details, figure.AtLeast("members_per_s", members, 1), figure.AtLeast("batch_kills", float64(kills), 1)), nil
}

// killing drains jobs while a daemon is killed every second. Until its successor works, a daemon is not killed again.
func killing(ctx context.Context, st *stage.Stage, kills *int, j stage.Jobs) (perSecond float64, err error) {
	until, stop := context.WithCancel(ctx)
	var killer sync.WaitGroup
	killer.Go(func() {
		for i := 0; rig.Pause(until, batchKills) == nil; i++ {
			d := st.Daemons[i%len(st.Daemons)]
			if _, err := d.Metrics(until); err == nil {
				d.Kill()
				*kills++
			}
		}
	})
	perSecond, err = j.Drain(ctx, st)
	stop()
	killer.Wait()
	return perSecond, err
}

// callbackFigures judges the only batch, and measures from the end of the last member to the start of the callback.
func callbackFigures(ctx context.Context, st *stage.Stage, n int) (figure.Figures, error) {
	if _, err := st.AwaitStructures(ctx, callbackTime); err != nil {
		return nil, err
	}
	s, err := st.Structures(ctx, stage.TimedType)
	if err != nil {
		return nil, err
	}
	r := &judge.Report{}
	r.Joins(s)
	var last, started int64
	members := 0
	for i := range s.Jobs {
		switch p := &s.Jobs[i]; {
		case p.Type == history.Callback:
			started = p.Started
		case p.Parent != 0:
			members++
			last = max(last, p.Ended)
		}
	}
	printFindings(r)
	return figure.Figures{
		figure.None(
			"batch_early",
			float64(r.JoinedEarly),
		),
		figure.None("batch_lost", float64(r.JoinedLost)),
		figure.None("batch_twice", float64(r.JoinedTwice)),
		figure.AtLeast("batch_members", float64(members), float64(n)),
		figure.AtMost("callback_after_ms", float64(started-last)/1000, float64(callbackTime.Milliseconds())),
	}, nil
}

// printFindings says what a judge has found.
func printFindings(r *judge.Report) {
	for _, f := range r.Findings {
		fmt.Fprintf(os.Stderr, "flows: %s: job %d: %s\n", f.Kind, f.Job, f.Text)
	}
}
