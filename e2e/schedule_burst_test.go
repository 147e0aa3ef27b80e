package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
)

// Attack 13, with a fiftieth of the schedules, because "make schedules" measures all of them: many
// schedules are due in one second. Their jobs are inserted in time, in statements of at most 1,000, and plain jobs keep running.
func TestBurstOfSchedulesIsInsertedInTime(t *testing.T) {
	w := newWorldAlone(t)
	cfg := w.config("d")
	h := w.start(cfg)
	w.worker("w", cfg.WorkerSocket, scriptSlots{N: 4, Types: []string{"x"}})
	h.awaitSlots(4)
	const n = 2_000
	w.exec(
		`INSERT INTO dispatcherd.schedules (name, kind, spec, type) SELECT 's' || n, 'cron', '0 0 1 1 *', 'none'
			FROM generate_series(1, $1::int) n`,
		n,
	)
	eventually(t, func() bool { return h.samples()[`dispatcherd_schedules{state="active"}`] == n },
		func() string { return "all schedules in the plan" })
	at := time.Now().Add(8 * time.Second).UTC()
	w.exec(`UPDATE dispatcherd.schedules SET spec = $1`, at.Format("5 4 15 2 1 *"))
	for w.ticks("s1", "run") == 0 && time.Since(at) < longWait {
		id := w.insertNew(claim.New{Type: "x"}, work{})
		w.await(id, dispatcherd.Done)
	}
	eventually(t, func() bool { return w.number(`SELECT count(*) FROM dispatcherd.ticks`) == n }, func() string { return "all ticks" })
	late := w.number(`SELECT (extract(epoch FROM max(made_at) - max(planned_at)) * 1000)::int FROM dispatcherd.ticks`)
	t.Logf("the last of %d ticks was made %d ms after its instant", n, late)
	require.Less(t, late, 4000, "2 s on an idle machine")
	require.Equal(t, n, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE type = 'none'`))
}
