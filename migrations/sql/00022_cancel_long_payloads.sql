-- A row that migration 19 did not check can be cancelled.

-- +goose Up

-- As before, but the CASE has the type of the column. With type jsonb, the INSERT would check the
-- constraint of migration 19 again.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.cancel_pending(job bigint) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    readable boolean;
BEGIN
    FOREACH readable IN ARRAY ARRAY[true, false] LOOP
        BEGIN
            WITH gone AS (
                DELETE FROM dispatcherd.jobs_live WHERE id = job AND status = 'pending' RETURNING *
            )
            INSERT INTO dispatcherd.jobs_cancelled (id, run_at, created_at, attempt, status, timeout_ms, priority,
                max_attempts, failures, crashes, type, payload, finished_at, errors)
            SELECT id, run_at, created_at, attempt, 'cancelled', timeout_ms, priority,
                max_attempts, failures, crashes, type, CASE WHEN readable THEN payload ELSE 'null'::dispatcherd.payload END, now(),
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

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.cancel_pending(job bigint) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    readable boolean;
BEGIN
    FOREACH readable IN ARRAY ARRAY[true, false] LOOP
        BEGIN
            WITH gone AS (
                DELETE FROM dispatcherd.jobs_live WHERE id = job AND status = 'pending' RETURNING *
            )
            INSERT INTO dispatcherd.jobs_cancelled (id, run_at, created_at, attempt, status, timeout_ms, priority,
                max_attempts, failures, crashes, type, payload, finished_at, errors)
            SELECT id, run_at, created_at, attempt, 'cancelled', timeout_ms, priority,
                max_attempts, failures, crashes, type, CASE WHEN readable THEN payload ELSE 'null' END, now(),
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
