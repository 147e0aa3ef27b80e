package daemon

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/claim"
)

// maintenance sweeps lost dispatchers, creates and drops daily partitions, and paces
// autovacuum.
type maintenance struct {
	store        *claim.Store
	log          *zap.Logger
	keep         claim.Retention
	sweeps       <-chan struct{} // a lost dispatcher waits for a sweep
	vacuumPaused prometheus.Gauge
}

// retention is how long final rows are kept; what is not given takes its
// default.
func (m *maintenance) retention() claim.Retention {
	keep := m.keep
	keep.Done = cmp.Or(keep.Done, DefaultKeepDone)
	keep.Failed = cmp.Or(keep.Failed, DefaultKeepFailed)
	keep.Cancelled = cmp.Or(keep.Cancelled, DefaultKeepDone)
	return keep
}

// run looks after dispatchers that are lost and finished jobs that were kept long
// enough, until ctx is done. A sweep reads all jobs that have not
// ended, and every beat asks for one until one succeeds; so after one that failed
// there is none for ten times as long as it took.
func (m *maintenance) run(ctx context.Context) {
	leaves := time.NewTimer(0)
	defer leaves.Stop()
	vacuum := time.NewTicker(vacuumEvery)
	defer vacuum.Stop()
	sweeps, failing := m.sweeps, false // the last one
	var rest <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweeps:
			begun := time.Now()
			if failing = !m.sweep(ctx, failing); failing {
				sweeps, rest = nil, time.After(10*time.Since(begun))
			}
		case <-rest:
			sweeps = m.sweeps
		case <-leaves.C:
			leaves.Reset(m.keepLeaves(ctx))
		case <-vacuum.C:
			m.paceVacuum(ctx)
		}
	}
}

// sweep forgets lost dispatchers, and tells whether that succeeded.
func (m *maintenance) sweep(ctx context.Context, failing bool) bool {
	strays, err := m.store.Sweep(ctx)
	if err != nil && ctx.Err() == nil && !failing {
		m.log.Warn("sweeping failed", zap.Error(err))
	}
	if err == nil && strays > 0 {
		m.log.Error("jobs of lost dispatchers were found that no claim had noted", zap.Int("jobs", strays))
	}
	return err == nil
}

// Between two looks at the leaves of finished jobs, and after one that failed.
const (
	leavesEvery = time.Hour
	leavesAgain = 30 * time.Second
)

// makeLeaves makes the leaves of today before the first job ends. Without them the
// daemon works all the same, so it does not wait for long.
func (m *maintenance) makeLeaves(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer cancel()
	made, err := m.store.MakePartitions(ctx)
	if err != nil {
		m.log.Warn("making the leaves of finished jobs failed", zap.Error(err))
	}
	if made > 0 {
		m.log.Info("leaves of finished jobs", zap.Int("made", made))
	}
}

// keepLeaves makes and drops the leaves of finished jobs, and returns when to do
// so again.
func (m *maintenance) keepLeaves(ctx context.Context) time.Duration {
	made, dropped, blocked, err := m.store.KeepPartitions(ctx, m.retention())
	if err != nil {
		if ctx.Err() == nil {
			m.log.Warn("making and dropping the leaves of finished jobs failed", zap.Error(err))
		}
		return leavesAgain
	}
	if made+dropped+blocked > 0 {
		m.log.Info("leaves of finished jobs", zap.Int("made", made), zap.Int("dropped", dropped), zap.Int("blocked", blocked))
	}
	return leavesEvery
}

// vacuumEvery is the time between two checks whether vacuum can remove anything: a
// few rounds of autovacuum, so that one ends between them.
const vacuumEvery = 30 * time.Second

// paceVacuum keeps vacuum from reading the hot table again and again while an old
// snapshot keeps it from removing anything.
func (m *maintenance) paceVacuum(ctx context.Context) {
	rests, changed, err := m.store.PaceVacuum(ctx)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			m.log.Warn("checking whether vacuum can clean the table of jobs failed", zap.Error(err))
		}
		return
	case changed && rests:
		m.log.Warn("an old snapshot keeps vacuum from cleaning the table of jobs, which grows: autovacuum is paused until the snapshot is gone",
			zap.String("see", "SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start"))
	case changed:
		m.log.Info("autovacuum of the table of jobs is enabled again")
	}
	m.vacuumPaused.Set(map[bool]float64{true: 1}[rests])
}
