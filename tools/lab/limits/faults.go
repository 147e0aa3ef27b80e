package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/judge"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
)

// The faults: every killPeriod a daemon, a worker or Postgres is killed, in turn.
const (
	killPeriod = 2 * time.Second
	drainTime  = 2 * time.Minute
)

// faultLimits are the limits of the keys of Faults. The keys serial:N have none.
const faultLimits = `INSERT INTO dispatcherd.limits (key, capacity) VALUES ('sem:*', 4), ('rw:*', 8)`

// faultCapacity repeats faultLimits, so that the judges do not depend on the program.
func faultCapacity(key string) int {
	kind, _, _ := strings.Cut(key, ":")
	return map[string]int{"serial": 1, "sem": 4, "rw": 8}[kind]
}

// keyed is the n-th job of Faults: a mutex, weights, readers and a writer, or two keys.
func keyed(n int64) history.Work {
	dice := rand.New(rand.NewPCG(uint64(n), 21)) // the same jobs in each run
	w := history.Work{N: n, Type: "work", Ms: dice.IntN(6)}
	if dice.IntN(100) == 0 {
		w.Fail = 1
	}
	switch i := dice.IntN(10); {
	case i < 5:
		w.Keys = fmt.Sprint("serial:", dice.IntN(200))
	case i < 7:
		w.Keys = fmt.Sprint("sem:", dice.IntN(40), "*", 1+dice.IntN(3))
	case i == 7:
		w.Keys = fmt.Sprint("rw:", dice.IntN(20))
	case i == 8:
		w.Keys = fmt.Sprint("rw:", dice.IntN(20), "*all")
	default:
		w.Keys = fmt.Sprint("serial:", dice.IntN(200), " sem:", dice.IntN(40))
	}
	return w
}

// Faults runs jobs with keys on 1, 3 and 4 daemons under kills, n in all, and counts what must not happen.
func Faults(ctx context.Context, env *rig.Rig, n int) (figures, details figure.Figures, err error) {
	var sum verdict
	least := 0
	for _, daemons := range []int{1, 3, 4} {
		v, err := faults(ctx, env, daemons, n/3+1)
		if err != nil {
			return nil, nil, fmt.Errorf("%d daemons: %w", daemons, err)
		}
		if least == 0 || v.kills < least {
			least = v.kills
		}
		sum.add(v)
	}
	return figure.Figures{
			figure.None("over", float64(sum.over)),
			figure.None("order", float64(sum.order)),
			figure.None("leaked", float64(sum.leaked)),
		},
		figure.Figures{
			figure.AtLeast(
				"jobs",
				float64(sum.jobs),
				float64(n),
			),
			figure.AtLeast("least_kills", float64(least), 1),
			figure.AtLeast("runs_again", float64(sum.again), 1),
			figure.AtLeast("unstarted", float64(sum.unstarted), 0),
			figure.None("failed", float64(sum.failed)),
		}, nil
}

// verdict is what the rows of a stage say.
type verdict struct {
	over, order, leaked, jobs, again, unstarted, failed, kills int
}

func (v *verdict) add(o verdict) {
	v.over += o.over
	v.order += o.order
	v.leaked += o.leaked
	v.jobs += o.jobs
	v.again += o.again
	v.unstarted += o.unstarted
	v.failed += o.failed
	v.kills += o.kills
}

// judged applies the judges to all jobs.
func judged(jobs []job) verdict {
	v := verdict{over: over(jobs), order: order(jobs), leaked: leaked(jobs), jobs: len(jobs), unstarted: unstarted(jobs)}
	for i := range jobs {
		v.again += max(jobs[i].attempts-1, 0)
	}
	return v
}

// over counts the starts after which more cost of a key ran than its capacity. An attempt counts until its row said
// that it had ended.
func over(jobs []job) int {
	var runs []judge.KeyRun
	for i := range jobs {
		for _, r := range jobs[i].runs {
			run := judge.KeyRun{Job: jobs[i].id, Keys: jobs[i].keys, From: r.from.UnixMicro(), To: judge.Forever}
			if !r.to.IsZero() {
				run.To = r.to.UnixMicro()
			}
			runs = append(runs, run)
		}
	}
	return len(judge.KeyOver(runs, faultCapacity))
}

func faults(ctx context.Context, env *rig.Rig, daemons, n int) (v verdict, err error) {
	st, err := stage.Start(ctx, env, stage.Setup{
		Name: fmt.Sprint(
			"faults",
			daemons,
		),
		Daemons: daemons,
		Workers: 2,
		Flags:   []string{"--lease", "10s", "--max-crashes", "30000"},
		Plain:   true,
		Offers:  []stage.Offer{{Slots: 50, Types: []string{"work"}}},
		Mix:     keyed,
		Types:   []string{"work"},
	})
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, st.Close(ctx)) }()
	if err := st.Exec(ctx, faultLimits); err != nil {
		return v, err
	}
	producing, stop := context.WithCancel(ctx)
	var produced sync.WaitGroup
	produced.Go(func() {
		defer stop()
		st.Producer.Produce(producing, n, 0)
	})
	kills, killed := st.KillInTurn(producing, ctx, killPeriod)
	stop()
	produced.Wait()
	if killed != nil {
		return v, killed
	}
	if _, err := st.AwaitDrained(ctx, drainTime); err != nil { // what is left has leaked
		return v, err
	}
	jobs, err := read(ctx, st.URL())
	if err != nil {
		return v, err
	}
	v = judged(jobs)
	v.kills = kills
	v.failed, err = st.Number(ctx, `SELECT count(*) FROM dispatcherd.jobs WHERE status IN ('failed', 'cancelled')`)
	return v, err
}
