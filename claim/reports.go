package claim

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd"
)

// DistantReport is what the dispatcher that runs a durable request tells those at which its callers wait: the start of an attempt, a report
// of its worker, or its end.
type DistantReport struct {
	ID      int64               `json:"-"` // grows from report to report of a job
	Job     dispatcherd.JobID   `json:"job"`
	Attempt dispatcherd.Attempt `json:"attempt"`
	Name    string              `json:"name"`
	Data    json.RawMessage     `json:"data"`
}

// tellSQL adds the reports $1 and notifies all dispatchers. It deletes reports that are a minute old, because no dispatcher reads them any
// more: the oldest ones have the smallest ids.
const tellSQL = `
WITH old AS (
	DELETE FROM dispatcherd.reports WHERE made_at < now() - interval '1 minute'
		AND id = ANY (ARRAY (SELECT id FROM dispatcherd.reports ORDER BY id LIMIT 1000))
), added AS (
	INSERT INTO dispatcherd.reports (job, attempt, name, data)
	SELECT job, attempt, name, coalesce(data, 'null')
	FROM json_to_recordset($1::text::json) AS r (job bigint, attempt int, name text, data json)
)
SELECT pg_notify('dispatcherd', 'reports') WHERE dispatcherd.may_notify()`

// Tell adds reports and tells all dispatchers of them.
func (j Jobs) Tell(ctx context.Context, reports []DistantReport) error {
	text, err := json.Marshal(reports)
	if err != nil {
		return err
	}
	_, err = j.DB.Exec(ctx, tellSQL, string(text))
	return err
}

// MaxReports bounds the reports of one read.
const MaxReports = 100

// Reports returns the first reports of jobs, each after the one with the id in after, in the order of their ids.
func (j Jobs) Reports(ctx context.Context, ids []dispatcherd.JobID, after []int64) ([]DistantReport, error) {
	return Rows(ctx, j.DB, pgx.RowToStructByPos[DistantReport], `SELECT r.id, r.job, r.attempt, r.name, r.data::text
		FROM unnest($1::bigint[], $2::bigint[]) AS i (job, after) JOIN dispatcherd.reports r ON r.job = i.job AND r.id > i.after
		ORDER BY r.id LIMIT $3`, bigints(ids), after, MaxReports)
}
