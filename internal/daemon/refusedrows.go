package daemon

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// refusedRows counts and logs rows that Postgres cannot process, by id. The reason is not
// logged, because it may quote the row. `job why` and the errors of the job contain it.
type refusedRows struct {
	others                                  *prometheus.CounterVec // by operation
	claims, loads, ends                     prometheus.Counter
	claimsLog, loadsLog, endsLog, othersLog *limitedLog
}

func newRefusedRows(m *metrics, log *zap.Logger) *refusedRows {
	return &refusedRows{
		others:    m.refusedRows,
		claims:    m.refusedRows.WithLabelValues(string(claim.OpClaim)),
		loads:     m.refusedRows.WithLabelValues(string(claim.OpLoad)),
		ends:      m.refusedRows.WithLabelValues(string(claim.OpFinish)),
		claimsLog: newLimitedLog(log, 1, "Postgres refuses to claim a job; it is set aside, and 'dispatcherd job why' says why"),
		loadsLog:  newLimitedLog(log, 1, "Postgres cannot read the payload of a job; its attempt ends with the reason"),
		endsLog: newLimitedLog(
			log,
			1,
			"Postgres did not record the end of a job, whose row is locked or cannot be written; 'dispatcherd job why' says why",
		),
		othersLog: newLimitedLog(
			log,
			1,
			"Postgres refuses to read, release, cancel or change a job, or its row is locked; it is set aside, and 'dispatcherd job why' says why",
		),
	}
}

// claimed reports the rows that Postgres refused to claim.
func (r *refusedRows) claimed(rows []contract.Unclaimable) {
	for _, u := range rows {
		r.claims.Inc()
		r.claimsLog.write(zap.WarnLevel, jobField(u.ID))
	}
}

// loaded reports the rows whose payload Postgres could not read.
func (r *refusedRows) loaded(rows []contract.Won) {
	for i := range rows {
		if rows[i].Unfit != "" {
			r.loads.Inc()
			r.loadsLog.write(zap.WarnLevel, jobField(rows[i].ID))
		}
	}
}

// ended reports the ends that were deferred. locked_by is the process id of the session
// that has locked the row, or 0.
func (r *refusedRows) ended(ends []contract.Deferred) {
	for i := range ends {
		r.ends.Inc()
		r.endsLog.write(zap.WarnLevel, jobField(ends[i].ID), zap.Int32("locked_by", ends[i].Holder))
	}
}

// changed reports a row that another statement sets aside.
func (r *refusedRows) changed(op claim.Operation, id dispatcherd.JobID) {
	r.others.WithLabelValues(string(op)).Inc()
	r.othersLog.write(zap.WarnLevel, jobField(id), zap.String("operation", string(op)))
}

func jobField(id dispatcherd.JobID) zap.Field { return zap.Int64("job", int64(id)) }
