package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// job contains the times of one job of an open loop, in nanoseconds since 1970. 0 means
// that the time is not known.
type job struct {
	committed int64        // the INSERT was acknowledged
	started   atomic.Int64 // the handler started first
	recorded  int64        // the end was committed
}

// producers is the number of connections that insert jobs of an open loop.
const producers = 24

// produce inserts all jobs at random instants with the given mean rate, whatever the
// system does meanwhile. insert adds jobs first … first+n-1 in one transaction.
func produce(ctx context.Context, jobs []job, rate int, insert func(ctx context.Context, first, n int) error) error {
	batch := batchAt(rate)
	batches := make(chan int, len(jobs))
	failed := make(chan error, producers)
	var group sync.WaitGroup
	for range producers {
		group.Go(func() {
			for first := range batches {
				n := min(batch, len(jobs)-first)
				if err := insert(ctx, first, n); err != nil {
					failed <- err
					return
				}
				now := time.Now().UnixNano()
				for i := range n {
					jobs[first+i].committed = now
				}
			}
		})
	}
	due := time.Now()
	for first := 0; first < len(jobs) && ctx.Err() == nil; first += batch {
		due = due.Add(time.Duration(rand.ExpFloat64() * float64(batch) / float64(rate) * 1e9))
		time.Sleep(time.Until(due))
		batches <- first
	}
	close(batches)
	group.Wait()
	close(failed)
	return errors.Join(<-failed, ctx.Err())
}

// batchAt returns the number of jobs of one transaction. One disk does not commit
// several thousand single jobs per second.
func batchAt(rate int) int {
	if rate > 2000 {
		return 10
	}
	return 1
}
