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
