package traces

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/internal/trace"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// The test uses the complete path: table, claims, core, socket, workers, and
// back.
func TestReplayThroughTheDaemonPlacesEveryJobExactly(t *testing.T) {
	const speed = 3000
	day, err := trace.Generate(trace.GenerateOptions{Seed: 5, Calls: 400, Batch: 300, Agents: 27, Workers: 4, Load: 85})
	require.NoError(t, err)
	day.Jobs = slices.DeleteFunc(day.Jobs,
		func(j trace.Job) bool { return j.ArrivalMS >= 4*3600_000 }) // four hours of the trace take five seconds
	w, err := trace.Compress(scoring.Default(), speed)
	require.NoError(t, err)
	host, err := startHost(t.Context(), pgtest.New(t), w, zap.NewNop())
	require.NoError(t, err)
	r := &replay{trace: day, speed: speed, host: host, stall: 20 * time.Second}
	report, err := r.run(t.Context())
	require.NoError(t, errors.Join(err, host.close()))
	require.Equal(t, len(day.Jobs), report.Done)
	require.Zero(t, report.Failed)
	require.True(t, report.Findings.Clean(), "%+v", report.Findings)
	require.GreaterOrEqual(t, report.Findings.Placements, len(day.Jobs))
}

func TestHostWithoutDatabaseIsRemoved(t *testing.T) {
	_, err := startHost(t.Context(), "postgres:///x?host=/does/not/exist", scoring.Default(), zap.NewNop())
	require.ErrorContains(t, err, "/does/not/exist")
}
