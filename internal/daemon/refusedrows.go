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
	claims, loads       prometheus.Counter
	claimsLog, loadsLog *limitedLog
}

func newRefusedRows(m *metrics, log *zap.Logger) *refusedRows {
	return &refusedRows{
		claims:    m.refusedRows.WithLabelValues(string(claim.OpClaim)),
		loads:     m.refusedRows.WithLabelValues(string(claim.OpLoad)),
		claimsLog: newLimitedLog(log, 1, "Postgres refuses to claim a job; it is set aside, and 'dispatcherd job why' says why"),
		loadsLog:  newLimitedLog(log, 1, "Postgres cannot read the payload of a job; its attempt ends with the reason"),
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

func jobField(id dispatcherd.JobID) zap.Field { return zap.Int64("job", int64(id)) }
