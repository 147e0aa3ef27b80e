-- Operators cannot lock the rows of running jobs. docs/security.md gives the reasons.

-- +goose Up

-- As before. It locks the rows in the order of their ids, and it removes requests to
-- cancel, because a request that arrived while the job ended would cancel the job again.
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

-- SELECT … FOR UPDATE needs the right to update a column.
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_operator') THEN
        REVOKE UPDATE (progress) ON dispatcherd.jobs, dispatcherd.jobs_live FROM dispatcherd_operator;
    END IF;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_operator') THEN
        GRANT UPDATE (progress) ON dispatcherd.jobs, dispatcherd.jobs_live TO dispatcherd_operator;
    END IF;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.retry_jobs(ids bigint[]) RETURNS int LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    n int;
BEGIN
    WITH gone AS (
        DELETE FROM dispatcherd.jobs j WHERE j.id = ANY (ids) AND j.status IN ('failed', 'cancelled') RETURNING *
    )
    INSERT INTO dispatcherd.jobs (id, created_at, attempt, timeout_ms, priority, max_attempts, type, payload, errors)
    SELECT id, created_at, attempt, timeout_ms, priority, max_attempts, type, payload, errors FROM gone;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;
-- +goose StatementEnd
