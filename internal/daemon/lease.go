package daemon

import (
	"cmp"
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
)

// lease knows until when this dispatcher can prove that it is alive for the
// others. It uses local monotonic time only, counts from before the beat was
// sent, and ends a fifth early: it may only make us stop too soon.
type lease struct {
	length time.Duration

	mu     sync.Mutex
	beaten time.Time // when the last beat that succeeded was begun
	fenced bool      // the loop was told Disowned and not yet Owned
}

// renewed notes a beat that succeeded. It reports whether the loop must be
// told that the lease is back.
func (l *lease) renewed(begun time.Time) (back bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beaten = begun
	back, l.fenced = l.fenced, false
	return back
}

// trusted reports whether the lease can be proved now.
func (l *lease) trusted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.beaten) < l.length*4/5
}

// fence reports, once for each loss, that the lease cannot be proved any more.
func (l *lease) fence(lost bool) (now bool) {
	if !lost && l.trusted() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, l.fenced = !l.fenced, true
	return now
}

// guard stops the dispatcher before its lease is over, also while a beat hangs.
func (d *Daemon) guard(ctx context.Context) {
	look := time.NewTicker(min(d.cfg.Lease/20, 250*time.Millisecond))
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			if d.lease.fence(false) {
				d.log.Error("no beat for too long: others may take the jobs over, so workers are told to stop and nothing is claimed")
				d.loop.Order(actor.Disowned{})
			}
		}
	}
}

// retention is how long final rows are kept; what is not given takes its
// default.
func (d *Daemon) retention() claim.Retention {
	keep := d.cfg.Keep
	keep.Done = cmp.Or(keep.Done, DefaultKeepDone)
	keep.Failed = cmp.Or(keep.Failed, DefaultKeepFailed)
	keep.Cancelled = cmp.Or(keep.Cancelled, DefaultKeepDone)
	return keep
}

// upkeep looks after what is left behind: dispatchers that are gone, and
// finished jobs that were kept long enough. A sweep reads all jobs that have not
// ended, and every beat asks for one until one succeeds; so after one that failed
// there is none for ten times as long as it took.
func (d *Daemon) upkeep(ctx context.Context) {
	leaves := time.NewTimer(0)
	defer leaves.Stop()
	vacuum := time.NewTicker(vacuumEvery)
	defer vacuum.Stop()
	sweeps, failing := d.sweeps, false // the last one
	var rest <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweeps:
			begun := time.Now()
			if failing = !d.sweep(ctx, failing); failing {
				sweeps, rest = nil, time.After(10*time.Since(begun))
			}
		case <-rest:
			sweeps = d.sweeps
		case <-leaves.C:
			leaves.Reset(d.keepLeaves(ctx))
		case <-vacuum.C:
			d.paceVacuum(ctx)
		}
	}
}

// sweep forgets lost dispatchers, and tells whether that succeeded.
func (d *Daemon) sweep(ctx context.Context, failing bool) bool {
	strays, err := d.store.Sweep(ctx)
	if err != nil && ctx.Err() == nil && !failing {
		d.log.Warn("sweeping failed", zap.Error(err))
	}
	if err == nil && strays > 0 {
		d.log.Error("jobs of lost dispatchers were found that no claim had noted", zap.Int("jobs", strays))
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
func (d *Daemon) makeLeaves(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer cancel()
	made, err := d.store.MakePartitions(ctx)
	if err != nil {
		d.log.Warn("making the leaves of finished jobs failed", zap.Error(err))
	}
	if made > 0 {
		d.log.Info("leaves of finished jobs", zap.Int("made", made))
	}
}

// keepLeaves makes and drops the leaves of finished jobs, and returns when to do
// so again.
func (d *Daemon) keepLeaves(ctx context.Context) time.Duration {
	made, dropped, blocked, err := d.store.KeepPartitions(ctx, d.retention())
	if err != nil {
		if ctx.Err() == nil {
			d.log.Warn("making and dropping the leaves of finished jobs failed", zap.Error(err))
		}
		return leavesAgain
	}
	if made+dropped+blocked > 0 {
		d.log.Info("leaves of finished jobs", zap.Int("made", made), zap.Int("dropped", dropped), zap.Int("blocked", blocked))
	}
	return leavesEvery
}
