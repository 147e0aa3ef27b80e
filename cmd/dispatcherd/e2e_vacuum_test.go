package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A daemon that was killed may have left autovacuum at rest; the next one ends that,
// and says so.
func TestADaemonEndsARestOfVacuumThatAnotherLeftBehind(t *testing.T) {
	w := newWorld(t)
	w.exec(`SELECT dispatcherd.rest_vacuum(true)`)
	h := w.start(w.config("d"))
	h.paceVacuum(t.Context())
	require.Zero(t, w.number(`SELECT count(*) FROM pg_class WHERE 'autovacuum_enabled=false' = ANY (reloptions)`))
	require.Contains(t, h.log.text(), "autovacuum of the table of jobs works again")
	families, err := h.metrics.registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "dispatcherd_vacuum_rests" {
			require.Zero(t, f.GetMetric()[0].GetGauge().GetValue())
			return
		}
	}
	t.Fatal("there is no such metric")
}
