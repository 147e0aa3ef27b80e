package main

import (
	"io"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/internal/devpg"
	"github.com/dispatcherd/dispatcherd/migrations"
)

// Rows of an hour with one schedule: all is well, an occasion has no tick, a job has no tick, a
// job has not ended, a tick is late.
func TestFiguresOfKillsFindEachFault(t *testing.T) {
	ctx := t.Context()
	server, err := devpg.Start(ctx, devpg.Options{Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	if _, err := migrations.Up(ctx, server.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	const well = `
		INSERT INTO dispatcherd.schedules (name, kind, spec, type, ends_at)
		VALUES ('s', 'cron', '* * * * * *', 'tick', date_trunc('second', now()) + interval '10 seconds');
		INSERT INTO dispatcherd.jobs_done (id, type, payload, priority, attempt, failures, crashes, max_attempts, created_at, finished_at, status)
			SELECT i, 'tick', '{}', 0, 1, 0, 0, 5, now(), now(), 'done' FROM generate_series(1, 9) i;
		INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome, planned_at, made_at, job_id)
			SELECT s.id, to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'run', at, at + interval '10 ms', i
			FROM dispatcherd.schedules s, generate_series(1, 9) i, LATERAL (SELECT date_trunc('second', s.since) + i * interval '1 second' AS at) o;
		CREATE TABLE IF NOT EXISTS kills (at timestamptz, near boolean, role timestamptz)`
	for _, c := range []struct {
		name, sql, figure string
		want              float64
	}{
		{"nothing", "", "lost", 0},
		{"tick", "DELETE FROM dispatcherd.ticks WHERE job_id = 3", "lost", 1},
		{"second job", "UPDATE dispatcherd.ticks SET job_id = NULL WHERE job_id = 3", "twice", 1},
		{"job", "DELETE FROM dispatcherd.jobs_done WHERE id = 4", "lost", 1},
		{"instant", "UPDATE dispatcherd.ticks SET planned_at = planned_at + interval '1 ms' WHERE job_id = 4", "drift_ms", 1},
		{"lag", "UPDATE dispatcherd.ticks SET made_at = made_at + interval '1 s'", "lag_p50_ms", 1010},
		{"takeover", "INSERT INTO kills SELECT planned_at, false, planned_at + interval '3 s' FROM dispatcherd.ticks WHERE " +
			"job_id = 4", "takeover_s", 3.01},
		{"takeover by a successor", "INSERT INTO kills SELECT planned_at, true, planned_at + interval '3 s' FROM " +
			"dispatcherd.ticks WHERE job_id = 4", "takeover_same_host_s", 3.01},
	} {
		t.Run(c.name, func(t *testing.T) {
			tx, err := conn.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(ctx)
			for _, sql := range []string{well, c.sql} {
				if _, err := conn.Exec(ctx, sql); err != nil {
					t.Fatal(err)
				}
			}
			got, err := killFigures(ctx, conn)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range got {
				if f.Name == c.figure && f.Value != c.want {
					t.Errorf("%s is %v, want %v: %s", f.Name, f.Value, c.want, got)
				}
			}
			if bad := len(got.Failures()) > 2; bad && c.sql == "" {
				t.Error(got.Failures())
			}
		})
	}
}
