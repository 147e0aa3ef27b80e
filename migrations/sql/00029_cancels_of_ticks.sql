-- A tick with overlap = cancel_other waits for no other transaction that cancels the same run: it leaves
-- the run out, and start_queued tries again. Retention keeps the ticks of workers that are connected.

-- +goose Up

ALTER TABLE dispatcherd.ticks ADD COLUMN renewed_at timestamptz;
COMMENT ON COLUMN dispatcherd.ticks.renewed_at IS 'Of a startup-worker schedule: when the worker was last seen connected. Retention counts from then.';
COMMENT ON COLUMN dispatcherd.ticks.reason IS 'Why a tick is skipped. A queued tick that has a reason cancels the open runs.';

-- Asks the dispatchers to cancel runs of schedules. A run that another transaction cancels at
-- the same time is left out. It takes a few milliseconds to find such runs, so their number is bounded.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.cancel_runs(jobs bigint[]) RETURNS void LANGUAGE plpgsql STRICT
SET search_path = pg_catalog, pg_temp SET lock_timeout = '1ms' AS $$
DECLARE
    run    bigint;
    locked int := 0;
BEGIN
    BEGIN
        INSERT INTO dispatcherd.cancels (job_id, requested_by) SELECT unnest(jobs), 'schedule' ON CONFLICT DO NOTHING;
    EXCEPTION WHEN lock_not_available THEN
        FOREACH run IN ARRAY jobs LOOP
            BEGIN
                INSERT INTO dispatcherd.cancels (job_id, requested_by) VALUES (run, 'schedule') ON CONFLICT DO NOTHING;
            EXCEPTION WHEN lock_not_available THEN
                locked := locked + 1;
                EXIT WHEN locked = 20;
            END;
        END LOOP;
    END;
    IF dispatcherd.may_notify() THEN
        PERFORM pg_notify('dispatcherd_cancel', c.job_id::text) FROM dispatcherd.cancels c WHERE c.job_id = ANY (jobs);
    END IF;
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION dispatcherd.cancel_runs FROM PUBLIC;

-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_dispatcher') THEN
        GRANT EXECUTE ON FUNCTION dispatcherd.cancel_runs TO dispatcherd_dispatcher;
    END IF;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
DECLARE
    ticks text := pg_get_functiondef('dispatcherd.make_ticks'::regproc);
    queue text := pg_get_functiondef('dispatcherd.start_queued'::regproc);
    edit text[];
BEGIN
    FOREACH edit SLICE 1 IN ARRAY ARRAY[
        ['    ), cancelled AS (
        INSERT INTO dispatcherd.cancels (job_id, requested_by) SELECT r.job_id, ''schedule''
        FROM replaced p JOIN dispatcherd.schedule_runs r ON r.schedule_id = p.id ON CONFLICT DO NOTHING RETURNING job_id
    ), notified AS (
        SELECT CASE WHEN dispatcherd.may_notify() THEN pg_notify(''dispatcherd_cancel'', c.job_id::text) END FROM cancelled c
    ), waits', '    ), notified AS (
        SELECT dispatcherd.cancel_runs(array_agg(r.job_id ORDER BY random())) FROM replaced p JOIN dispatcherd.schedule_runs r ON r.schedule_id = p.id
    ), waits'],
        ['
            WHEN d.outcome = ''skipped'' THEN format', '
            WHEN d.outcome = ''queued'' AND d.overlap = ''cancel_other'' THEN ''it waits for the end of the run that it cancels (cancel_other)''
            WHEN d.outcome = ''skipped'' THEN format']
    ] LOOP
        ASSERT strpos(ticks, edit[1]) > 0, edit[1];
        ticks := replace(ticks, edit[1], edit[2]);
    END LOOP;
    EXECUTE ticks;
    FOREACH edit SLICE 1 IN ARRAY ARRAY[
        ['job_id = nextval(''dispatcherd.job_ids'')', 'reason = NULL, job_id = nextval(''dispatcherd.job_ids'')'],
        ['    )
    SELECT a.id,', '    ), cancelled AS (
        SELECT dispatcherd.cancel_runs(array_agg(r.job_id ORDER BY random())) FROM dispatcherd.schedule_runs r
        WHERE r.schedule_id = ANY (locked) AND NOT EXISTS (SELECT FROM dispatcherd.cancels c WHERE c.job_id = r.job_id) AND
            (SELECT q.reason FROM dispatcherd.ticks q WHERE q.schedule_id = r.schedule_id AND q.outcome = ''queued'' ORDER BY q.run_at, q.occasion LIMIT 1) IS NOT NULL
    )
    SELECT a.id,'],
        [') a GROUP BY a.id', ') a WHERE (SELECT count(*) FROM cancelled) >= 0 GROUP BY a.id']
    ] LOOP
        ASSERT strpos(queue, edit[1]) > 0, edit[1];
        queue := replace(queue, edit[1], edit[2]);
    END LOOP;
    EXECUTE queue;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose StatementBegin
