package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// The two commands are those of docs/how-to/operations.md. All that waits in the dump runs after it was restored into an empty database.
func TestDumpOfTheSchemaIsRestoredIntoAnEmptyDatabase(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO dispatcherd.limits (key, capacity) VALUES ('k', 1)`)
	w.exec(`INSERT INTO dispatcherd.schedules (name, spec, type) VALUES ('s', '* * * * * *', 'x')`)
	w.exec(`INSERT INTO dispatcherd.jobs (type, keys, expected_ms) VALUES ('x', NULL, NULL), ('x', 'k', NULL), ('x', NULL, 60000)`)
	w.exec(`INSERT INTO dispatcherd.jobs (type, status, finished_at) VALUES ('ended', 'done', now()), ('ended', 'failed', now())`)
	w.exec(`SELECT dispatcherd.insert_unique('{"type": "x"}', 'u', '1 day')`)
	w.exec(`SELECT dispatcherd.insert_flow('{"nodes": [{"name": "a", "type": "x"}, {"name": "b", "type": "x", "after": ["a"]}]}')`)
	w.exec(`DO $$ DECLARE b bigint := dispatcherd.open_batch('{"type": "x"}'); BEGIN
		INSERT INTO dispatcherd.jobs (type, parent) VALUES ('x', b); PERFORM dispatcherd.seal_batch(b); END $$`)
	before := w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE type = 'x'`)

	bin, err := exec.CommandContext(t.Context(), "pg_config", "--bindir").Output()
	require.NoError(t, err)
	file, empty := filepath.Join(t.TempDir(), "jobs.dump"), pgtest.Empty(t)
	for _, c := range [][]string{
		{"pg_dump", "--schema=dispatcherd", "--format=custom", "--file=" + file, w.dsn},
		{"pg_restore", "--exit-on-error", "--dbname=" + empty, file},
	} {
		said, err := exec.CommandContext(t.Context(), filepath.Join(strings.TrimSpace(string(bin)), c[0]), c[1:]...).CombinedOutput()
		require.NoError(t, err, "%s: %s", c[0], said)
	}
	db, err := pgxpool.New(t.Context(), empty)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	w.dsn, w.db, w.jobs = empty, db, claim.Jobs{DB: db}
	cfg := w.config("a")
	w.start(cfg)
	w.worker("w", cfg.WorkerSocket, oneSlot("x"))
	w.awaitTicks("s", "run", 1)
	eventually(t, func() bool {
		return w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE type = 'x' AND status = 'done'`) > before
	}, func() string { return "all jobs of the dump, and one of the schedule, are done" })
	eventually(t, func() bool { return w.number(`SELECT count(*) FROM dispatcherd.batches WHERE ended_at IS NULL`) == 0 },
		func() string { return "the end of the batch and of the flow" })
	require.Equal(t, 2, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE type = 'ended' AND status IN ('done', 'failed')`))
}
