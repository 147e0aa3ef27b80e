package stage

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
)

// releasedSQL records each job that stops waiting, in the transaction that makes it pending.
const releasedSQL = `
CREATE SCHEMA structures;
CREATE TABLE structures.released (job bigint NOT NULL);
CREATE FUNCTION structures.released() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	INSERT INTO structures.released VALUES (NEW.id);
	RETURN NULL;
END $$;
CREATE TRIGGER structures_released AFTER INSERT ON dispatcherd.jobs_live FOR EACH ROW
	WHEN (NEW.first_run_at IS NOT NULL AND NEW.attempt = 0) EXECUTE FUNCTION structures.released();
`

// openSQL counts what has not ended of structures: jobs, and batches.
const openSQL = `SELECT (SELECT count(*) FROM dispatcherd.jobs_live WHERE type = ANY ($1)) + (SELECT count(*) FROM dispatcherd.jobs_waiting)
	+ (SELECT count(*) FROM dispatcherd.batches WHERE ended_at IS NULL)`

// AwaitStructures waits until all jobs of structures and all batches have ended. It returns the number of those
// that have not at the deadline.
func (s *Stage) AwaitStructures(ctx context.Context, limit time.Duration) (open int, err error) {
	for begun := time.Now(); ; _ = rig.Pause(ctx, 50*time.Millisecond) {
		open, err = s.Number(context.WithoutCancel(ctx), openSQL, history.Structured)
		if err != nil || open == 0 || ctx.Err() != nil || time.Since(begun) > limit {
			return open, err
		}
	}
}

// partsSQL reads the jobs of structures.
const partsSQL = `SELECT j.id, coalesce(j.parent, 0), j.type, j.status::text, coalesce(j.cancelled_by, ''),
	least(j.started_at, (SELECT min((e ->> 'started_at')::timestamptz) FROM jsonb_array_elements(j.errors) e)), j.finished_at, coalesce(r.n, 0)
	FROM dispatcherd.jobs j LEFT JOIN (SELECT job, count(*) AS n FROM structures.released GROUP BY job) r ON r.job = j.id
	WHERE j.type = ANY ($1)`

// joinsSQL reads batches, flows, parents and nodes. A node counts cancelled dependencies as failed ones. A cancellation by a user is not
// the end of a parent.
const joinsSQL = `SELECT id, kind, callback, run_when, '{}'::bigint[], opened_at, cancelled_by IS NOT NULL
	AND cancelled_by <> 'parent', ended_at, done, failed, cancelled
	FROM dispatcherd.batches
	UNION ALL SELECT n.id, 'node', false, n.run_when, n.depends_on, NULL, f.cancelled_by IS NOT NULL, n.ready_at,
		cardinality(n.depends_on) - n.open - n.bad AS done, n.bad, 0
	FROM dispatcherd.nodes n JOIN dispatcherd.batches f ON f.id = n.flow`

// Structures reads the rows of structures, and of jobs of further types that belong to them.
func (s *Stage) Structures(ctx context.Context, further ...string) (*history.Structures, error) {
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	h := &history.Structures{}
	rows, err := conn.Query(ctx, partsSQL, slices.Concat(history.Structured, further))
	if err != nil {
		return nil, err
	}
	h.Jobs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (p history.Part, err error) {
		var started, ended *time.Time
		err = row.Scan(&p.Job, &p.Parent, &p.Type, &p.Status, &p.By, &started, &ended, &p.Released)
		p.Started, p.Ended = microseconds(started), microseconds(ended)
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the jobs of structures: %w", err)
	}
	if rows, err = conn.Query(ctx, joinsSQL); err != nil {
		return nil, err
	}
	h.Joins, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (j history.Join, err error) {
		var opened, fired *time.Time
		err = row.Scan(&j.ID, &j.Kind, &j.Callback, &j.When, &j.DependsOn, &opened, &j.Cancelled, &fired, &j.Done, &j.Failed, &j.Stopped)
		j.Opened, j.Fired = microseconds(opened), microseconds(fired)
		return j, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading batches and nodes: %w", err)
	}
	return h, nil
}

// microseconds returns an instant, or 0 for NULL.
func microseconds(at *time.Time) int64 {
	if at == nil {
		return 0
	}
	return at.UnixMicro()
}

// EndStructures waits until the structures have ended, reads them, and deletes their jobs and changes, so that
// the usual checks do not see them.
func (s *Stage) EndStructures(ctx context.Context, limit time.Duration) (*history.Structures, error) {
	if !s.structures {
		return &history.Structures{}, nil
	}
	if _, err := s.AwaitStructures(ctx, limit); err != nil {
		return nil, err
	}
	h, err := s.Structures(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range []string{
		`DELETE FROM chaos.audit a USING dispatcherd.jobs j WHERE j.id = a.job AND j.type = ANY ($1)`,
		`DELETE FROM dispatcherd.jobs WHERE type = ANY ($1)`,
	} {
		if _, err := conn.Exec(ctx, sql, history.Structured); err != nil {
			return nil, err
		}
	}
	return h, nil
}
