package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// otherController makes another dispatcher, which does nothing, the controller for a long time. So no schedule runs, and no
// job with keys is admitted.
const otherController = `
INSERT INTO dispatcherd.dispatchers (name, lease) SELECT 'here', '1 day' WHERE NOT EXISTS (SELECT FROM dispatcherd.dispatchers);
UPDATE dispatcherd.dispatchers SET lease = '1 day', incarnation = gen_random_uuid();
UPDATE dispatcherd.controller SET dispatcher = (SELECT min(id) FROM dispatcherd.dispatchers)`

// served is the API socket of a dispatcher without workers, and the database that it uses.
type served struct{ socket, url string }

// serving starts a dispatcher on a database in the state that a statement makes.
func serving(t *testing.T, sql string) served {
	t.Helper()
	dir, err := os.MkdirTemp("", "api") // t.TempDir is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	s := served{filepath.Join(dir, "a"), databaseWith(t, sql+";"+otherController)}
	var f serveFlags
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	f.register(bare(nil), flags)
	require.NoError(t, flags.Parse([]string{
		"--api-socket", s.socket, "--worker-socket", filepath.Join(dir, "w"), "--keep-done", "87600h", "--keep-failed", "87600h", "--grace", "0s",
	}))
	cfg, err := f.config()
	require.NoError(t, err)
	cfg.DSN = s.url
	d, err := daemon.Start(t.Context(), cfg, zap.NewNop())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return s
}

// ask runs a command line, split at blanks.
func (s served) ask(t *testing.T, stdin, line string, more ...string) outcome {
	t.Helper()
	env := map[string]string{"DISPATCHERD_API_SOCKET": s.socket}
	return invocation{args: append(strings.Fields(line), more...), stdin: stdin, env: env}.runs(t)
}

func databaseWith(t *testing.T, sql string) string {
	t.Helper()
	url := pgtest.New(t)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
	return url
}
