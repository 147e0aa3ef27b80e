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

// An operator changes the priority of a waiting job, so it is known in two classes.
func TestJobInTwoClassesGetsItsPermitsOnce(t *testing.T) {
	w := newWorld(t, Limit{Key: "k", Capacity: 2})
	w.Add(Class{Keys: "k", Type: "a"}, Job{1, 1})
	w.Add(Class{Keys: "k", Type: "a", Priority: 1}, Job{1, 1})
	w.admits(1)
	w.end(1)
	w.Add(Class{Keys: "k*2", Type: "a"}, Job{2, 2})
	w.admits(2)
}
