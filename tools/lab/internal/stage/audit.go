package stage

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/history"
)

// judged selects the rows that are recorded.
const judged = `WHEN (NEW.type <> '` + history.Hostile + `')`

// auditSQL creates triggers that record every transition in the transaction that
// makes it. The kinds are those of history.ChangeKind. Only the databases of the
// lab have these triggers.
const auditSQL = `
CREATE SCHEMA chaos;
CREATE TABLE chaos.audit (
	seq bigserial, at timestamptz NOT NULL DEFAULT clock_timestamp(), due timestamptz,
	job bigint NOT NULL, kind smallint NOT NULL, attempt int NOT NULL, dispatcher int NOT NULL, type text, fence bigint
) WITH (autovacuum_enabled = off);
CREATE TABLE chaos.damaged (job bigint PRIMARY KEY, n bigint NOT NULL); -- jobs whose payloads a trial has made unreadable
CREATE FUNCTION chaos.live() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	k smallint;
BEGIN
	IF TG_OP = 'INSERT' THEN
		INSERT INTO chaos.audit (due, job, kind, attempt, dispatcher, type)
			VALUES (NEW.run_at, NEW.id, CASE WHEN NEW.status = 'pending' THEN 1 ELSE 5 END, NEW.attempt, 0, NEW.type);
		RETURN NULL;
	END IF;
	IF (OLD.status, OLD.attempt, OLD.dispatcher) IS NOT DISTINCT FROM (NEW.status, NEW.attempt, NEW.dispatcher) THEN
		IF (OLD.type, OLD.run_at) IS DISTINCT FROM (NEW.type, NEW.run_at) THEN
			INSERT INTO chaos.audit (due, job, kind, attempt, dispatcher, type)
				VALUES (NEW.run_at, NEW.id, 8, NEW.attempt, coalesce(NEW.dispatcher, 0), NEW.type);
		END IF;
		RETURN NULL;
	END IF;
	k := CASE
		WHEN OLD.status = 'running' AND NEW.status = 'running' AND NEW.attempt = OLD.attempt THEN 6
		WHEN NEW.status = 'running' THEN 2
		WHEN OLD.status = 'running' AND NEW.status = 'pending' THEN 3
		ELSE 5 END;
	INSERT INTO chaos.audit (due, job, kind, attempt, dispatcher, fence)
		VALUES (NEW.run_at, NEW.id, k, NEW.attempt, coalesce(NEW.dispatcher, OLD.dispatcher, 0), NEW.fence);
	RETURN NULL;
END $$;
CREATE FUNCTION chaos.final() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	INSERT INTO chaos.audit (job, kind, attempt, dispatcher) VALUES (NEW.id, 4, NEW.attempt, coalesce(NEW.dispatcher, 0));
	RETURN NULL;
END $$;
CREATE FUNCTION chaos.lost() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	INSERT INTO chaos.audit (job, kind, attempt, dispatcher) VALUES (0, 7, 0, NEW.id);
	RETURN NULL;
END $$;
CREATE TRIGGER chaos_lost AFTER UPDATE ON dispatcherd.dispatchers FOR EACH ROW
	WHEN (OLD.lost_at IS NULL AND NEW.lost_at IS NOT NULL) EXECUTE FUNCTION chaos.lost();
CREATE TRIGGER chaos_live AFTER INSERT OR UPDATE ON dispatcherd.jobs_live FOR EACH ROW ` + judged + ` EXECUTE FUNCTION chaos.live();
CREATE TRIGGER chaos_done AFTER INSERT ON dispatcherd.jobs_done FOR EACH ROW ` + judged + ` EXECUTE FUNCTION chaos.final();
CREATE TRIGGER chaos_failed AFTER INSERT ON dispatcherd.jobs_failed FOR EACH ROW ` + judged + ` EXECUTE FUNCTION chaos.final();
CREATE TRIGGER chaos_cancelled AFTER INSERT ON dispatcherd.jobs_cancelled FOR EACH ROW ` + judged + ` EXECUTE FUNCTION chaos.final();
`

// readPostgres reads the recorded changes and the rows.
func (s *Stage) readPostgres(ctx context.Context, h *history.History) error {
	conn, err := pgx.Connect(ctx, s.Postgres.URL(s.database))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var wall time.Time
	before := history.Now()
	if err := conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&wall); err != nil {
		return err
	}
	shift := wall.UnixNano() - (before+history.Now())/2
	rows, err := conn.Query(
		ctx,
		`SELECT at, coalesce(due, at), job, kind, attempt, dispatcher, coalesce(type, ''), coalesce(fence, 0) FROM chaos.audit ORDER BY seq`,
	)
	if err != nil {
		return err
	}
	h.Changes, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (history.Change, error) {
		var (
			c       history.Change
			at, due time.Time
		)
		err := row.Scan(&at, &due, &c.Job, &c.Kind, &c.Attempt, &c.Dispatcher, &c.Type, &c.Fence)
		c.At, c.Due = at.UnixNano()-shift, due.UnixNano()-shift
		return c, err
	})
	if err != nil {
		return fmt.Errorf("reading the changes: %w", err)
	}
	rows, err = conn.Query(ctx,
		`SELECT id, CASE WHEN d.job IS NULL THEN coalesce((payload->>'n')::bigint, 0) ELSE d.n END, type, priority, coalesce(keys, ''),
			status::text,
		attempt, failures, crashes, result, errors, d.job IS NOT NULL
		FROM dispatcherd.jobs LEFT JOIN chaos.damaged d ON d.job = id`,
	)
	if err != nil {
		return err
	}
	h.Rows, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (history.Row, error) {
		var r history.Row
		return r, row.Scan(&r.Job, &r.N, &r.Type, &r.Priority, &r.Keys, &r.Status, &r.Attempt, &r.Failures, &r.Crashes,
			&r.Result, &r.Errors, &r.Damaged)
	})
	if err != nil {
		return fmt.Errorf("reading the jobs: %w", err)
	}
	return nil
}
