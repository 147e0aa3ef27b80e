package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// shape describes the processes of a measurement.
type shape struct {
	Backlog     int
	Types       int
	Dispatchers int
	Workers     int  // processes of all dispatchers
	Slots       int  // slots of all workers
	feed        bool // whether a producer keeps the backlog constant
}

// usual is the default shape, of which each curve changes one value.
var usual = shape{Backlog: 200_000, Types: 1, Dispatchers: 1, Workers: 4, Slots: 1000, feed: true}

// load is a running shape.
type load struct {
	shape
	rig     *rig.Rig
	dsn     string
	before  time.Duration // processor time of the server at the end of the preparation
	daemons []*rig.Daemon
	crews   []*rig.Crew
	stop    context.CancelFunc // stops the producer
	fed     chan error
}

const database = "scaling"

// start fills a new database and starts all processes.
func start(ctx context.Context, r *rig.Rig, s shape) (_ *load, err error) {
	l := &load{shape: s, rig: r}
	if l.dsn, err = r.FreshJobs(ctx, database); err != nil {
		return nil, err
	}
	if err = rig.Fill(ctx, l.dsn, s.Backlog, s.Types); err != nil {
		return nil, err
	}
	if err = r.Settle(ctx, l.dsn); err != nil {
		return nil, err
	}
	if err = r.CacheLog(ctx); err != nil {
		return nil, err
	}
	l.before = r.PostgresCPU()
	defer func() {
		if err != nil {
			err = errors.Join(err, l.end())
		}
	}()
	for i := range s.Dispatchers {
		d, err := r.Daemon(ctx, l.dsn, fmt.Sprintf("daemon%d", i))
		if err != nil {
			return nil, err
		}
		l.daemons = append(l.daemons, d)
	}
	processes := max(1, s.Workers/s.Dispatchers)
	for _, d := range l.daemons {
		c, err := r.Crew(d.Socket, processes, s.Slots/s.Dispatchers/processes, s.Types)
		if err != nil {
			return nil, err
		}
		l.crews = append(l.crews, c)
	}
	if s.feed {
		var feed context.Context
		feed, l.stop = context.WithCancel(ctx)
		l.fed = make(chan error, 1)
		go func() {
			l.fed <- rig.Feed(feed, l.dsn, s.Backlog, s.Backlog, s.Types, func() (int, error) {
				m, err := l.metrics(feed)
				return int(m.Done()), err
			})
		}()
	}
	return l, nil
}

// end stops all processes.
func (l *load) end() error {
	var errs []error
	if l.stop != nil {
		l.stop()
		errs = append(errs, <-l.fed)
	}
	for _, c := range l.crews {
		errs = append(errs, c.Stop())
	}
	for _, d := range l.daemons {
		errs = append(errs, d.Close())
	}
	return errors.Join(append(errs, l.rig.Drop(context.Background(), database))...)
}

// metrics returns the sum of the metrics of all daemons.
func (l *load) metrics(ctx context.Context) (rig.Metrics, error) {
	sum := rig.Metrics{}
	for _, d := range l.daemons {
		m, err := d.Metrics(ctx)
		if err != nil {
			return nil, err
		}
		for k, v := range m {
			sum[k] += v
		}
	}
	return sum, nil
}

// reading contains all counters at one time.
type reading struct {
	at                        time.Time
	metrics                   rig.Metrics
	postgres, daemon, workers time.Duration // processor time
}

func (l *load) read(ctx context.Context) (reading, error) {
	m, err := l.metrics(ctx)
	r := reading{at: time.Now(), metrics: m, postgres: l.rig.PostgresCPU()}
	for _, d := range l.daemons {
		r.daemon += rig.CPU(d.PID())
	}
	for _, c := range l.crews {
		r.workers += c.CPU()
	}
	return r, err
}
