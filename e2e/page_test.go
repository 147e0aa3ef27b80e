package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/devpg"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/migrations"
)

// A page of the table of jobs is damaged. The jobs on other pages run, also those of the
// same type and priority. The metric, the log and job why report the damage.
func TestDamagedPageStopsNoOtherJob(t *testing.T) {
	t.Parallel()
	server, options := ownServer(t)
	_, err := migrations.Up(t.Context(), server.URL("postgres"))
	require.NoError(t, err)
	w := newWorldOn(t, server.URL("postgres"))
	w.exec(`INSERT INTO dispatcherd.jobs (type, priority) SELECT 'x', n % 3 FROM generate_series(1, 400) n`)
	const page = 5
	bad := w.number(`SELECT count(*) FROM dispatcherd.jobs_live WHERE (ctid::text::point)[0] = $1::float`, page)
	id := w.number(`SELECT min(id) FROM dispatcherd.jobs_live WHERE (ctid::text::point)[0] = $1::float`, page)
	var file string
	require.NoError(t, w.db.QueryRow(t.Context(), `SELECT pg_relation_filepath('dispatcherd.jobs_live')`).Scan(&file))
	w.db.Reset()
	require.NoError(t, server.Stop())
	f, err := os.OpenFile(filepath.Join(options.Dir, "data", file), os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("damaged by the test: the header of a page"), page*8192)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	again, err := devpg.Start(context.WithoutCancel(t.Context()), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, again.Stop()) })

	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, scriptSlots{N: 8, Types: []string{"x", "y"}})
	w.exec(`INSERT INTO dispatcherd.jobs (type) SELECT 'y' FROM generate_series(1, 100) n`)
	const done = `SELECT count(*) FROM dispatcherd.jobs_done`
	eventually(
		t,
		func() bool { return w.number(done) == 500-bad },
		func() string { return fmt.Sprintf("%d jobs that are done; there are %d", 500-bad, w.number(done)) },
	)
	require.Positive(t, metricsOn(t, h.cfg)[`dispatcherd_rows_refused_total{operation="fetch"}`])
	require.Contains(t, h.log.text(), `"operation":"fetch"`)
	require.NotContains(t, h.log.text(), "Postgres does not answer")
	shown := onDatabase(t, w.dsn, "", fmt.Sprint("job why ", dispatcherd.JobID(id)), "--api-socket", h.cfg.APISocket)
	require.Equal(t, exit.OK, shown.code, shown.err)
	require.Contains(t, shown.out, "XX001")
}
