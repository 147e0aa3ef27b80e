package daemon

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/internal/background"
)

// memoryInterval is the time between two measurements.
const memoryInterval = time.Second

// memoryUse is the memory of the Go runtime, in bytes.
type memoryUse struct {
	live  int64 // heap memory that the last collection found reachable
	other int64 // stacks and the runtime's own data
}

// softLimit returns the limit for Go's runtime. Without a limit the collector lets the heap grow
// to twice the live memory.
//
// More frequent collections do not make live memory smaller. With a limit near the live memory,
// the collector would run without a pause, on up to half of the processors. Therefore the limit
// is always at least a third above the live memory.
func softLimit(asked int64, use memoryUse) int64 {
	return max(asked, use.live+use.live/3+use.other)
}

const (
	usualGrowth = 100  // percent; the default of Go
	mostGrowth  = 1000 // a heap of 5 MB is collected at 55
)

// heapGrowth returns by how many percent of the live memory the heap may grow before a collection.
// The heap may grow until half of --memory-bytes is in use. The other half is for bursts. An idle
// daemon has little live memory, so with Go's default it would collect every thousand requests.
// Each collection delays a waiting caller by one or two milliseconds.
func heapGrowth(asked int64, use memoryUse) int {
	if use.live <= 0 {
		return usualGrowth
	}
	return int(min(max(100*(asked/2-use.other-use.live)/use.live, usualGrowth), mostGrowth))
}

// steerMemory returns the service that keeps Go's soft limit near a number of bytes (0 = no limit) and lets the heap grow within it,
// and a function that restores the settings. The environment variables GOMEMLIMIT and GOGC take precedence. The settings of Go's
// runtime belong to the whole process, so only one such service may run.
func steerMemory(bytes int, log *zap.Logger) (s background.Service, undo func()) {
	asked := int64(bytes)
	if _, fixed := os.LookupEnv("GOMEMLIMIT"); fixed || asked == 0 {
		return s, func() {}
	}
	limit, logged := int64(0), false
	growth, stopGrowing := growHeap()
	step := func(context.Context, background.Now) (time.Duration, error) {
		use := readMemory()
		growth(heapGrowth(asked, use))
		want := softLimit(asked, use)
		if want == limit {
			return memoryInterval, nil
		}
		limit = want
		debug.SetMemoryLimit(limit)
		if !logged && limit > asked {
			logged = true
			log.Warn("live memory is close to --memory-bytes: the limit is raised",
				zap.Int64("memory_bytes", asked), zap.Int64("live_bytes", use.live), zap.Int64("limit_bytes", limit))
		}
		return memoryInterval, nil
	}
	return background.Service{Name: "memory", Step: step}, func() {
		stopGrowing()
		debug.SetMemoryLimit(math.MaxInt64)
	}
}

// growHeap returns two functions: one sets the growth in percent, the other restores it. Setting
// the growth stops the program for a moment, so growHeap ignores differences of less than a
// fifth.
func growHeap() (set func(percent int), undo func()) {
	if _, fixed := os.LookupEnv("GOGC"); fixed {
		return func(int) {}, func() {}
	}
	now := usualGrowth
	before := debug.SetGCPercent(now)
	set = func(percent int) {
		if 5*max(percent-now, now-percent) > now {
			now = percent
			debug.SetGCPercent(now)
		}
	}
	return set, func() { debug.SetGCPercent(before) }
}

// readMemory returns the current use. It takes microseconds and stops no goroutine.
func readMemory() memoryUse {
	samples := []runtimemetrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}
	runtimemetrics.Read(samples)
	value := func(i int) int64 { return int64(samples[i].Value.Uint64()) }
	return memoryUse{live: value(0), other: value(1) - value(2) - value(3) - value(4) - value(5)}
}
