package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// server contains the counters of Postgres.
type server struct {
	statements                      bool
	walBytes, walRecords, walImages int64
	walSyncs                        int64
	syncMS                          float64
}

const walSQL = `SELECT wal_bytes::bigint, wal_records, wal_fpi, wal_sync, wal_sync_time FROM pg_stat_wal`

// readServer reads the counters. If asked it also resets those of the statements.
func readServer(ctx context.Context, dsn string, statements bool) (server, error) {
	s := server{statements: statements}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return s, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if statements {
		if _, err := conn.Exec(ctx, `SELECT pg_stat_statements_reset()`); err != nil {
			return s, err
		}
	}
	return s, conn.QueryRow(ctx, walSQL).Scan(&s.walBytes, &s.walRecords, &s.walImages, &s.walSyncs, &s.syncMS)
}

func (s server) report(ctx context.Context, dsn string, n int) error {
	after, err := readServer(ctx, dsn, false)
	if err != nil {
		return err
	}
	jobs := float64(n)
	fmt.Printf("\nlog: %.0f bytes and %.2f records a job, %.4f page images a job; %d syncs, %.2f ms each\n",
		float64(after.walBytes-s.walBytes)/jobs, float64(after.walRecords-s.walRecords)/jobs, float64(after.walImages-s.walImages)/jobs,
		after.walSyncs-s.walSyncs, (after.syncMS-s.syncMS)/max(float64(after.walSyncs-s.walSyncs), 1))
	if !s.statements {
		return nil
	}
	return reportStatements(ctx, dsn, jobs)
}

// reportStatements prints the slowest statements.
func reportStatements(ctx context.Context, dsn string, jobs float64) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, `SELECT query, calls, rows, total_exec_time, wal_bytes::bigint, shared_blks_hit + shared_blks_read
		FROM pg_stat_statements ORDER BY total_exec_time DESC LIMIT 8`)
	if err != nil {
		return err
	}
	fmt.Println("statements as Postgres sees them (without commit and sync):")
	var (
		query              string
		calls, n, wal, hit int64
		ms                 float64
	)
	_, err = pgx.ForEachRow(rows, []any{&query, &calls, &n, &ms, &wal, &hit}, func() error {
		fmt.Printf("    %6d calls %7.3f ms each %6.2f µs a job %5.0f B log a job %5.1f pages a job  %.70s\n",
			calls, ms/float64(calls), 1000*ms/jobs, float64(wal)/jobs, float64(hit)/jobs, strings.Join(strings.Fields(query), " "))
		return nil
	})
	return err
}
