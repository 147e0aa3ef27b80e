package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Operators may lock the table of schedules, because they edit it. A dispatcher starts and runs jobs nevertheless. After
// the transaction of the operator it makes ticks.
func TestLockedTableOfSchedulesStopsNoStart(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO dispatcherd.schedules (name, kind, spec, type) VALUES ('s', 'cron', '* * * * * *', 'y')`)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background()) // without effect after Commit
	_, err = tx.Exec(t.Context(), `LOCK TABLE dispatcherd.schedules`)
	require.NoError(t, err)
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, oneSlot("x"))
	w.exec(`INSERT INTO dispatcherd.jobs (type) SELECT 'x' FROM generate_series(1, 10)`)
	const done = `SELECT count(*) FROM dispatcherd.jobs WHERE status = 'done'`
	eventually(t, func() bool { return w.number(done) == 10 },
		func() string { return fmt.Sprintf("10 done jobs; there are %d", w.number(done)) })
	require.NoError(t, tx.Commit(t.Context()))
	w.awaitTicks("s", "run", 1)
}
