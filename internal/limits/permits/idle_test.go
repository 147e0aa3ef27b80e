package permits

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// 300,000 keys with a daily rate: the book keeps those that jobs need, and a bounded number of others. What it forgets is reported again.
func TestUnusedKeysWithStartsAreBounded(t *testing.T) {
	w := newWorld(t, Limit{Key: "day*", Capacity: Unlimited, Rate: 1, Per: 86_400_000_000})
	w.config.MaxClasses = 10 * idleShare
	run := func(key string) int64 {
		id := w.add(key, "a")
		w.admits(id)
		w.start(id)
		return id
	}
	used := run("dayused")
	for i := range 10 {
		w.end(run(fmt.Sprint("day", i)))
	}
	w.Recorded()
	require.True(t, w.Knows("day0"), "there are few of them")
	w.end(run("day10"))
	require.True(t, w.Knows("day0"), "their starts may not be recorded")
	w.Recorded()
	for i := range 11 {
		require.False(t, w.Knows(fmt.Sprint("day", i)))
	}
	require.True(t, w.Knows("dayused"))
	require.Len(t, w.keys, 1)
	require.Len(t, w.windows, 1)

	w.Starts("day3", 0, w.now-5, 1)
	third, used2 := w.add("day3", "a"), w.add("dayused", "a")
	w.admits()
	w.end(used)
	w.pass(86_000)
	w.admits()
	w.pass(1000)
	w.admits(third, used2)
}
