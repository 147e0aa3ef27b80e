package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// The faults: every killPeriod a daemon, a worker or Postgres is killed, in turn.
const (
	killPeriod = 2 * time.Second
	drainTime  = 3 * time.Minute
)

// Faults runs structures with at least n jobs on three daemons under kills, and counts what must not happen.
func Faults(ctx context.Context, env *rig.Rig, n int) (figures, details figure.Figures, err error) {
	st, err := stage.Start(ctx, env, stage.Setup{
		Name:       "faults",
		Daemons:    3,
		Workers:    2,
		Flags:      []string{"--lease", "10s", "--max-crashes", "30000", "--retry-base", "100ms", "--retry-max", "1s"},
		Plain:      true,
		Structures: 60,
	})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, st.Close(ctx)) }()
	producing, stop := context.WithCancel(ctx)
	var (
		produced sync.WaitGroup
		failed   error
	)
	produced.Go(func() {
		defer stop()
		failed = st.InsertStructures(producing, n)
	})
	kills, killed := st.KillInTurn(producing, ctx, killPeriod)
	stop()
	produced.Wait()
	if err := errors.Join(killed, failed); err != nil {
		return nil, nil, err
	}
	open, err := st.AwaitStructures(ctx, drainTime) // what is left is lost
	if err != nil {
		return nil, nil, err
	}
	s, err := st.Structures(ctx)
	if err != nil {
		return nil, nil, err
	}
	r := &judge.Report{}
	r.Joins(s)
	printFindings(r)
	kinds := map[string]int{}
	for i := range s.Joins {
		kinds[s.Joins[i].Kind]++
	}
	return figure.Figures{
			figure.None(
				"joined_early",
				float64(r.JoinedEarly),
			),
			figure.None("joined_lost", float64(r.JoinedLost)),
			figure.None("joined_twice", float64(r.JoinedTwice)),
			figure.None("orphans", float64(r.Orphans)),
		}, figure.Figures{
			figure.AtLeast(
				"structured_jobs",
				float64(len(s.Jobs)),
				float64(n),
			),
			figure.AtLeast("kills", float64(kills), 1),
			figure.None("open", float64(open)),
			figure.AtLeast(
				"batches",
				float64(kinds["batch"]),
				1,
			),
			figure.AtLeast("flows", float64(kinds["flow"]), 1),
			figure.AtLeast("nodes", float64(kinds["node"]), 1),
			figure.AtLeast("parents", float64(kinds["children"]), 1),
		}, nil
}
