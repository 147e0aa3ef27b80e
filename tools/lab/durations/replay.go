package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/trace"
	"github.com/dispatcherd/dispatcherd/scoring"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
)

// window is the --duration-window of all replays.
const window = time.Hour

// The mean waits of the best schedules in hindsight that are known of the two traces, in seconds.
const (
	bestOpenb33 = 681
	bestJanuary = 20.9
)

// jitter is how much later a job of a replica may arrive.
const jitter = time.Minute

// octaves is the error of an expected duration: it is right within a factor of four.
const octaves = 2

// weights are those of the daemon with a duration window.
func weights(d time.Duration) scoring.Weights {
	w := scoring.Default()
	w.DurationWindow = d
	return w
}

// waits are the mean and the 99th percentile of the waits of several replicas, in seconds, and the number of jobs that
// were passed by more than their estimates allow.
type waits struct {
	mean, p99 float64
	exceeded  int
}

// replay runs replicas of a trace.
func replay(t *trace.Trace, replicas uint64, change func(*trace.Trace, uint64) *trace.Trace, w scoring.Weights) (all waits, err error) {
	for seed := range replicas {
		replica := change(t.Jitter(seed, jitter), seed)
		schedule, passed, err := trace.Passes(replica, w)
		if err != nil {
			return all, err
		}
		all.exceeded += len(passed)
		g := trace.Summarize(replica, replica.Executions(schedule), 0, trace.Findings{}).Groups[0]
		all.mean += g.Mean / float64(replicas)
		all.p99 += g.P99 / float64(replicas)
	}
	return all, nil
}

func unchanged(t *trace.Trace, _ uint64) *trace.Trace { return t }

func hinted(liars int64) func(*trace.Trace, uint64) *trace.Trace {
	return func(t *trace.Trace, seed uint64) *trace.Trace { return t.Hint(seed, octaves, liars) }
}

// recorded loads a recorded workload.
func recorded(dir, name string) (*trace.Trace, error) {
	t, err := trace.Load(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: set DISPATCHERD_TRACES to the folder with the recorded workloads (docs/how-to/traces.md)", err)
	}
	return t, err
}

// Off counts the placements of both traces that differ from those of an independent simulator while expected durations
// do not count.
func Off(dir string) (figure.Figures, error) {
	differs, placements := 0, 0
	for _, name := range []string{"openb33", "bank_january"} {
		t, err := recorded(dir, name)
		if err != nil {
			return nil, err
		}
		want, err := trace.LoadSchedule(filepath.Join(dir, name, "expected.csv"))
		if err != nil {
			return nil, err
		}
		article := weights(0)
		article.OnDemandCap = scoring.NoCap
		for _, t := range []*trace.Trace{t, t.Hint(1, octaves, 0)} {
			got, err := trace.Simulate(t, article, nil)
			if err != nil {
				return nil, err
			}
			for i := range want {
				if i >= len(got) || got[i] != want[i] {
					differs++
				}
			}
		}
		placements += len(want)
	}
	return figure.Figures{
		figure.None("off_differs", float64(differs)),
		{Name: "placements", Value: float64(placements), Low: 33_941, High: 33_941},
	}, nil
}

