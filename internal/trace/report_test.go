package trace

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// small is a trace whose report can be computed by hand. Slot 1 supports pdf. Slot
// 2 supports pdf and excel, and is online from 10 s to 40 s and from 60 s on.
func small() *Trace {
	return &Trace{
		Name: "small",
		Jobs: []Job{
			{ID: 1, ArrivalMS: 1000, Type: "pdf", Priority: 5, Mode: dispatcherd.Queued, DurationMS: 20_000},
			{ID: 2, ArrivalMS: 2000, Type: "pdf", Priority: 5, Mode: dispatcherd.OnDemand, DurationMS: 10_000},
			{ID: 3, ArrivalMS: 30_000, Type: "excel", Priority: 0, Mode: dispatcherd.Queued, DurationMS: 15_000},
			{ID: 4, ArrivalMS: 50_000, Type: "excel", Priority: 0, Mode: dispatcherd.Queued, DurationMS: 5000},
		},
		Slots: []Slot{{ID: 1, Worker: "a", Types: []string{"pdf"}}, {ID: 2, Worker: "b", Types: []string{"excel", "pdf"}}},
		Events: []SlotEvent{
			{AtMS: 0, Slot: 1, Kind: Register}, {AtMS: 10_000, Slot: 2, Kind: Register},
			{AtMS: 40_000, Slot: 2, Kind: Drain}, {AtMS: 60_000, Slot: 2, Kind: Register},
		},
	}
}

// Job 1 starts at once on slot 1. Job 2 waits 8 s for slot 2. Job 3 starts at once
// and occupies slot 2 for 5 s after its drain. Job 4 waits 10 s for the return of
// slot 2.
func TestReportOfASmallTraceIsExact(t *testing.T) {
	tr := small()
	require.NoError(t, tr.Check())
	ps := Naive(tr, articleWeights())
	require.Equal(t, []Placement{{1, 1000, 1}, {2, 10_000, 2}, {3, 30_000, 2}, {4, 60_000, 2}}, ps)

	r := Summarize(tr, tr.Executions(ps), 0, Findings{Placements: 4})
	require.Equal(t, Report{
		Trace: "small", Jobs: 4, Done: 4, Makespan: 64,
		Groups: []WaitGroup{
			{By: "all", Jobs: 4, Mean: 4.5, P50: 0, P95: 10, P99: 10, Max: 10},
			{By: "mode", Value: "queued", Jobs: 3, Mean: 10.0 / 3, P50: 0, P95: 10, P99: 10, Max: 10},
			{By: "mode", Value: "on_demand", Jobs: 1, Mean: 8, P50: 8, P95: 8, P99: 8, Max: 8},
			{By: "priority", Value: "5", Jobs: 2, Mean: 4, P50: 0, P95: 8, P99: 8, Max: 8},
			{By: "priority", Value: "0", Jobs: 2, Mean: 5, P50: 0, P95: 10, P99: 10, Max: 10},
			{By: "capacity", Value: "0", Jobs: 1, Mean: 10, P50: 10, P95: 10, P99: 10, Max: 10},
			{By: "capacity", Value: "1", Jobs: 3, Mean: 8.0 / 3, P50: 0, P95: 8, P99: 8, Max: 8},
		},
		Classes: []ClassReport{
			{Types: []string{"pdf"}, Slots: 1, Jobs: 1, OnLine: 65, Busy: 20, Utilisation: 20.0 / 65},
			{Types: []string{"excel", "pdf"}, Slots: 1, Jobs: 3, OnLine: 40, Busy: 30, Utilisation: 0.75},
		},
		Findings: Findings{Placements: 4},
	}, r)
}

func TestAJobWithoutAnExecutionIsLost(t *testing.T) {
	tr := small()
	done := tr.Executions(Naive(tr, articleWeights()))
	require.Equal(t, 1, Summarize(tr, done[:3], 0, Findings{}).Findings.Lost)
	require.Equal(t, 0, Summarize(tr, done[:3], 1, Findings{}).Findings.Lost)
	require.Equal(t, 0, Summarize(tr, append(done, done[0]), 0, Findings{}).Findings.Lost)
	require.Equal(t, 4, Summarize(tr, nil, 0, Findings{}).Findings.Lost)
}

