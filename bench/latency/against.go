package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/bench/internal/rig"
	"github.com/dispatcherd/dispatcherd/bench/internal/stats"
)

// contestant is one of the compared daemons. Each has its own database, worker and
// producer on the same server.
type contestant struct {
	name      string
	producer  *pgx.Conn
	arrived   chan time.Time
	stop      []func() error
	acked     []float64 // milliseconds from the acknowledgement to the worker, in this round
	itself    []float64 // duration of the INSERT in milliseconds, in this round
	p50s, p99 []float64 // p50 and p99 of the previous rounds
	inserts   []float64 // p50 of the INSERTs of the previous rounds
}

// compare measures the daemons in turn, job by job, so that changes in the speed of
// disk and machine affect all of them.
func compare(ctx context.Context, daemons []string, n, rounds int, flags []string) (err error) {
	r, err := rig.Start(ctx, rig.Options{Daemon: daemons[0]})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	all := make([]*contestant, len(daemons))
	for i := range daemons {
		c := &contestant{name: string(rune('A' + i)), arrived: make(chan time.Time, 1)}
		all[i] = c
		defer func() { err = errors.Join(err, c.end()) }()
		if err := c.begin(ctx, r, daemons[i], flags); err != nil {
			return err
		}
	}
	for round := range rounds + 1 {
		for i := range n * len(all) {
			if err := all[(i+i/len(all))%len(all)].insert(ctx); err != nil {
				return err
			}
		}
		for _, c := range all {
			c.close(round)
		}
	}
	for i, c := range all {
		fmt.Printf("%s %s: acknowledged → worker p50 %.0f µs (%.0f–%.0f), p99 %.0f; INSERT p50 %.0f\n", c.name, daemons[i],
			1000*stats.Quantile(c.p50s, 0.5), 1000*stats.Quantile(c.p50s, 0), 1000*stats.Quantile(c.p50s, 1),
			1000*stats.Quantile(c.p99, 0.5), 1000*stats.Quantile(c.inserts, 0.5))
	}
	return nil
}

func (c *contestant) begin(ctx context.Context, r *rig.Rig, daemon string, flags []string) error {
	dsn, err := r.FreshJobs(ctx, "latency_"+c.name)
	if err != nil {
		return err
	}
	d, err := r.DaemonOf(ctx, daemon, dsn, "daemon-"+c.name, flags...)
	if err != nil {
		return err
	}
	c.stop = append(c.stop, d.Stop)
	c.stop = append(c.stop, work(ctx, d.Workers, c.arrived))
	if c.producer, err = pgx.Connect(ctx, dsn); err != nil {
		return err
	}
	return nil
}

func (c *contestant) end() error {
	var errs []error
	if c.producer != nil {
		errs = append(errs, c.producer.Close(context.Background()))
	}
	for _, stop := range slices.Backward(c.stop) {
		errs = append(errs, stop())
	}
	return errors.Join(errs...)
}

// insert adds a job and waits until the worker has received it.
func (c *contestant) insert(ctx context.Context) error {
	began := time.Now()
	if _, err := c.producer.Exec(ctx, insertSQL, rig.TypeName(0)); err != nil {
		return err
	}
	acknowledged := time.Now()
	select {
	case at := <-c.arrived:
		c.acked = append(c.acked, ms(at.Sub(acknowledged)))
		c.itself = append(c.itself, ms(acknowledged.Sub(began)))
	case <-time.After(time.Minute):
		return errors.New("a job did not arrive within a minute")
	}
	time.Sleep(5*time.Millisecond + rand.N(10*time.Millisecond))
	return nil
}

// close ends a round. Round 0 is a warm-up and does not count.
func (c *contestant) close(round int) {
	if round > 0 {
		p50, p99 := stats.Quantile(c.acked, 0.5), stats.Quantile(c.acked, 0.99)
		c.p50s, c.p99 = append(c.p50s, p50), append(c.p99, p99)
		c.inserts = append(c.inserts, stats.Quantile(c.itself, 0.5))
		fmt.Printf("round %d %s: p50 %.0f µs, p99 %.0f\n", round, c.name, 1000*p50, 1000*p99)
	}
	c.acked, c.itself = c.acked[:0], c.itself[:0]
}
