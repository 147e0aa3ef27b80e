package daemon

import (
	"strconv"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// newStoreObserver returns an observer of the store.
func newStoreObserver(d *Daemon) *storeObserver {
	for _, op := range []claim.Operation{claim.OpClaim, claim.OpLoad, claim.OpFinish} { // rate() needs a 0 before the first one
		d.metrics.refusedRows.WithLabelValues(string(op))
	}
	return &storeObserver{
		Daemon:  d,
		results: statementLog{log: d.log, dsn: d.cfg.DSN, latest: "Postgres does not answer"},
		rows: newLimitedLog(d.log, 1,
			"Postgres refuses a row or has locked it; other rows are processed, and 'dispatcherd job why' says why"),
		lanes: newLimitedLog(d.log, 1, "Postgres cannot read a lane; its jobs wait, and it is read again every minute"),
	}
}

// refused counts and logs a row that Postgres cannot process. The reason is not logged, because it may quote the row. `job why` and the
// errors of the job contain it.
func (o *storeObserver) refused(op claim.Operation, id dispatcherd.JobID, fields ...zap.Field) {
	o.metrics.refusedRows.WithLabelValues(string(op)).Inc()
	o.rows.write(zap.WarnLevel, append(fields, zap.Int64("job", int64(id)), zap.String("operation", string(op)))...)
}

// Refused implements claim.Observer.
func (o *storeObserver) Refused(op claim.Operation, id dispatcherd.JobID) { o.refused(op, id) }

// Unreadable implements claim.Observer. The reason quotes no payload, because a fetch reads none.
func (o *storeObserver) Unreadable(l contract.Lane, why error) {
	o.metrics.unreadableLanes.WithLabelValues(l.Type, strconv.Itoa(int(l.Priority))).Inc()
	o.lanes.write(zap.ErrorLevel, zap.String("type", l.Type), zap.Int("priority", int(l.Priority)), zap.Error(why))
}
