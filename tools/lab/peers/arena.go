package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// contestant is one system that executes a table of jobs.
type contestant struct {
	name     string
	settings string // the settings
	reason   string // the reason for these settings
	share    int    // it gets jobs/share jobs, because its rate does not depend on their number
	node     bool   // whether it needs the packages of node/
	// prepare inserts n jobs into an empty database; work executes them.
	prepare func(ctx context.Context, a *arena, dsn string, n int) error
	work    func(ctx context.Context, a *arena, dsn string, n int) (span, error)
}

// span is the measured time of a run.
type span struct{ from, to time.Time }

var contestants = []contestant{
	{
		name: "floor", settings: "2 connections, batches of 1,000",
		reason:  "the minimum for claim and finish: two UPDATEs and nothing else",
		prepare: fillFloor, work: drainFloor,
	},
	{
		name: "dispatcherd", settings: "defaults; 4 worker processes × 250 slots over a Unix socket",
		reason:  "defaults: fenced claims, exact order, separate worker processes",
		prepare: fillDispatcherd, work: drainDispatcherd,
	},
	{
		name: "graphile", settings: "localQueue 500, completeJobBatchDelay 0, concurrency 24", node: true,
		reason:  "the settings of its published 183,895 jobs/s; a second process is not faster on two cores",
		prepare: nodeFill("graphile.mjs"), work: nodeDrain("graphile.mjs"),
	},
	{
		name: "river", settings: "FetchCooldown 1 ms, FetchPollInterval 1 ms, MaxWorkers 1000, pool of 8",
		reason:  "a job that does nothing ends long before the default pause of 100 ms between fetches; 1 ms is the minimum",
		prepare: fillRiver, work: drainRiverTuned,
	},
	{
		name: "river-default", settings: "MaxWorkers 1000, otherwise the defaults", share: 5,
		reason:  "as many concurrent jobs as dispatcherd has slots; with the 100 of its README the rate would be 1,000 jobs/s",
		prepare: fillRiver, work: drainRiverDefault,
	},
	{
		name: "pgboss", settings: "fetch and complete in batches of 1,000, 2 loops", node: true,
		reason:  "work() polls at most every 500 ms, so this is the documented loop for manual fetching",
		prepare: nodeFill("pgboss.mjs"), work: nodeDrain("pgboss.mjs"),
	},
}

// arena is the environment of the contestants.
type arena struct {
	options
	rig  *rig.Rig
	node string // path of the Node.js program
}

func newArena(ctx context.Context, o options, all []contestant) (*arena, error) {
	note("building, starting Postgres")
	r, err := rig.Start(ctx, rig.Options{})
	if err != nil {
		return nil, err
	}
	a := &arena{options: o, rig: r}
	for _, c := range all {
		if c.node && a.node == "" {
			if a.node, err = installNode(ctx, r.Lab); err != nil {
				_ = r.Close() // the current error is more important
				return nil, err
			}
		}
	}
	return a, nil
}

// outcome is the result of one run.
type outcome struct {
	Rate        float64 `json:"jobs_per_second"`
	Seconds     float64 `json:"seconds"`
	Jobs        int     `json:"jobs"`
	PostgresCPU float64 `json:"postgres_cpu_us_per_job"`
}

// fight runs all contestants in every round.
func (a *arena) fight(ctx context.Context, all []contestant) (map[string][]outcome, error) {
	outcomes := map[string][]outcome{}
	return outcomes, rig.Rounds(a.rounds, len(all), func(round, i int) error {
		c := all[i]
		o, err := a.run(ctx, c, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		outcomes[c.name] = append(outcomes[c.name], o)
		note("round %d/%d  %-14s %8.0f jobs/s  (%d jobs in %.2f s, Postgres %.1f µs a job)",
			round+1, a.rounds, c.name, o.Rate, o.Jobs, o.Seconds, o.PostgresCPU)
		return nil
	})
}

const database = "peers"

// run prepares a database and executes its jobs. The contestant uses the proxy, if
// there is one.
func (a *arena) run(ctx context.Context, c contestant, by *proxy) (outcome, error) {
	n := a.jobs / max(c.share, 1)
	dsn, err := a.rig.Fresh(ctx, database)
	if err != nil {
		return outcome{}, err
	}
	if err := c.prepare(ctx, a, dsn, n); err != nil {
		return outcome{}, fmt.Errorf("preparing: %w", err)
	}
	if err := a.rig.Settle(ctx, dsn); err != nil {
		return outcome{}, err
	}
	if by != nil {
		if dsn, err = by.through(dsn); err != nil {
			return outcome{}, err
		}
	}
	before := a.rig.PostgresCPU()
	s, err := c.work(ctx, a, dsn, n)
	if err != nil {
		return outcome{}, err
	}
	used := a.rig.PostgresCPU() - before
	seconds := s.to.Sub(s.from).Seconds()
	return outcome{
		Rate: float64(n) / seconds, Seconds: seconds, Jobs: n, PostgresCPU: float64(used.Microseconds()) / float64(n),
	}, a.rig.Drop(ctx, database)
}

func note(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
