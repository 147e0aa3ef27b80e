package claim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

func TestOfSeveralJobsTheNewestIsRetried(t *testing.T) {
	t.Parallel()
	const failed = dispatcherd.Failed
	again, left := retried([]endedJob{
		{ID: 1, Status: failed},
		{ID: 2, Status: failed, Key: "k"},
		{ID: 3, Status: failed, Key: "k"},
		{ID: 4, Status: failed, Key: "live", Holder: 99},
		{ID: 5, Status: failed, Schedule: 7, Name: "s", Overlap: "skip"},
		{ID: 6, Status: failed, Schedule: 7, Name: "s", Overlap: "skip"},
		{ID: 8, Status: failed, Schedule: 8, Name: "t", Overlap: "skip", Run: 100},
		{ID: 9, Status: failed, Kind: "flow", Awaited: 11, Key: "k"},
		{ID: 10, Status: failed, Stopped: 12},
	})
	require.Equal(t, []int64{1, 3, 6}, again)
	why := map[dispatcherd.JobID]string{}
	for id, e := range left {
		require.Equal(t, id, e.ID)
		why[id] = e.Want
	}
	require.Equal(t, map[dispatcherd.JobID]string{
		2: `job 3 has its unique key "k"`, 4: `job 99 has its unique key "live"`,
		5: `it is a run of schedule "s", and its run 6 has not ended (overlap = skip)`,
		8: `it is a run of schedule "t", and its run 100 has not ended (overlap = skip)`,
		9: "it must wait for other jobs: retry flow 11", 10: "12, to which it belongs, is being cancelled: retry it afterwards",
	}, why)
}
