package resources

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// DefaultMemory keeps the process below 150 MB: the pages of the program itself
// come on top.
const DefaultMemory = 120 << 20

// memoryLook is between two looks at what is in use.
const memoryLook = time.Second

// memoryUse is what Go's runtime holds, in bytes.
type memoryUse struct {
	live  int64 // of the heap, as the last collection found it
	other int64 // stacks, and what the runtime needs for itself
}

// softLimit is the memory that Go's runtime should keep to when so much was asked
// for. Without a limit the collector lets the heap grow to twice of what is live.
//
// What is live does not shrink for being collected more often: a limit near it
// would have the collector run without a pause, at up to half of the processors.
// So the limit gives way, and always leaves a third of what is live for garbage.
func softLimit(asked int64, use memoryUse) int64 {
	return max(asked, use.live+use.live/3+use.other)
}

const (
	usualGrowth = 100  // percent, as Go has it
	mostGrowth  = 1000 // a heap of 5 MB is collected at 55
)

// heapGrowth is how many percent of what is live the heap may grow by before it is
// collected: until half of what was asked for is in use. A collection keeps a
// waiting caller for a millisecond or two, and an idle daemon has little that is
// live, so it would collect every thousand requests, for memory that it was
// granted anyway. The other half is left to a burst.
func heapGrowth(asked int64, use memoryUse) int {
	if use.live <= 0 {
		return usualGrowth
	}
	return int(min(max(100*(asked/2-use.other-use.live)/use.live, usualGrowth), mostGrowth))
}

// SteerMemory keeps Go's soft limit as --memory-bytes says, and lets the heap grow
// within it, until ctx is done. The environment variables GOMEMLIMIT and GOGC,
// which the runtime has read, go first.
func (f *Resources) SteerMemory(ctx context.Context) {
	asked := int64(f.Memory)
	if _, fixed := os.LookupEnv("GOMEMLIMIT"); fixed || asked == 0 {
		return
	}
	debug.SetMemoryLimit(asked)
	defer debug.SetMemoryLimit(math.MaxInt64)
	tick := time.NewTicker(memoryLook)
	defer tick.Stop()
	read := newMemoryReader()
	limit, told := asked, false
	growth, stopGrowing := growHeap()
	defer stopGrowing()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		use := read.use()
		growth(heapGrowth(asked, use))
		want := softLimit(asked, use)
		if want == limit {
			continue
		}
		limit = want
		debug.SetMemoryLimit(limit)
		if !told && limit > asked {
			told = true
			f.Log.Warn("what the dispatcher holds leaves too little of --memory-bytes for garbage: it takes more",
				zap.Int64("memory_bytes", asked), zap.Int64("live_bytes", use.live), zap.Int64("limit_bytes", limit))
		}
	}
}

// growHeap returns what sets the growth in percent, and what takes it back. Setting
// it stops the program for a moment, so differences of less than a fifth are left
// alone.
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

// memoryReader asks the runtime. It is not safe for concurrent use.
type memoryReader struct{ samples []runtimemetrics.Sample }

func newMemoryReader() *memoryReader {
	r := &memoryReader{}
	for _, name := range []string{
		"/gc/heap/live:bytes", "/memory/classes/total:bytes", "/memory/classes/heap/objects:bytes",
		"/memory/classes/heap/unused:bytes", "/memory/classes/heap/free:bytes", "/memory/classes/heap/released:bytes",
	} {
		r.samples = append(r.samples, runtimemetrics.Sample{Name: name})
	}
	return r
}

// use stops nothing and takes microseconds.
func (r *memoryReader) use() memoryUse {
	runtimemetrics.Read(r.samples)
	value := func(i int) int64 {
		if s := r.samples[i].Value; s.Kind() == runtimemetrics.KindUint64 {
			return int64(min(s.Uint64(), math.MaxInt64/4))
		}
		return 0 // a runtime that does not tell
	}
	return memoryUse{live: value(0), other: value(1) - value(2) - value(3) - value(4) - value(5)}
}

// newMemoryGauge shows the soft limit as it is now.
func newMemoryGauge() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "dispatcherd_memory_limit_bytes",
		Help: "Memory that Go's runtime keeps to now; above --memory-bytes: what must be held leaves too little of it.",
	}, func() float64 { return float64(debug.SetMemoryLimit(-1)) })
}
