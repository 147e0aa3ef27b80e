package main

import (
	"io"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/internal/devpg"
	"github.com/dispatcherd/dispatcherd/migrations"
)

// Rows of jobs that ended at once, ran three times, and wait for a third attempt.
func TestHistoryContainsAllAttempts(t *testing.T) {
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
	const rows = `
		INSERT INTO dispatcherd.jobs_done (id, type, payload, priority, attempt, failures, crashes, max_attempts, created_at, run_at,
			started_at, finished_at, status, keys, fence)
			VALUES (1, 'x', '{}', 0, 1, 0, 0, 5, '2026-01-01 00:00:00Z', '2026-01-01 00:00:00Z', '2026-01-01 00:00:01Z',
				'2026-01-01 00:00:02Z', 'done', 'a*2 b*all a', 7);
		INSERT INTO dispatcherd.jobs_failed (id, type, payload, priority, attempt, failures, crashes, max_attempts, created_at, run_at,
			first_run_at, started_at, finished_at, status, keys, fence, errors)
			VALUES (2, 'x', '{}', 3, 2, 2, 0, 2, '2026-01-01 00:00:00Z', '2026-01-01 00:00:03Z', '2026-01-01 00:00:00Z',
				'2026-01-01 00:00:03Z', '2026-01-01 00:00:04Z', 'failed', 'a', 9, '[
				{"attempt": 1, "started_at": "2026-01-01T00:00:01.5+00:00", "at": "2026-01-01T00:00:02+00:00"},
				{"attempt": 2, "started_at": "2026-01-01T00:00:03+00:00", "at": "2026-01-01T00:00:04+00:00"}]');
		INSERT INTO dispatcherd.jobs_live (id, type, payload, priority, attempt, failures, crashes, max_attempts, created_at, run_at,
			status, keys, fence, errors)
			VALUES (3, 'x', '{}', 0, 2, 0, 2, 5, now(), now(), 'pending', 'a', -9,
				'[{"attempt": 2, "started_at": "2026-01-01T00:00:01+00:00", "at": "2026-01-01T00:00:02+00:00"}]')`
	if _, err := conn.Exec(ctx, rows); err != nil {
		t.Fatal(err)
	}
	jobs, err := read(ctx, server.URL("postgres"))
	if err != nil || len(jobs) != 3 {
		t.Fatal(len(jobs), err)
	}
	second := func(s float64) time.Time {
		return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(s * float64(time.Second)))
	}
	for i, want := range []struct {
		group string
		fence int64
		ended bool
		runs  []span
	}{
		{"a*2 b*all a x 0", 7, true, []span{{second(1), second(2)}}},
		{"a x 3", 9, true, []span{{second(1.5), second(2)}, {second(3), second(4)}}},
		{"a x 0", 9, false, []span{{second(1), second(2)}}},
	} {
		j := jobs[i]
		if j.group != want.group || j.fence != want.fence || j.ended != want.ended || len(j.runs) != len(want.runs) {
			t.Errorf("job %d is %+v, want %+v", j.id, j, want)
			continue
		}
		for k, r := range want.runs {
			if !j.runs[k].from.Equal(r.from) || !j.runs[k].to.Equal(r.to) {
				t.Errorf("attempt %d of job %d is %v, want %v", k, j.id, j.runs[k], r)
			}
		}
	}
	if a := jobs[0].needs; len(a) != 2 || a[0].Cost != 3 || a[0].All || !a[1].All {
		t.Errorf("the needs are %+v", a)
	}
	if !jobs[1].due.Equal(second(0)) {
		t.Errorf("the second job was first due at %v", jobs[1].due)
	}
	if n := unstarted(jobs); n != 1 {
		t.Errorf("%d attempts never started, want the first one of the third job", n)
	}
}
