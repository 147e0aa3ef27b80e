package daemon

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
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
func running(t *testing.T, db *pgxpool.Pool, edits ...func(*Config)) (*Daemon, *observer.ObservedLogs) {
	t.Helper()
	dir, err := os.MkdirTemp("", "daemon") // t.TempDir is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	core, lines := observer.New(zap.DebugLevel)
	cfg := DefaultConfig()
	cfg.Name, cfg.DSN, cfg.WorkerSocket, cfg.APISocket = "d", db.Config().ConnString(), filepath.Join(dir, "w"), filepath.Join(dir, "a")
	cfg.Lease, cfg.Grace, cfg.Workers.Resume, cfg.Memory = 10*time.Second, 0, 0, 0
	for _, edit := range edits {
		edit(&cfg)
	}
	d, err := Start(t.Context(), cfg, zap.New(core))
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
	d, _ := running(t, db)
	statement(t, db, `ALTER TABLE dispatcherd.jobs_failed_rest RENAME TO gone`)
	_, err := (&maintenance{Daemon: d}).keepPartitions(t.Context(), background.Now{})
	require.Error(t, err)
	statement(t, db, `ALTER TABLE dispatcherd.gone RENAME TO jobs_failed_rest`)
	next, err := (&maintenance{Daemon: d}).keepPartitions(t.Context(), background.Now{})
	require.NoError(t, err)
	require.GreaterOrEqual(t, next, partitionInterval)
}

// A producer in an open transaction has read ids of all partitions, so none can be dropped.
func TestBlockedRetentionIsReported(t *testing.T) {
	db := database(t)
	statement(t,
		db,
		`CREATE TABLE dispatcherd.jobs_done_20200101 PARTITION OF dispatcherd.jobs_done 
			FOR VALUES FROM ('2020-01-01 00:00Z') TO ('2020-01-02 00:00Z')`,
	)
	reader, err := db.Begin(t.Context())
	require.NoError(t, err)
	_, err = reader.Exec(t.Context(), `SET LOCAL ROLE dispatcherd_producer; SELECT count(id) FROM dispatcherd.jobs`)
	require.NoError(t, err)
	store, err := claim.Open(t.Context(), claimfake.Config(db.Config().ConnString(), "test"))
	require.NoError(t, err)
	t.Cleanup(store.Close)
	core, lines := observer.New(zap.DebugLevel)
	r := prometheus.NewRegistry()
	m := &maintenance{Daemon: &Daemon{store: store, log: zap.New(core), metrics: &metrics{retained: background.Gauge(r, "retained", "")}}}
	retained := func() float64 {
		families, err := r.Gather()
		require.NoError(t, err)
		return families[0].GetMetric()[0].GetGauge().GetValue()
	}
	warnings := func() int { return lines.FilterMessageSnippet("partitions of ended jobs remain blocked").Len() }
	keep := func() {
		_, err := m.keepPartitions(t.Context(), background.Now{})
		require.NoError(t, err)
	}
	keep()
	require.Zero(t, warnings(), "it may end before the next call")
	keep()
	require.Equal(t, 1, warnings())
	require.Zero(t, retained())
	require.NoError(t, reader.Rollback(t.Context()))
	keep()
	require.False(t, m.blocked)
	require.Equal(t, 1, warnings())
	require.InDelta(t, float64(time.Now().Unix()), retained(), 60)
}

// gaugeOf returns the value of a metric without labels.
func gaugeOf(t *testing.T, d *Daemon, name string) float64 {
	t.Helper()
	families, err := d.Metrics().Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("there is no metric " + name)
	return 0
}

func TestMetricOfRequestKeysIsTheSizeOfTheirTable(t *testing.T) {
	db := database(t)
	d, _ := running(t, db)
	statement(t, db, `INSERT INTO dispatcherd.request_keys SELECT sha256(i::text::bytea), '', i, now() FROM generate_series(1, 7) i`)
	statement(t, db, `ANALYZE dispatcherd.request_keys`)
	_, err := (&maintenance{Daemon: d}).countRows(t.Context(), background.Now{})
	require.NoError(t, err)
	require.Equal(t, 7, int(gaugeOf(t, d, "dispatcherd_request_keys")))
}

func TestMetricsOfBatchesAreThoseOfTheTables(t *testing.T) {
	db := database(t)
	d, _ := running(t, db)
	statement(t, db, `INSERT INTO dispatcherd.batches (id, kind, opened_at, sealed_at) VALUES
		(1001, 'batch', now() - interval '1 hour', NULL), (1002, 'batch', now(), NULL),
		(1003, 'batch', now() - interval '1 day', now()), (1004, 'children', now() - interval '1 day', NULL)`)
	_, err := (&maintenance{Daemon: d}).countRows(t.Context(), background.Now{})
	require.NoError(t, err)
	require.Equal(t, 2, int(gaugeOf(t, d, "dispatcherd_batches_unsealed")))
	require.InDelta(t, 3600, gaugeOf(t, d, "dispatcherd_batches_unsealed_oldest_seconds"), 600)
	require.Zero(t, gaugeOf(t, d, "dispatcherd_end_records"))
}
