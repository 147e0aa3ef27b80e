package daemon

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// The reads of one type never end. The payload of another type is read meanwhile.
func TestPayloadsOfOneTypeDoNotDelayThoseOfAnother(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	read := make(chan dispatcherd.JobID, 1)
	var running sync.WaitGroup
	l := newLoads(&running, func(ctx context.Context, r contract.LoadRequest) contract.LoadResult {
		if r.Rows[0].Type == "slow" {
			<-ctx.Done()
		}
		return contract.LoadResult{Won: r.Rows}
	}, func(r contract.LoadResult) {
		if r.Won[0].Type == "quick" {
			read <- r.Won[0].ID
		}
	})
	rows := make([]contract.Won, 3*loadRows)
	for i := range rows {
		rows[i] = contract.Won{ID: dispatcherd.JobID(i + 1), Type: "slow"}
	}
	l.add(ctx, rows)
	for id := range dispatcherd.JobID(3) {
		l.add(ctx, []contract.Won{{ID: 1000 + id, Type: "quick"}})
		require.Equal(t, 1000+id, <-read)
	}
	cancel()
	running.Wait()
}
