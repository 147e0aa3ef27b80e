package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// An operator inserts what shall be done. The daemon does it, also if no notification arrives: then a heartbeat finds the rows.
func TestOperationsOfOperatorsAreDone(t *testing.T) {
	for _, listen := range []bool{true, false} {
		t.Run(fmt.Sprint("listen ", listen), func(t *testing.T) {
			w := newWorld(t)
			cfg := w.config("d")
			cfg.Listen = listen
			h := w.start(cfg)
			w.worker("w", h.cfg.WorkerSocket, oneSlot("x"))
			running := w.insert("x", work{Do: "gate"})
			w.seen.start(t, running, 1)
			pending := w.insert("x", work{})
			ask := func(kind string, id dispatcherd.JobID) {
				w.exec(`INSERT INTO dispatcherd.operations (kind, target, who, reason) VALUES ($1, $2, 'anna', 'tested')`, kind, int64(id))
			}
			for _, id := range []dispatcherd.JobID{pending, running} {
				ask("cancel", id)
				require.Equal(t, "anna", *w.await(id, dispatcherd.Cancelled).Cancelled)
			}
			ask("retry", pending)
			w.await(pending, dispatcherd.Done)
			eventually(t, func() bool { return w.number(`SELECT count(*) FROM dispatcherd.operations`) == 0 },
				func() string { return "no remaining operation" })
			ask("cancel_tree", 12345)
			eventually(t, func() bool { return w.number(`SELECT count(*) FROM dispatcherd.operations`) == 0 },
				func() string { return "a refused operation to be deleted" })
			require.Contains(t, h.log.text(), "job 12345: no such job")
		})
	}
}
