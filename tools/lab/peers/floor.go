package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// The floor is a table with the columns that a job needs, and two connections that
// each claim and finish batches without a worker.
const (
	floorBatch       = 1000
	floorConnections = 2
)

func fillFloor(ctx context.Context, _ *arena, dsn string, n int) error {
	return rig.Exec(ctx, dsn,
		`CREATE TABLE jobs (
			id bigint PRIMARY KEY, run_at timestamptz NOT NULL DEFAULT now(), attempt int NOT NULL DEFAULT 0,
			status smallint NOT NULL DEFAULT 0, type text NOT NULL, payload jsonb NOT NULL, finished_at timestamptz)`,
		`CREATE INDEX ON jobs (id) WHERE status = 0`,
		fmt.Sprintf(`INSERT INTO jobs (id, type, payload) SELECT g, 'noop', jsonb_build_object('n', g) FROM generate_series(1, %d) g`, n))
}

const (
	floorClaim = `UPDATE jobs SET status = 1, attempt = attempt + 1 WHERE id IN (
		SELECT id FROM jobs WHERE status = 0 ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING id, attempt, payload`
	floorFinish = `UPDATE jobs SET status = 2, finished_at = now() WHERE id = ANY ($1) AND status = 1`
)

func drainFloor(ctx context.Context, _ *arena, dsn string, n int) (span, error) {
	var conns []*pgx.Conn
	for range floorConnections {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return span{}, err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		for _, sql := range []string{floorClaim, floorFinish} {
			if _, err := conn.Prepare(ctx, sql, sql); err != nil {
				return span{}, err
			}
		}
		conns = append(conns, conn)
	}
	done := make([]int, len(conns))
	s := span{from: time.Now()}
	group, ctx := errgroup.WithContext(ctx)
	for i, conn := range conns {
		group.Go(func() (err error) {
			done[i], err = claimAndFinish(ctx, conn)
			return err
		})
	}
	err := group.Wait()
	s.to = time.Now()
	if sum := done[0] + done[1]; err == nil && sum != n {
		err = fmt.Errorf("%d of %d jobs are done", sum, n)
	}
	return s, err
}

func claimAndFinish(ctx context.Context, conn *pgx.Conn) (done int, err error) {
	for {
		rows, err := conn.Query(ctx, floorClaim, floorBatch)
		if err != nil {
			return done, err
		}
		ids := make([]int64, 0, floorBatch)
		var id int64
		var attempt int32
		var payload []byte
		if _, err = pgx.ForEachRow(rows, []any{&id, &attempt, &payload}, func() error {
			ids = append(ids, id)
			return nil
		}); err != nil || len(ids) == 0 {
			return done, err
		}
		tag, err := conn.Exec(ctx, floorFinish, ids)
		if err != nil {
			return done, err
		}
		done += int(tag.RowsAffected())
	}
}
