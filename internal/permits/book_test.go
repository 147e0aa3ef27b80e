package permits

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Several arrivals and a cancelled job.
func TestArrivalsAreReadAndGoneJobsForgotten(t *testing.T) {
	w := newWorld(t)
	class := Class{Keys: "k", Type: "a"}
	require.True(t, w.Arrived(class, Job{1, 1}, 3))
	w.admits(1)
	r := w.Refills(1)
	require.Equal(t, class, r[0].Class)
	require.Equal(t, Job{1, 1}, r[0].After)
	w.Filled(r[0], []Job{{1, 2}, {1, 3}}, false)
	w.Gone(class, 2)
	w.end(1)
	w.admits(3)
}
