package trace

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

func generated(t *testing.T, o GenerateOptions) *Trace {
	t.Helper()
	g, err := Generate(o)
	require.NoError(t, err)
	return g
}

// If this hash changes, the workload of `make demo` changes. The figures in
// docs/how-to/traces.md must then be measured again.
func TestGeneratedWorkloadIsTheSameOnEverySystem(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, generated(t, DefaultGenerateOptions()).Write(dir))
	hash := sha256.New()
	for _, name := range []string{jobsFile, slotsFile, eventsFile} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		hash.Write(text)
	}
	require.Equal(t, "558264c023efb231033df074c2f2fa2256cb54b00baed83612f4df2677da26d7", hex.EncodeToString(hash.Sum(nil)))
}

func TestGeneratedWorkloadHasTheDocumentedProportions(t *testing.T) {
	o := DefaultGenerateOptions()
	g := generated(t, o)
	require.GreaterOrEqual(t, len(g.Jobs), 5000)
	require.GreaterOrEqual(t, len(g.Workers()), 4)

	count := map[string]int{}
	for i, j := range g.Jobs {
		require.EqualValues(t, i+1, j.ID)
		require.Less(t, j.ArrivalMS, dayMS())
		if j.Priority >= 3 {
			count[j.Type]++
		} else {
			count["batch "+j.Type]++
			require.Equal(t, dispatcherd.Queued, j.Mode)
		}
		if j.Type == callback {
			require.Equal(t, dispatcherd.Queued, j.Mode)
		}
	}
	for _, s := range services {
		require.InDelta(t, float64(s.calls)/9998, float64(count[s.name])/float64(o.Calls), 0.015, s.name)
		require.InDelta(t, float64(s.batch)/1000, float64(count["batch "+s.name])/float64(o.Batch), 0.03, s.name)
	}
}

// Every job of a generated workload finds a slot. If an agent is the only one
// online for a type, it goes offline only after its successor is online.
func TestEveryGeneratedJobRuns(t *testing.T) {
	for seed := range uint64(20) {
		o := GenerateOptions{Seed: seed, Calls: 600, Batch: 200, Agents: 27 + int(seed), Workers: 1 + int(seed), Load: 60 + int(seed)}
		g := generated(t, o)
		require.Len(t, Naive(g, articleWeights()), len(g.Jobs), "seed %d", seed)
		require.Len(t, g.Workers(), o.Workers)

		capacity := map[string]int{}
		types := map[int64][]string{}
		for _, s := range g.Slots {
			types[s.ID] = s.Types
		}
		for i, e := range g.Events {
			for _, typ := range types[e.Slot] {
				capacity[typ] += 2*int(e.Kind) - 1
			}
			if e.AtMS > sliceMS && (i+1 == len(g.Events) || g.Events[i+1].AtMS > e.AtMS) {
				for _, typ := range g.Types() {
					require.Positive(t, capacity[typ], "seed %d: no slot for %s at %d ms", seed, typ, e.AtMS)
				}
			}
		}
	}
}

func TestGenerateRejectsInvalidOptions(t *testing.T) {
	for _, o := range []GenerateOptions{
		{Calls: 0, Agents: 27, Workers: 1, Load: 80},
		{Calls: 1, Batch: -1, Agents: 27, Workers: 1, Load: 80},
		{Calls: 1, Agents: 26, Workers: 1, Load: 80},
		{Calls: 1, Agents: 27, Workers: 28, Load: 80},
		{Calls: 1, Agents: 27, Workers: 1, Load: 100},
	} {
		_, err := Generate(o)
		require.ErrorContains(t, err, "allowed: ")
	}
}

func TestQuantilesStayBetweenTheirPoints(t *testing.T) {
	d := newRandom(1, 2)
	sum, n := int64(0), int64(200_000)
	for range n {
		ms := services[0].length.draw(d)
		if ms < 1000 || ms > 5_300_000 {
			require.Failf(t, "out of range", "%d ms", ms)
		}
		sum += ms
	}
	require.InDelta(t, 200.5, float64(sum)/float64(n)/1000, 3) // the mean of the straight lines, in seconds
}
