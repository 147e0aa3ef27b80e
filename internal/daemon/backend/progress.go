package backend

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/claim"
)

// progressNotes holds the latest progress of each queued job that runs here. It is written
// at most once per second, because each write creates a version of the row. There are never
// more notes than running jobs.
type progressNotes struct {
	mu     sync.Mutex
	newest map[dispatcherd.JobID]claim.Progress
}

const progressPause = time.Second

func (p *progressNotes) note(e *effect.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newest[e.Job] = claim.Progress{ID: e.Job, Attempt: e.Attempt, JSON: e.JSON}
}

func (p *progressNotes) take() []claim.Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	items := make([]claim.Progress, 0, len(p.newest))
	for _, item := range p.newest { // order-free: the statement sorts
		items = append(items, item)
	}
	clear(p.newest)
	return items
}

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
		items := r.progress.take()
		if len(items) == 0 {
			continue
		}
		if err := write(ctx, items); err != nil && ctx.Err() == nil {
			log.Debug("progress was not recorded", zap.Int("jobs", len(items)), zap.Error(err))
		}
	}
}
