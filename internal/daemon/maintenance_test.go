package daemon

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dispatcherd/dispatcherd/actor/config"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// database returns a database with the schema.
func database(t *testing.T) *pgxpool.Pool {
	t.Helper()
	db, err := pgxpool.New(t.Context(), pgtest.New(t))
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return db
}

func statement(t *testing.T, db *pgxpool.Pool, sql string) {
	t.Helper()
	_, err := db.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// running starts a daemon that runs until the test ends. It returns the log, too.
func running(t *testing.T, db *pgxpool.Pool) (*Daemon, *observer.ObservedLogs) {
	t.Helper()
	dir, err := os.MkdirTemp("", "daemon") // t.TempDir is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	core, lines := observer.New(zap.DebugLevel)
	d, err := Start(t.Context(), Config{
		Name: "d", DSN: db.Config().ConnString(), WorkerSocket: filepath.Join(dir, "w"), APISocket: filepath.Join(dir, "a"), SocketMode: 0o600,
		Core: config.Default(), Workers: workerproto.Limits{}.WithDefaults(), Lease: 10 * time.Second, Heartbeat: time.Second, Listen: true,
	}, zap.New(core))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return d, lines
}

func TestPeer_B06_FailedMaintenanceIsRetried(t *testing.T) {
	db := database(t)
	d, lines := running(t, db)
	statement(t, db, `ALTER FUNCTION dispatcherd.keep_partitions RENAME TO keep_partitions_gone`)
	require.Equal(t, partitionRetry, d.maintenance.keepPartitions(t.Context()))
	require.NotZero(t, lines.FilterMessageSnippet("daily partitions failed").Len()) // the first maintenance of the daemon may fail, too
	statement(t, db, `ALTER FUNCTION dispatcherd.keep_partitions_gone RENAME TO keep_partitions`)
	require.Equal(t, partitionInterval, d.maintenance.keepPartitions(t.Context()))
}

// A daemon that was killed may have paused autovacuum. The next one enables it again.
func TestAutovacuumIsEnabledAgainAfterAKilledDaemon(t *testing.T) {
	db := database(t)
	statement(t, db, `SELECT dispatcherd.pause_vacuum(true)`)
	d, lines := running(t, db)
	d.maintenance.paceVacuum(t.Context())
	var paused int
	require.NoError(t, db.QueryRow(t.Context(), `SELECT count(*) FROM pg_class WHERE 'autovacuum_enabled=false' = ANY (reloptions)`).Scan(&paused))
	require.Zero(t, paused)
	require.Equal(t, 1, lines.FilterMessageSnippet("autovacuum of the table of jobs is enabled again").Len())
	families, err := d.Metrics().Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "dispatcherd_vacuum_paused" {
			require.Zero(t, f.GetMetric()[0].GetGauge().GetValue())
			return
		}
	}
	t.Fatal("there is no such metric")
}
