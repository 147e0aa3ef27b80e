package rig

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Lines returns n rows for COPY (type, payload), spread evenly over the types.
func Lines(n, types int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "%s\t{\"n\": %d}\n", TypeName(i%types), i)
	}
	return b.Bytes()
}

// CopyRate inserts the n jobs in Lines by one COPY and returns the rows per second.
func CopyRate(ctx context.Context, dsn string, lines []byte, n int) (rate float64, err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	began := time.Now()
	tag, err := conn.PgConn().CopyFrom(ctx, bytes.NewReader(lines), copyJobs)
	took := time.Since(began)
	if err == nil && tag.RowsAffected() != int64(n) {
		err = fmt.Errorf("%d of %d rows were copied", tag.RowsAffected(), n)
	}
	return float64(n) / took.Seconds(), err
}

// copyJobs is the statement for Lines.
const copyJobs = `COPY dispatcherd.jobs (type, payload) FROM STDIN`

// chunk is the number of jobs that a Feeder adds at a time.
const chunk = 5000

// Feed is a producer. It keeps about backlog jobs pending until ctx ends. done
// returns the number of jobs that have ended so far; filled is the number of jobs
// at the start.
func Feed(ctx context.Context, dsn string, backlog, filled, types int, done func() (int, error)) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	lines, inserted := Lines(chunk, types), filled
	for ctx.Err() == nil {
		n, err := done()
		if err != nil {
			break // the daemon stops before the producer
		}
		missing := (backlog - (inserted - n)) / chunk
		for range missing {
			if _, err := conn.PgConn().CopyFrom(ctx, bytes.NewReader(lines), copyJobs); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return fmt.Errorf("feeding: %w", err)
			}
			inserted += chunk
		}
		if missing == 0 {
			pause(ctx, 5*time.Millisecond)
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
