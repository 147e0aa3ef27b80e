package e2e

import (
	"context"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/worker"
)

// peak returns the largest resident memory that a process has had, in bytes.
func peak(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	require.NoError(t, err)
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	require.NotNil(t, found)
	kb, err := strconv.ParseInt(string(found[1]), 10, 64)
	require.NoError(t, err)
	return kb << 10
}

// programPages is the memory of the program itself, and what the kernel counts in addition to
// the sum that Go reports.
const programPages = 26 << 20

func TestDaemonKeepsWithinItsMemoryAtFullLoad(t *testing.T) {
	if runtime.GOOS != "linux" || raceFactor > 1 {
		t.Skip("the test reads /proc, and the race detector uses more memory than the daemon")
	}
	if _, fixed := os.LookupEnv("GOMEMLIMIT"); fixed {
		t.Skip("GOMEMLIMIT overrides the setting")
	}
	const slots, memory = 1000, 56 << 20
	w := newWorldAlone(t)
	cfg := w.config("d")
	process := w.serve(cfg, "--memory-bytes", strconv.Itoa(memory))
	sdk := worker.New(worker.Options{Socket: cfg.WorkerSocket, Name: "noop"})
	sdk.Slots(slots, "x")
	sdk.Handle("x", func(context.Context, *worker.Job) (any, error) { return nil, nil })
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- sdk.Run(ctx) }()
	for jobs := int64(125_000); jobs <= 250_000; jobs += 125_000 {
		w.exec(`INSERT INTO dispatcherd.jobs (type) SELECT 'x' FROM generate_series(1, 125000)`)
		w.awaitCounts(map[dispatcherd.Status]int64{dispatcherd.Done: jobs})
	}
	end()
	require.NoError(t, <-ended)
	shown, most := metricsOn(t, cfg), peak(t, process.pid())
	t.Logf("at most %d MB; %.0f collections, limit %.0f MB", most/1e6,
		shown["go_gc_duration_seconds_count"], shown["dispatcherd_memory_limit_bytes"]/1e6)
	limit := int64(shown["dispatcherd_memory_limit_bytes"])
	require.InDelta(t, memory, limit, memory/5, "the limit exceeds the setting only as far as live memory requires")
	require.Less(t, most, limit+programPages)
	process.signal(t, syscall.SIGTERM)
	process.ends(t, exit.OK)
}
