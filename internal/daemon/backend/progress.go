package backend

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// progressPause is the time between two statements. Each statement creates a new
// version of the rows that it writes.
const progressPause = time.Second

// Recording returns the service that calls write with the latest progress. Progress that cannot be written is replaced by the next report.
func (r *Rows) Recording(write func(context.Context, []claim.Progress) error) background.Service {
	return background.Service{
		Name: "progress", Topics: contract.ProgressMade, Rest: progressPause,
		Step: func(ctx context.Context, _ background.Now) (time.Duration, error) {
			r.mu.Lock()
			items := slices.Collect(maps.Values(r.progress)) // order-free: the statement sorts
			clear(r.progress)
			r.mu.Unlock()
			if len(items) == 0 {
				return time.Hour, nil
			}
			return time.Hour, write(ctx, items)
		},
	}
}
