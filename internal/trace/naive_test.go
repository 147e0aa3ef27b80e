package trace

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/scoring"
)

// articleWeights are the weights of the expected schedules: those of the article,
// without the cap on the on-demand extra.
func articleWeights() scoring.Weights {
	w := scoring.Default()
	w.OnDemandCap = scoring.NoCap
	return w
}

// realTrace loads a real trace and its expected schedule. The real traces are not
// part of the project; docs/how-to/traces.md says how to get them. A test is skipped if
// its trace is missing.
func realTrace(t *testing.T, name string) (*Trace, []Placement) {
	t.Helper()
	root := os.Getenv("DISPATCHERD_TRACES")
	if root == "" {
		root = filepath.Join("..", "..", "..", "shared", "traces")
	}
	dir := filepath.Join(root, name)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("%s is not there: set DISPATCHERD_TRACES to the folder that holds the real traces (docs/how-to/traces.md)", dir)
	}
	loaded, err := Load(dir)
	require.NoError(t, err)
	want, err := LoadSchedule(filepath.Join(dir, "expected.csv"))
	require.NoError(t, err)
	return loaded, want
}

func TestNaiveScheduleEqualsTheExpectedOneOnRealTraces(t *testing.T) {
	for name, lines := range map[string]int{"bank_january": 26_772, "openb33": 7_169} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loaded, want := realTrace(t, name)
			require.Len(t, want, lines)
			require.Equal(t, want, Naive(loaded, articleWeights()))
		})
	}
}
