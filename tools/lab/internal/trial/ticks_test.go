package trial

import (
	"context"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/internal/devpg"
	"github.com/dispatcherd/dispatcherd/migrations"
)

// migrated returns a connection to an empty database with the current schema.
func migrated(t *testing.T) *pgx.Conn {
	t.Helper()
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
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
	return conn
}

// If a migration changes the conditions that a control removes, the control must be changed as well.
func TestControlOfTicksLetsAnOccasionHaveTwo(t *testing.T) {
	ctx, conn := t.Context(), migrated(t)
	if _, err := conn.Exec(
		ctx,
		`INSERT INTO dispatcherd.schedules (name, kind, spec, type, overlap) VALUES ('s', 'cron', '* * * * *', 'tick', 'allow_all')`,
	); err != nil {
		t.Fatal(err)
	}
	again := func() (outcome string) {
		if err := conn.QueryRow(ctx, `SELECT m.outcome
			FROM dispatcherd.schedules s, dispatcherd.make_ticks(ARRAY[s.id], '{2026-01-01T00:00:00Z}', ARRAY[s.version],
			'{2026-01-01T00:00:00Z}', '{2026-01-01T00:00:00Z}', '{0}', '{NULL}', false) m`).
			Scan(&outcome); err != nil {
			t.Fatal(err)
		}
		return outcome
	}
	if first, second := again(), again(); first != "run" || second != "exists" {
		t.Errorf("the outcomes are %q and %q, want run and exists", first, second)
	}
	for _, sql := range tickTwice {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	if third := again(); third != "run" {
		t.Errorf("without the safeguards the outcome is %q, want run", third)
	}
}