func TestTheReportIsPrintedAligned(t *testing.T) {
	tr := small()
	r := Summarize(tr, tr.Executions(Naive(tr, articleWeights())), 0, Findings{Placements: 4})
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.Equal(t, `small: 4 jobs, 4 done, 0 failed, 64.0 s from the first arrival to the last end

waits in seconds  jobs   mean    p50    p95    max
all                  4  4.500  0.000   10.0   10.0
mode queued          3  3.333  0.000   10.0   10.0
mode on_demand       1  8.000  8.000  8.000  8.000
priority 5           2  4.000  0.000  8.000  8.000
priority 0           2  5.000  0.000   10.0   10.0
capacity 0           1   10.0   10.0   10.0   10.0
capacity 1           3  2.667  0.000  8.000  8.000

slot class  slots  jobs  on line h  busy h  utilisation
pdf             1     1        0.0     0.0       30.8 %
excel|pdf       1     3        0.0     0.0       75.0 %

placements 4: misplaced 0, affinity violations 0, placed twice 0; jobs lost 0
`, text.String())

	text.Reset()
	r.Findings.Placements = 6
	require.NoError(t, r.WriteText(&text))
	require.Contains(t, text.String(), "placements 6 (2 more than jobs: ")

	encoded, err := json.Marshal(r)
	require.NoError(t, err)
	var back Report
	require.NoError(t, json.Unmarshal(encoded, &back))
	require.Equal(t, r, back)
}

func TestPercentilesAreNearestRank(t *testing.T) {
	values := make([]int64, 100)
	for i := range values {
		values[i] = int64(i + 1)
	}
	require.EqualValues(t, 50, percentile(values, 50))
	require.EqualValues(t, 95, percentile(values, 95))
	require.EqualValues(t, 1, percentile(values[:1], 95))
	require.EqualValues(t, 2, percentile(values[:3], 50))
}

func TestCapacityBandsHalveRarity(t *testing.T) {
	want := map[int]string{0: "0", 1: "1", 2: "2-3", 3: "2-3", 4: "4-7", 7: "4-7", 8: "8-15", 15: "8-15", 16: "16+", 900: "16+"}
	for n, label := range want {
		_, got := capacityBand(n)
		require.Equal(t, label, got, n)
	}
}

func TestLongClassNamesAreCut(t *testing.T) {
	require.Equal(t, "a|b", className([]string{"a", "b"}))
	long := className([]string{"0123456789012345678901234567890", "0123456789012345678901234567890", "z"})
	require.Equal(t, "0123456789012345678901234567890|01234… (3 types)", long)
}

func TestRunsAreComparedSideBySide(t *testing.T) {
	tr := small()
	done := tr.Executions(Naive(tr, articleWeights()))
	runs := []Report{Summarize(tr, done, 0, Findings{}), Summarize(tr, done[:1], 0, Findings{})}
	var text bytes.Buffer
	require.NoError(t, WriteComparison(&text, []string{"default", "priority=1"}, runs))
	require.Equal(t, `[1] default
[2] priority=1

waits in seconds  jobs  mean [1]  mean [2]  p95 [1]  p95 [2]  max [1]  max [2]
all                  4     4.500     0.000     10.0    0.000     10.0    0.000
mode queued          3     3.333     0.000     10.0    0.000     10.0    0.000
mode on_demand       1     8.000         -    8.000        -    8.000        -
priority 5           2     4.000     0.000    8.000    0.000    8.000    0.000
priority 0           2     5.000         -     10.0        -     10.0        -
capacity 0           1      10.0         -     10.0        -     10.0        -
capacity 1           3     2.667     0.000    8.000    0.000    8.000    0.000
`, text.String())
}
