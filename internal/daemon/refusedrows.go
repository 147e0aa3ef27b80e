package daemon

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// refusedRows counts and logs what Postgres cannot process: rows, by id, and lanes. The reason for a row is not
// logged, because it may quote the row. `job why` and the errors of the job contain it.
type refusedRows struct {
	rows  *prometheus.CounterVec // by operation
	lanes *prometheus.CounterVec // by type and priority

	rowsLog, lanesLog *limitedLog
}

func newRefusedRows(m *metrics, log *zap.Logger) *refusedRows {
	for _, op := range []claim.Operation{claim.OpClaim, claim.OpLoad, claim.OpFinish} {
		m.refusedRows.WithLabelValues(string(op))
	}
	return &refusedRows{
		rows:     m.refusedRows,
		lanes:    m.unreadableLanes,
		rowsLog:  newLimitedLog(log, 1, "Postgres refuses a row or has locked it; other rows are processed, and 'dispatcherd job why' says why"),
		lanesLog: newLimitedLog(log, 1, "Postgres cannot read a lane; its jobs wait, and it is read again every minute"),
	}
}

// refused reports a row that was refused in an operation.
func (r *refusedRows) refused(op claim.Operation, id dispatcherd.JobID, fields ...zap.Field) {
	r.rows.WithLabelValues(string(op)).Inc()
	r.rowsLog.write(zap.WarnLevel, append(fields, zap.Int64("job", int64(id)), zap.String("operation", string(op)))...)
}

// unreadable reports a lane that cannot be read. The reason quotes no payload, because a fetch reads none.
func (r *refusedRows) unreadable(l contract.Lane, why error) {
	r.lanes.WithLabelValues(l.Type, strconv.Itoa(int(l.Priority))).Inc()
	r.lanesLog.write(zap.ErrorLevel, zap.String("type", l.Type), zap.Int("priority", int(l.Priority)), zap.Error(why))
}

// claimed reports the rows that Postgres refused to claim.
func (r *refusedRows) claimed(rows []contract.Unclaimable) {
	for _, u := range rows {
		r.refused(claim.OpClaim, u.ID)
	}
}

// loaded reports the rows whose payload Postgres could not read.
func (r *refusedRows) loaded(rows []contract.Won) {
	for i := range rows {
		if rows[i].Unfit != "" {
			r.refused(claim.OpLoad, rows[i].ID)
		}
	}
}

// ended reports the ends that were deferred. locked_by is the process id of the session
// that has locked the row, or 0.
func (r *refusedRows) ended(ends []contract.Deferred) {
	for i := range ends {
		r.refused(claim.OpFinish, ends[i].ID, zap.Int32("locked_by", ends[i].Holder))
	}
}
