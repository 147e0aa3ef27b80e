package backend

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/claim"
)

// progressPause is the time between two statements. Each statement creates a new
// version of the rows that it writes.
const progressPause = time.Second

// RecordProgress calls write with the latest progress once per second until ctx is done.
// Progress that cannot be written is replaced by the next report.
func (r *Rows) RecordProgress(ctx context.Context, log *zap.Logger, write func(context.Context, []claim.Progress) error) {
	tick := time.NewTicker(progressPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.mu.Lock()
		items := slices.Collect(maps.Values(r.progress)) // order-free: the statement sorts
		clear(r.progress)
		r.mu.Unlock()
		if len(items) == 0 {
			continue
		}
		if err := write(ctx, items); err != nil && ctx.Err() == nil {
			log.Debug("progress was not recorded", zap.Int("jobs", len(items)), zap.Error(err))
		}
	}
}