// Replays replays both traces with and without expected durations.
func Replays(dir string, replicas uint64) (figures, details figure.Figures, err error) {
	openb33, err := recorded(dir, "openb33")
	if err != nil {
		return nil, nil, err
	}
	january, err := recorded(dir, "bank_january")
	if err != nil {
		return nil, nil, err
	}
	exceeded := 0
	run := func(t *trace.Trace, change func(*trace.Trace, uint64) *trace.Trace, d time.Duration) (w waits) {
		if err == nil {
			w, err = replay(t, replicas, change, weights(d))
			exceeded += w.exceeded
		}
		return w
	}
	off, offJanuary := run(openb33, unchanged, 0), run(january, unchanged, 0)
	none, noneJanuary := run(openb33, unchanged, window), run(january, unchanged, window)
	hint, hintJanuary := run(openb33, hinted(0), window), run(january, hinted(0), window)
	some, all := run(openb33, hinted(100), window), run(openb33, hinted(1000), window)
	return figure.Figures{
			figure.AtMost("openb33_hint", hint.mean/bestOpenb33, 1.5), figure.AtMost("openb33_nohint", none.mean/off.mean, 1.03),
			figure.AtMost("january_hint", hintJanuary.mean/bestJanuary, 1.2),
			figure.AtMost("liars10", some.mean/hint.mean, 1.15), figure.AtMost("liars100", all.mean/off.mean, 1.05),
			figure.None("w_exceeded", float64(exceeded)),
		}, figure.Figures{
			figure.AtMost("openb33_hint_p99", hint.p99/off.p99, 1),
			figure.AtMost("january_hint_p99", hintJanuary.p99/offJanuary.p99, 1),
			figure.AtMost("openb33_nohint_p99", none.p99/off.p99, 1.1),
			figure.AtMost(
				"january_nohint",
				noneJanuary.mean/offJanuary.mean,
				1.03,
			),
			figure.AtMost("january_nohint_p99", noneJanuary.p99/offJanuary.p99, 1.1),
			figure.AtLeast("openb33_off_s", off.mean, 0),
			figure.AtLeast("january_off_s", offJanuary.mean, 0),
		}, err
}

// Random counts the jobs that are passed by more than their estimates allow in n random workloads with
// drifting, bimodal and adversarial durations.
func Random(ctx context.Context, n int) (figure.Figures, error) {
	exceeded := 0
	for seed := range uint64(n) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		r := rand.New(rand.NewPCG(seed, 1))
		t, w := workload(r), weights(time.Duration(1+r.IntN(20_000))*time.Millisecond)
		w.OnDemandCap, w.Priority, w.OnDemand, w.Rarity = time.Duration(r.IntN(3))*time.Second, r.Int64N(20), r.Int64N(50), r.Int64N(50)
		_, passed, err := trace.Passes(t, w)
		if err != nil {
			return nil, fmt.Errorf("seed %d: %w", seed, err)
		}
		exceeded += len(passed)
	}
	return figure.Figures{figure.None("w_exceeded_random", float64(exceeded))}, nil
}

// workload returns a random overload of two types. Its jobs take longer and longer, or very short or very long, or as
// long as harms others most: jobs that claim to be short are long.
func workload(r *rand.Rand) *trace.Trace {
	t := &trace.Trace{
		Name:  "random",
		Slots: []trace.Slot{{ID: 1, Worker: "w", Types: []string{"a"}}, {ID: 2, Worker: "w", Types: []string{"a", "b"}}},
	}
	kind, at := r.IntN(3), int64(0)
	for i := range 8 + r.IntN(25) {
		at += r.Int64N(3000)
		j := trace.Job{
			ID:        int64(i + 1),
			ArrivalMS: at,
			Type:      []string{"a", "b"}[r.IntN(2)],
			Priority:  dispatcherd.Priority(r.IntN(11)),
			Mode:      dispatcherd.Mode(r.IntN(2)),
		}
		switch kind {
		case 0:
			j.DurationMS = 100 << (i / 3)
		case 1:
			j.DurationMS = 50 + r.Int64N(2)*30_000
		case 2:
			j.ExpectedMS = 1 + r.Int64N(2)<<27
			j.DurationMS = 40_000 / (1 + j.ExpectedMS>>20)
		}
		if kind < 2 {
			j.ExpectedMS = r.Int64N(2) * max(j.DurationMS>>2<<r.IntN(5), 1)
		}
		t.Jobs = append(t.Jobs, j)
	}
	slices.SortFunc(t.Jobs, func(a, b trace.Job) int { return int(a.ID - b.ID) })
	return t
}
