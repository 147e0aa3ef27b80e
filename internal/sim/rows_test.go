package sim

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// hard makes every kind of hard row frequent.
func hard(w *world) {
	w.rows.gap, w.rows.large, w.rows.unreadable, w.rows.unclaimable = second/200, 3000, 200, 500
}

// The judge checks that the other jobs are placed exactly as without these rows.
func TestHardRowsDelayNoOtherJob(t *testing.T) {
	t.Parallel()
	s := runWorlds(t, Rows, 12, hard)
	require.Positive(t, s.Loaded)
	require.Positive(t, s.SetAside)
	require.Positive(t, s.RowsLocked)
	require.Positive(t, s.RowsMoved)
	require.Positive(t, s.Windows)
}
