package claim

import (
	"context"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Progress is the progress that a worker reports for a running attempt.
type Progress struct {
	ID      dispatcherd.JobID
	Attempt dispatcherd.Attempt
	JSON    string
}

// progressSQL writes the Progress $1 of jobs of dispatcher $2. It
// locks rows in the order of id + 0. File statements.go explains this order.
const progressSQL = `
WITH item AS MATERIALIZED (
	SELECT j.ctid AS at, i.value
	FROM ROWS FROM (json_to_recordset($1) AS ("ID" bigint, "Attempt" int, "JSON" text)) AS i (id, attempt, value)
	JOIN dispatcherd.jobs_live j ON ` + isItem + `
	WHERE j.dispatcher = $2::int AND j.status = 'running'
	ORDER BY j.id + 0 FOR UPDATE OF j SKIP LOCKED
)
UPDATE dispatcherd.jobs_live j SET progress = i.value::json FROM item i
WHERE j.ctid = i.at AND j.status = 'running'`

// Progress records the latest progress of running attempts, fenced like a finish. It
// does not report stale attempts. Every call writes a version of each row. So the
// caller keeps only the newest report of each job and calls Progress about once per
// second at most.
func (s *Store) Progress(ctx context.Context, items []Progress) error {
	return s.lease.do(ctx, OpProgress, func(c Session) (n int, err error) {
		err = apart(s,
			OpProgress,
			items,
			time.Now().Add(releaseTime),
			func(p Progress) dispatcherd.JobID { return p.ID },
			func(part []Progress) error {
				tag, err := c.Exec(c, progressSQL, part, s.me.Load())
				n += int(tag.RowsAffected())
				return err
			},
		)
		return n, err
	})
}
