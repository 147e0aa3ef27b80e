package daemon

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

func TestLimitIsTheSettingWhileAThirdIsFree(t *testing.T) {
	require.EqualValues(t, 120, softLimit(120, memoryUse{}))
	require.EqualValues(t, 120, softLimit(120, memoryUse{live: 81, other: 12}), "81 + 27 + 12")
}

// Otherwise the collector would run without a pause.
func TestLimitStaysAThirdAboveLiveMemory(t *testing.T) {
	require.EqualValues(t, 121, softLimit(120, memoryUse{live: 81, other: 13}))
	require.EqualValues(t, 410, softLimit(120, memoryUse{live: 300, other: 10}))
}

func TestSmallHeapGrowsToHalfOfTheSetting(t *testing.T) {
	require.Equal(t, 300, heapGrowth(120, memoryUse{live: 14, other: 4}), "14 + 42 + 4 is half")
	require.Equal(t, mostGrowth, heapGrowth(120, memoryUse{live: 1}), "by no more than tenfold")
}

func TestLargeHeapGrowsByTheDefaultOfGo(t *testing.T) {
	for _, live := range []int64{0, 30, 60, 1000} {
		require.Equal(t, usualGrowth, heapGrowth(120, memoryUse{live: live, other: 5}), live)
	}
}

// Setting the growth stops the program, so small differences are ignored.
func TestGrowthIsSetIfItDiffersByAFifth(t *testing.T) {
	if _, fixed := os.LookupEnv("GOGC"); fixed {
		t.Skip("GOGC takes precedence")
	}
	now := func() int {
		was := debug.SetGCPercent(usualGrowth)
		debug.SetGCPercent(was)
		return was
	}
	before := now()
	set, undo := growHeap()
	set(300)
	require.Equal(t, 300, now())
	set(350)
	require.Equal(t, 300, now())
	set(100)
	require.Equal(t, 100, now())
	undo()
	require.Equal(t, before, now())
}

func TestReaderReturnsLiveMemory(t *testing.T) {
	const ballast = 64 << 20
	runtime.GC()
	before := readMemory()
	held := make([]byte, ballast)
	runtime.GC()
	after := readMemory()
	runtime.KeepAlive(held)
	require.InDelta(t, ballast, after.live-before.live, ballast/2, "other tests may run")
	require.Positive(t, after.other)
	require.Less(t, after.other, int64(ballast), "the ballast is not counted as other")
}

func TestLimitIsUnchangedWithoutSettingOrWithGOMEMLIMIT(t *testing.T) {
	was := debug.SetMemoryLimit(-1)
	for _, c := range []struct {
		asked int
		env   string
	}{{asked: 0}, {asked: 1 << 20, env: "10GiB"}} {
		if c.env != "" {
			t.Setenv("GOMEMLIMIT", c.env)
		}
		service, undo := steerMemory(c.asked, zap.NewNop())
		require.Nil(t, service.Step)
		undo()
		require.Equal(t, was, debug.SetMemoryLimit(-1))
	}
}
