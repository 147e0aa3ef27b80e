package rig

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// TypeName returns the name of the i-th type.
func TypeName(i int) string { return fmt.Sprintf("noop-%03d", i) }

// fillStep bounds the rows of one transaction of Fill.
const fillStep = 1_000_000

// Fill inserts n jobs, spread evenly over the types, as a producer would.
func Fill(ctx context.Context, dsn string, n, types int) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for first := 1; first <= n; first += fillStep {
		_, err := conn.Exec(ctx, `INSERT INTO dispatcherd.jobs (type, payload)
			SELECT 'noop-' || lpad((g % $3)::text, 3, '0'), jsonb_build_object('n', g) FROM generate_series($1::int, $2::int) g`,
			first, min(first+fillStep-1, n), types)
		if err != nil {
			return fmt.Errorf("filling the table: %w", err)
		}
	}
	return nil
}

// lines returns n rows for copyJobs, spread evenly over the types.
func lines(n, types int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "%s\t{\"n\": %d}\n", TypeName(i%types), i)
	}
	return b.Bytes()
}

// copyJobs is the statement for lines.
const copyJobs = `COPY dispatcherd.jobs (type, payload) FROM STDIN`

// chunk is the number of jobs that Feed adds at a time.
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
	rows, inserted := lines(chunk, types), filled
	for ctx.Err() == nil {
		n, err := done()
		if err != nil {
			break // the daemon stops before the producer
		}
		missing := (backlog - (inserted - n)) / chunk
		for range missing {
			if _, err := conn.PgConn().CopyFrom(ctx, bytes.NewReader(rows), copyJobs); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return fmt.Errorf("feeding: %w", err)
			}
			inserted += chunk
		}
		if missing == 0 {
			_ = Pause(ctx, 5*time.Millisecond) // the loop ends with ctx
		}
	}
	return nil
}
