package traces

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/trace"
)

func TestPlanSplitsATraceByWorkerOnTheCompressedClock(t *testing.T) {
	tr := &trace.Trace{
		Slots: []trace.Slot{
			{ID: 1, Worker: "b", Types: []string{"x"}},
			{ID: 2, Worker: "a", Types: []string{"x"}},
			{ID: 3, Worker: "b", Types: []string{"y"}},
		},
		Events: []trace.SlotEvent{
			{AtMS: 0, Slot: 1, Kind: trace.Register}, {AtMS: 5000, Slot: 1, Kind: trace.Drain}, {AtMS: 7000, Slot: 1, Kind: trace.Register},
			{AtMS: 1000, Slot: 2, Kind: trace.Register},
		},
	}
	require.Equal(t, []workerPlan{
		{Worker: "a", Slots: []slotPlan{{Slot: 2, Types: []string{"x"}, Sessions: []sessionPlan{{From: 10 * time.Millisecond}}}}},
		{Worker: "b", Slots: []slotPlan{
			{Slot: 1, Types: []string{"x"}, Sessions: []sessionPlan{{0, 50 * time.Millisecond}, {70 * time.Millisecond, 0}}},
			{Slot: 3, Types: []string{"y"}},
		}},
	}, workerPlans(tr, 100))
	require.EqualValues(t, 5000, decompress(compress(5000, 100), 100))
}
