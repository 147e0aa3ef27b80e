package daemon

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
)

// progressNotes hold the newest progress of each row's job that runs here. It
// is written down once a second at most, because every write makes a version
// of the row. There are never more notes than running jobs.
type progressNotes struct {
	mu     sync.Mutex
	newest map[dispatcherd.JobID]claim.Progress
}

const progressPause = time.Second

func (p *progressNotes) note(e *actor.Progress) {
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

// recordProgress writes the notes down until ctx is done. What cannot be
// written is superseded by the next note anyway.
func (d *Daemon) recordProgress(ctx context.Context) {
	tick := time.NewTicker(progressPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		items := d.rows.progress.take()
		if len(items) == 0 {
			continue
		}
		if err := d.store.Progress(ctx, items); err != nil && ctx.Err() == nil {
			d.log.Debug("progress was not recorded", zap.Int("jobs", len(items)), zap.Error(err))
		}
	}
}
