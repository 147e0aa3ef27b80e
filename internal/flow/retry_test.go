package flow

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The last member ended, and the callback was released, after the retry was answered and before its message is read.
func TestRetryLeavesABatchWhoseCallbackRuns(t *testing.T) {
	t.Parallel()
	v := View{
		Batch: Batch{ID: 1, Kind: "batch", RunWhen: "ended", Callback: true, Sealed: true, Ended: true, Failed: 1},
		Alive: true, Waiting: NoRow, Messages: []Message{{Target: 1, ID: 1, Walk: Retry}},
	}
	c := Step(&v, Full)
	require.True(t, c.Batch.Ended)
	require.Empty(t, c.Batch.Walk)
	require.Equal(t, []int64{1}, c.Taken)
}
