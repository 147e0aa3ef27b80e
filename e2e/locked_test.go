package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A transaction has locked three times as many rows as there are slots. All of them have
// higher scores than the jobs that the same slots could run.
func TestLockedRowsStopNoOtherJob(t *testing.T) {
	w := newWorldAlone(t)
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, scriptSlots{N: 50, Types: []string{"a", "b"}})
	h.awaitSlots(50)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	w.exec(`INSERT INTO dispatcherd.jobs (type, priority, run_at) SELECT 'a', 9, now() + interval '1 s' FROM generate_series(1, 150)`)
	_, err = tx.Exec(t.Context(), `SELECT FROM dispatcherd.jobs_live FOR UPDATE`)
	require.NoError(t, err)
	w.exec(
		`INSERT INTO dispatcherd.jobs (type, priority, run_at) SELECT t, p, now() + interval '1 s' FROM unnest('{a,a,b}'::text[], '{9,3,3}'::int[]) x (t, p), generate_series(1, 300)`,
	)
	const done = `SELECT count(*) FROM dispatcherd.jobs WHERE status = 'done'`
	eventually(t, func() bool { return w.number(done+` AND finished_at > run_at`) == 900 }, func() string {
		return fmt.Sprintf("900 done jobs; there are %d", w.number(done))
	})
	require.Less(t, w.number(`SELECT (1000 * extract(epoch FROM max(finished_at - run_at)))::int FROM dispatcherd.jobs_done`), 3000)
	line := fmt.Sprintf(`"locked_by":%d`, tx.Conn().PgConn().PID())
	eventually(t, func() bool { return strings.Contains(h.log.text(), line) }, func() string { return "a line about the lock" })
	require.NoError(t, tx.Commit(t.Context()))
	tx, err = w.db.Begin(t.Context()) // for the deferred rollback
	require.NoError(t, err)
	ended := time.Now()
	eventually(
		t,
		func() bool { return w.number(done) == 1050 },
		func() string { return fmt.Sprintf("the jobs that were locked; there are %d", w.number(done)) },
	)
	require.Less(t, time.Since(ended), 6*time.Second)
}
