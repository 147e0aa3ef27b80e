package daemon

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// vacuumEvery is the time between two looks whether vacuum can clean anything: a
// few rounds of autovacuum, so that one ends between them.
const vacuumEvery = 30 * time.Second

// paceVacuum keeps vacuum from reading the hot table again and again while somebody
// holds a snapshot that keeps it from cleaning anything.
func (d *Daemon) paceVacuum(ctx context.Context) {
	rests, changed, err := d.store.PaceVacuum(ctx)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			d.log.Warn("looking whether vacuum can clean the table of jobs failed", zap.Error(err))
		}
		return
	case changed && rests:
		d.log.Warn("an old snapshot keeps vacuum from cleaning the table of jobs, which grows: autovacuum rests until the snapshot is gone",
			zap.String("see", "SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start"))
	case changed:
		d.log.Info("autovacuum of the table of jobs works again")
	}
	d.metrics.vacuumPaused.Set(map[bool]float64{true: 1}[rests])
}
