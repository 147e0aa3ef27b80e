package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stage"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stats"
)

// order is an order of an operator, by history.Now.
type order struct {
	given int64 // when the command began
	at    int64 // when it was acknowledged
	until int64 // when it was about to be taken back
}

// How often and for how long an operator pauses or drains.
const (
	orderLasts = 3 * time.Second
	orderRest  = time.Second
	orderRate  = 400 // jobs per second meanwhile
)

// busy is a stage whose workers always have jobs.
type busy struct {
	*stage.Stage

	end func() // of the production
}

// busyStage starts daemons, two workers of each, and a producer.
func busyStage(ctx context.Context, env *rig.Rig, name string, daemons int, remote bool) (*busy, error) {
	st, err := stage.Start(ctx, env, stage.Setup{
		Name: name, Daemons: daemons, Workers: 2, Remote: remote, Direct: true, Plain: true, Logs: true, Rate: orderRate, Offers: noops,
		Types: []string{stage.TimedType},
		Mix:   func(n int64) history.Work { return history.Work{N: n, Type: stage.TimedType, Ms: int(n % 20)} },
	})
	if err != nil {
		return nil, err
	}
	producing, stop := context.WithCancel(ctx)
	var producer sync.WaitGroup
	producer.Go(func() { st.Producer.Produce(producing, 1, 24*time.Hour) })
	return &busy{st, func() {
		stop()
		producer.Wait()
	}}, nil
}

// give gives an order to the first daemon n times, each time for a while, and takes it back with another command.
func (b *busy) give(ctx context.Context, n int, give, takeBack []string) (orders []order, err error) {
	for range n {
		if err := rig.Pause(ctx, orderRest); err != nil {
			return nil, err
		}
		o := order{given: history.Now()}
		if _, err := b.Ask(ctx, b.Daemons[0].Daemon, give...); err != nil {
			return nil, err
		}
		o.at = history.Now()
		if err := rig.Pause(ctx, orderLasts); err != nil {
			return nil, err
		}
		o.until = history.Now()
		if _, err := b.Ask(ctx, b.Daemons[0].Daemon, takeBack...); err != nil {
			return nil, err
		}
		orders = append(orders, o)
	}
	return orders, nil
}

// starts returns, for each execution of some workers that began during an order, how long after the command began in milliseconds, and
// how many of them began after its acknowledgement. It also returns the number of all executions. It ends the stage.
func (b *busy) starts(orders []order, of func(*history.Process) bool) (waits []float64, late, all int, err error) {
	b.end()
	b.StopAll()
	processes, err := b.Processes()
	for i := range processes {
		p := &processes[i]
		all += len(p.Runs)
		for k := range p.Runs {
			for _, o := range orders {
				if at := p.Runs[k].Start; of(p) && at > o.given && at < o.until {
					waits = append(waits, float64(at-o.given)/1e6)
					if at > o.at {
						late++
					}
				}
			}
		}
	}
	return waits, late, all, err
}

// Pause pauses a type at the first dispatcher, and measures how long jobs of the type still start at the second one.
func Pause(ctx context.Context, env *rig.Rig, n int) (figures, details figure.Figures, err error) {
	b, err := busyStage(ctx, env, "pause", 2, false)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, b.Close(ctx)) }()
	defer b.end()
	orders, err := b.give(ctx, n, []string{"type", "pause", stage.TimedType}, []string{"type", "resume", stage.TimedType})
	if err != nil {
		return nil, nil, err
	}
	waits, late, all, err := b.starts(orders, func(p *history.Process) bool { return p.Daemon == b.Daemons[1].Name })
	return figure.Figures{figure.AtMost("pause_effective_ms", stats.Quantile(waits, 1), 1500)},
		figure.Figures{
			figure.AtLeast("pauses", float64(len(orders)), float64(n)), figure.AtLeast("pause_jobs", float64(all), 1),
			figure.AtLeast("pause_late_starts", float64(late), 0),
		}, err
}

// Drain drains a worker, and counts the placements on it after the acknowledgement: in the decision log, and by the worker.
func Drain(ctx context.Context, env *rig.Rig, n int) (figures, details figure.Figures, err error) {
	b, err := busyStage(ctx, env, "drain", 1, true)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, b.Close(ctx)) }()
	defer b.end()
	drained := b.Workers[0].Member(0)
	shift := time.Now().UnixNano() - history.Now() // from history.Now to the clock of the decision log
	orders, err := b.give(ctx, n, []string{"worker", "drain", drained}, []string{"worker", "resume", drained})
	if err != nil {
		return nil, nil, err
	}
	log, err := b.Daemons[0].Decisions(ctx)
	if err != nil {
		return nil, nil, err
	}
	placed := 0
	for i := range log {
		for _, o := range orders {
			if at := log[i].At.UnixNano() - shift; log[i].Decision == "placed" && log[i].Worker == drained && at > o.at && at < o.until {
				placed++
			}
		}
	}
	waits, late, all, err := b.starts(orders, func(p *history.Process) bool { return p.Name == drained })
	return figure.Figures{figure.None("drained_placements", float64(placed)), figure.None("drained_starts", float64(late))},
		figure.Figures{
			figure.AtLeast("drains", float64(len(orders)), float64(n)), figure.AtLeast("drain_jobs", float64(all), 1),
			figure.AtLeast("drain_effective_ms", stats.Quantile(waits, 1), 0),
		}, err
}
