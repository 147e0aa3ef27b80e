package daemon

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/daemon/backend"
)

// maintenance sweeps lost dispatchers, creates and drops daily partitions, and counts
// pending rows.
type maintenance struct {
	store       *claim.Store
	log         *zap.Logger
	keep        claim.Retention
	sweeps      <-chan struct{} // a lost dispatcher waits for a sweep
	pending     *backend.Pending
	retained    prometheus.Gauge // time of the last call that created and dropped all daily partitions
	requestKeys prometheus.Gauge
	joins       joinMetrics
}

// retention replaces zero values by the defaults.
func retention(keep claim.Retention) claim.Retention {
	keep.Done = cmp.Or(keep.Done, DefaultKeepDone)
	keep.Failed = cmp.Or(keep.Failed, DefaultKeepFailed)
	keep.Cancelled = cmp.Or(keep.Cancelled, DefaultKeepDone)
	return keep
}

// run does the maintenance until ctx is done. A sweep reads all jobs that have not ended,
// and each heartbeat requests a sweep until no dispatcher is lost. Therefore, after a sweep that
// failed or left rows, run waits for ten times the duration of that sweep before the next one.
func (m *maintenance) run(ctx context.Context) {
	partitions := time.NewTimer(0)
	defer partitions.Stop()
	rows := time.NewTicker(countInterval)
	defer rows.Stop()
	count := time.NewTimer(0)
	defer count.Stop()
	sweeps, failing := m.sweeps, false // whether the last sweep failed or left rows
	blocked := false                   // whether other sessions blocked a part of the last keepPartitions
	var wait time.Duration
	var resume <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweeps:
			begun := time.Now()
			if failing = !m.sweep(ctx, failing); failing {
				sweeps, resume = nil, time.After(10*time.Since(begun))
			}
		case <-resume:
			sweeps = m.sweeps
		case <-partitions.C:
			wait, blocked = m.keepPartitions(ctx, blocked)
			partitions.Reset(wait)
		case <-rows.C:
			m.countRows(ctx)
		case <-count.C:
			count.Reset(m.pending.Continue(ctx))
		}
	}
}

// sweep deletes lost dispatchers. It reports whether that succeeded for all of them.
func (m *maintenance) sweep(ctx context.Context, failing bool) bool {
	remaining, err := m.store.Sweep(ctx)
	if err != nil && ctx.Err() == nil && !failing {
		m.log.Warn("sweeping failed", zap.Error(err))
	}
	if err == nil && remaining > 0 && !failing {
		m.log.Error(
			"jobs of lost dispatchers are still running in the table: their rows were locked or could not be changed, no claim had "+
				"recorded them, or the database was restored; the next heartbeat tries to release them",
			zap.Int("jobs", remaining),
		)
	}
	return err == nil && remaining == 0
}

// Intervals of the maintenance of daily partitions: after a success, to which a random time is
// added, and after a failure.
const (
	partitionInterval = time.Hour
	partitionJitter   = partitionInterval / 10
	partitionRetry    = 30 * time.Second
)

// createPartitions creates the daily partitions of today before the first job ends. The
// daemon also works without them, so the time is bounded.
func (m *maintenance) createPartitions(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer cancel()
	created, err := m.store.MakePartitions(ctx)
	if err != nil {
		m.log.Warn("creating daily partitions failed", zap.Error(err))
	}
	if created > 0 {
		m.log.Info("daily partitions", zap.Int("created", created))
	}
}

// keepPartitions creates and drops daily partitions of finished jobs. It returns the time
// until the next call, which differs between daemons. Locks of other sessions may block a part of
// the work, then blocked is true. It warns if they block two calls in succession. If another daemon
// is at work, it tries again soon.
func (m *maintenance) keepPartitions(ctx context.Context, blockedBefore bool) (next time.Duration, blocked bool) {
	kept, err := m.store.KeepPartitions(ctx, retention(m.keep))
	if err != nil {
		if ctx.Err() == nil {
			m.log.Warn("creating and dropping daily partitions failed", zap.Error(err))
		}
		return partitionRetry, blockedBefore
	}
	if kept.Made+kept.Dropped+kept.Blocked > 0 {
		m.log.Info("daily partitions", zap.Int("created", kept.Made), zap.Int("dropped", kept.Dropped), zap.Int("blocked", kept.Blocked))
	}
	if kept.Busy {
		return partitionRetry, blockedBefore
	}
	if kept.Blocked > 0 && blockedBefore {
		m.log.Warn("daily partitions remain blocked: an open transaction has a lock on ended jobs",
			zap.String("see", "SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start"))
	}
	if kept.Blocked == 0 {
		m.retained.SetToCurrentTime()
	}
	return partitionInterval + rand.N(partitionJitter), kept.Blocked > 0
}

// joinMetrics are the numbers of batches and of end records.
type joinMetrics struct{ unsealed, oldest, ends prometheus.Gauge }

func newJoinMetrics(r prometheus.Registerer) joinMetrics {
	return joinMetrics{
		unsealed: gauge(r, "dispatcherd_batches_unsealed", "Batches that are not sealed, counted exactly up to 10,000."),
		oldest:   gauge(r, "dispatcherd_batches_unsealed_oldest_seconds", "Age of the oldest batch that is not sealed; 0 = there is none."),
		ends:     gauge(r, "dispatcherd_end_records", "Ends of members and dependencies that are not counted yet, counted exactly up to 10,000."),
	}
}

// countInterval is the time between two calls of countRows.
const countInterval = 30 * time.Second

// countRows reads the numbers of request keys, of batches and of end records.
func (m *maintenance) countRows(ctx context.Context) {
	keys, err1 := m.store.RequestKeys(ctx)
	joins, err2 := m.store.Joins(ctx)
	if err := errors.Join(err1, err2); err != nil {
		if ctx.Err() == nil {
			m.log.Warn("counting request keys and batches failed", zap.Error(err))
		}
		return
	}
	m.requestKeys.Set(float64(keys))
	m.joins.unsealed.Set(float64(joins.Unsealed))
	m.joins.oldest.Set(joins.Oldest.Seconds())
	m.joins.ends.Set(float64(joins.Ends))
}
