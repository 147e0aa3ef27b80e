package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

func TestTheLimitIsWhatWasAskedForWhileThatLeavesAThirdForGarbage(t *testing.T) {
	require.EqualValues(t, 120, softLimit(120, memoryUse{}))
	require.EqualValues(t, 120, softLimit(120, memoryUse{live: 81, other: 12}), "81 + 27 + 12")
}

// Otherwise the collector would run without a pause and make nothing smaller.
func TestTheLimitGivesWayToWhatIsLive(t *testing.T) {
	require.EqualValues(t, 121, softLimit(120, memoryUse{live: 81, other: 13}))
	require.EqualValues(t, 410, softLimit(120, memoryUse{live: 300, other: 10}))
}

func TestTheRuntimeTellsWhatIsLive(t *testing.T) {
	const ballast = 64 << 20
	read := newMemoryReader()
	runtime.GC()
	before := read.use()
	held := make([]byte, ballast)
	runtime.GC()
	after := read.use()
	runtime.KeepAlive(held)
	require.InDelta(t, ballast, after.live-before.live, ballast/2, "other tests may run")
	require.Positive(t, after.other)
	require.Less(t, after.other, int64(ballast), "it is no part of the rest")
}

func TestMemoryIsLeftAloneIfTheEnvironmentOrNobodyBoundsIt(t *testing.T) {
	was := debug.SetMemoryLimit(-1)
	for _, c := range []struct {
		asked int
		env   string
	}{{asked: 0}, {asked: 1 << 20, env: "10GiB"}} {
		if c.env != "" {
			t.Setenv("GOMEMLIMIT", c.env)
		}
		d := &daemon{cfg: daemonConfig{Memory: c.asked}, log: zap.NewNop()}
		d.steerMemory(context.Background()) // returns at once
		require.Equal(t, was, debug.SetMemoryLimit(-1))
	}
}
