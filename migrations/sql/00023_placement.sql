-- An ended job says where it ran, when it was first due, and who cancelled it.

-- +goose Up

ALTER TABLE dispatcherd.jobs ADD COLUMN first_run_at timestamptz, ADD COLUMN cancelled_by text, ADD COLUMN placement json;
COMMENT ON COLUMN dispatcherd.jobs.first_run_at IS 'run_at of the first attempt; NULL = run_at.';
COMMENT ON COLUMN dispatcherd.jobs.cancelled_by IS 'The role, or the caller of the API, that cancelled the job.';
COMMENT ON COLUMN dispatcherd.jobs.placement IS 'Of the last attempt of an ended job: worker, slot, times, score, main reason of the wait.';

ALTER TABLE dispatcherd.cancels ADD COLUMN requested_by text;
ALTER TABLE dispatcherd.cancels ALTER COLUMN requested_by SET DEFAULT session_user;
COMMENT ON COLUMN dispatcherd.cancels.requested_by IS 'As jobs.cancelled_by.';

-- As before, and it records who cancels: by, or else the role of the session. A job whose payload or
-- errors cannot be read is cancelled without them. The CASE has the type of the column. With type
-- jsonb, the INSERT would check the constraint of migration 19 again.
DROP FUNCTION dispatcherd.cancel_pending;
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.cancel_pending(job bigint, by text DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    readable boolean;
BEGIN
    FOREACH readable IN ARRAY ARRAY[true, false] LOOP
        BEGIN
            WITH gone AS (
                DELETE FROM dispatcherd.jobs_live WHERE id = job AND status = 'pending' RETURNING *
            )
            INSERT INTO dispatcherd.jobs_cancelled (id, run_at, first_run_at, created_at, attempt, status, timeout_ms, priority,
                max_attempts, failures, crashes, type, payload, finished_at, cancelled_by, errors)
            SELECT id, run_at, first_run_at, created_at, attempt, 'cancelled', timeout_ms, priority,
                max_attempts, failures, crashes, type, CASE WHEN readable THEN payload ELSE 'null'::dispatcherd.payload END, now(), coalesce(by, session_user),
                CASE WHEN readable THEN errors ELSE jsonb_build_array(jsonb_build_object('attempt', attempt, 'at', now(), 'outcome', 'cancelled',
                    'error', 'the payload and the earlier errors cannot be read in Postgres and were dropped')) END FROM gone;
            RETURN FOUND;
        EXCEPTION WHEN data_corrupted OR internal_error THEN
            IF NOT readable THEN
                RAISE;
            END IF;
        END;
    END LOOP;
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION dispatcherd.cancel_pending FROM PUBLIC;

-- As before, and it keeps the time at which the job was first due.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.retry_jobs(ids bigint[]) RETURNS int LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    n int;
BEGIN
    PERFORM FROM dispatcherd.jobs j WHERE j.id = ANY (ids) AND j.status IN ('failed', 'cancelled') ORDER BY j.id FOR UPDATE;
    WITH gone AS (
        DELETE FROM dispatcherd.jobs j WHERE j.id = ANY (ids) AND j.status IN ('failed', 'cancelled') RETURNING *
    ), settled AS (
        DELETE FROM dispatcherd.cancels WHERE job_id = ANY (ARRAY (SELECT id FROM gone))
    )
    INSERT INTO dispatcherd.jobs (id, first_run_at, created_at, attempt, timeout_ms, priority, max_attempts, type, payload, errors)
    SELECT id, coalesce(first_run_at, run_at), created_at, attempt, timeout_ms, priority, max_attempts, type, payload, errors FROM gone;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
DECLARE
    r text;
BEGIN
    FOR r IN SELECT rolname FROM pg_roles WHERE rolname IN ('dispatcherd_operator', 'dispatcherd_dispatcher') LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION dispatcherd.cancel_pending TO %I', r);
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_reader') THEN
        GRANT SELECT (first_run_at, cancelled_by, placement) ON dispatcherd.jobs, dispatcherd.jobs_live TO dispatcherd_reader;
    END IF;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.retry_jobs(ids bigint[]) RETURNS int LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    n int;
BEGIN
    PERFORM FROM dispatcherd.jobs j WHERE j.id = ANY (ids) AND j.status IN ('failed', 'cancelled') ORDER BY j.id FOR UPDATE;
    WITH gone AS (
        DELETE FROM dispatcherd.jobs j WHERE j.id = ANY (ids) AND j.status IN ('failed', 'cancelled') RETURNING *
    ), settled AS (
        DELETE FROM dispatcherd.cancels WHERE job_id = ANY (ARRAY (SELECT id FROM gone))
    )
    INSERT INTO dispatcherd.jobs (id, created_at, attempt, timeout_ms, priority, max_attempts, type, payload, errors)
    SELECT id, created_at, attempt, timeout_ms, priority, max_attempts, type, payload, errors FROM gone;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;
-- +goose StatementEnd
DROP FUNCTION dispatcherd.cancel_pending;
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.cancel_pending(job bigint) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    WITH gone AS (
        DELETE FROM dispatcherd.jobs_live WHERE id = job AND status = 'pending' RETURNING *
    )
    INSERT INTO dispatcherd.jobs_cancelled (id, run_at, created_at, attempt, status, timeout_ms, priority,
        max_attempts, failures, crashes, type, payload, finished_at, errors)
    SELECT id, run_at, created_at, attempt, 'cancelled', timeout_ms, priority,
        max_attempts, failures, crashes, type, payload, now(), errors FROM gone;
    RETURN FOUND;
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION dispatcherd.cancel_pending FROM PUBLIC;
-- +goose StatementBegin
DO $$
DECLARE
    r text;
BEGIN
    FOR r IN SELECT rolname FROM pg_roles WHERE rolname IN ('dispatcherd_operator', 'dispatcherd_dispatcher') LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION dispatcherd.cancel_pending TO %I', r);
    END LOOP;
END $$;
-- +goose StatementEnd

ALTER TABLE dispatcherd.cancels DROP COLUMN requested_by;
ALTER TABLE dispatcherd.jobs DROP COLUMN placement, DROP COLUMN cancelled_by, DROP COLUMN first_run_at;
