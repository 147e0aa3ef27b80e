package daemon

import (
	"context"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// maintenance sweeps lost dispatchers, creates and drops partitions of ended jobs, and counts
// pending rows.
type maintenance struct {
	*Daemon

	sweepAt time.Time // no sweep before
	remain  bool      // the last sweep left rows
	blocked bool      // other sessions blocked a part of the last keepPartitions
}

// services returns the services of the maintenance.
func (m *maintenance) services() []background.Service {
	return []background.Service{
		{Name: "sweeps", Topics: contract.DispatcherLost, Step: m.sweep},
		{Name: "partitions", Step: m.keepPartitions},
		{Name: "row counts", Step: m.countRows},
		m.api.pending.Counting(),
	}
}

// sweep releases the jobs of lost dispatchers and deletes these dispatchers. Each heartbeat asks for this until no dispatcher is lost. The
// deletion reads all jobs that have not ended. Therefore, after one that left rows, the next one begins after ten times its duration.
func (m *maintenance) sweep(ctx context.Context, now background.Now) (wait time.Duration, err error) {
	if now.Woken == 0 {
		return time.Hour, nil
	}
	released, err := m.store.Release(ctx)
	if released > 0 {
		m.log.Warn("released the jobs of lost dispatchers", zap.Int("jobs", released))
		m.loop.Notify()
	}
	if err != nil || now.At.Before(m.sweepAt) {
		return time.Hour, err
	}
	remaining, err := m.store.Sweep(ctx)
	if err != nil {
		return 0, err
	}
	if remaining > 0 && !m.remain {
		m.log.Error(
			"jobs of lost dispatchers are still running in the table: their rows were locked or could not be changed, no claim had "+
				"recorded them, or the database was restored; the next release after a heartbeat tries them again",
			zap.Int("jobs", remaining),
		)
	}
	if m.remain = remaining > 0; m.remain {
		ended := time.Now()
		m.sweepAt = ended.Add(10 * ended.Sub(now.At))
	}
	return time.Hour, nil
}

// Time between two calls that maintain the partitions of ended jobs, to which a random time is added.
const (
	partitionInterval = time.Hour
	partitionJitter   = partitionInterval / 10
)

// createPartitions creates the partitions that contain today and the next days before the first job ends. The
// daemon also works without them, so the time is bounded.
func (m *maintenance) createPartitions(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer cancel()
	kept, err := m.store.KeepPartitions(ctx, m.cfg.Keep, false)
	if err != nil {
		m.log.Warn("creating partitions of ended jobs failed", zap.Error(err))
	}
	if kept.Made > 0 {
		m.log.Info("partitions of ended jobs", zap.Int("created", kept.Made))
	}
}

// keepPartitions creates and drops partitions of ended jobs. The time until the next call differs between daemons.
// Locks of other sessions may block a part of the work. It warns if they block two calls in succession.
func (m *maintenance) keepPartitions(ctx context.Context, _ background.Now) (next time.Duration, err error) {
	kept, err := m.store.KeepPartitions(ctx, m.cfg.Keep, true)
	if err != nil {
		return 0, err
	}
	if kept.Made+kept.Dropped+kept.Blocked > 0 {
		m.log.Info("partitions of ended jobs", zap.Int("created", kept.Made), zap.Int("dropped", kept.Dropped), zap.Int("blocked", kept.Blocked))
	}
	if kept.Blocked > 0 && m.blocked {
		m.log.Warn("partitions of ended jobs remain blocked: an open transaction has a lock on ended jobs",
			zap.String("see", "SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start"))
	}
	if m.blocked = kept.Blocked > 0; !m.blocked {
		m.metrics.retained.SetToCurrentTime()
	}
	return partitionInterval + rand.N(partitionJitter), nil
}

// countInterval is the time between two calls of countRows.
const countInterval = time.Minute

// countRows reads the numbers of rows.
func (m *maintenance) countRows(ctx context.Context, _ background.Now) (next time.Duration, err error) {
	c, err := m.store.Counts(ctx)
	if err == nil {
		m.metrics.rowCounts.Store(&c)
	}
	return countInterval, err
}