DO $$
DECLARE
    ticks text := pg_get_functiondef('dispatcherd.make_ticks'::regproc);
    queue text := pg_get_functiondef('dispatcherd.start_queued'::regproc);
    edit text[];
BEGIN
    FOREACH edit SLICE 1 IN ARRAY ARRAY[
        ['    ), cancelled AS (
        INSERT INTO dispatcherd.cancels (job_id, requested_by) SELECT r.job_id, ''schedule''
        FROM replaced p JOIN dispatcherd.schedule_runs r ON r.schedule_id = p.id ON CONFLICT DO NOTHING RETURNING job_id
    ), notified AS (
        SELECT CASE WHEN dispatcherd.may_notify() THEN pg_notify(''dispatcherd_cancel'', c.job_id::text) END FROM cancelled c
    ), waits', '    ), notified AS (
        SELECT dispatcherd.cancel_runs(array_agg(r.job_id ORDER BY random())) FROM replaced p JOIN dispatcherd.schedule_runs r ON r.schedule_id = p.id
    ), waits'],
        ['
            WHEN d.outcome = ''skipped'' THEN format', '
            WHEN d.outcome = ''queued'' AND d.overlap = ''cancel_other'' THEN ''it waits for the end of the run that it cancels (cancel_other)''
            WHEN d.outcome = ''skipped'' THEN format']
    ] LOOP
        ASSERT strpos(ticks, edit[2]) > 0, edit[2];
        ticks := replace(ticks, edit[2], edit[1]);
    END LOOP;
    EXECUTE ticks;
    FOREACH edit SLICE 1 IN ARRAY ARRAY[
        ['job_id = nextval(''dispatcherd.job_ids'')', 'reason = NULL, job_id = nextval(''dispatcherd.job_ids'')'],
        ['    )
    SELECT a.id,', '    ), cancelled AS (
        SELECT dispatcherd.cancel_runs(array_agg(r.job_id ORDER BY random())) FROM dispatcherd.schedule_runs r
        WHERE r.schedule_id = ANY (locked) AND NOT EXISTS (SELECT FROM dispatcherd.cancels c WHERE c.job_id = r.job_id) AND
            (SELECT q.reason FROM dispatcherd.ticks q WHERE q.schedule_id = r.schedule_id AND q.outcome = ''queued'' ORDER BY q.run_at, q.occasion LIMIT 1) IS NOT NULL
    )
    SELECT a.id,'],
        [') a GROUP BY a.id', ') a WHERE (SELECT count(*) FROM cancelled) >= 0 GROUP BY a.id']
    ] LOOP
        ASSERT strpos(queue, edit[2]) > 0, edit[2];
        queue := replace(queue, edit[2], edit[1]);
    END LOOP;
    EXECUTE queue;
END $$;
-- +goose StatementEnd

DROP FUNCTION dispatcherd.cancel_runs;
ALTER TABLE dispatcherd.ticks DROP COLUMN renewed_at;
COMMENT ON COLUMN dispatcherd.ticks.reason IS NULL;
