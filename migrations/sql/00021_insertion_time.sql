-- A job is due from its insertion, not from the begin of its transaction or statement.
-- docs/security.md gives the reasons.

-- +goose Up

-- A transaction or statement may begin long before it inserts a row, so now() and
-- statement_timestamp() are too early. The function is not VOLATILE, because COPY would then
-- insert single rows. Postgres evaluates it for each row all the same.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.insertion_time() RETURNS timestamptz LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN pg_catalog.clock_timestamp();
END $$;
-- +goose StatementEnd
ALTER TABLE ONLY dispatcherd.jobs ALTER COLUMN run_at SET DEFAULT dispatcherd.insertion_time();
ALTER TABLE dispatcherd.jobs_live ALTER COLUMN run_at SET DEFAULT dispatcherd.insertion_time();

-- +goose StatementBegin
DO $$
DECLARE
    r text;
BEGIN
    FOR r IN SELECT rolname FROM pg_roles WHERE rolname IN ('dispatcherd_producer', 'dispatcherd_operator', 'dispatcherd_dispatcher') LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION dispatcherd.insertion_time TO %I', r);
    END LOOP;
END $$;
-- +goose StatementEnd

-- As before, and a row with this default is due.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.notify_dispatchers() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    news text;
    last bigint;
BEGIN
    IF NOT (EXISTS (SELECT FROM dispatcherd.dispatchers WHERE armed) AND dispatcherd.may_notify()) THEN
        RETURN NULL;
    END IF;
    IF coalesce(current_setting('dispatcherd.rung', true), '') = '' THEN
        PERFORM set_config('dispatcherd.rung', 'yes', true);
        BEGIN
            last := currval('dispatcherd.job_ids');
            SELECT concat_ws(' ', j.id::bigint, j.priority::int, (extract(epoch FROM j.run_at::timestamptz) * 1000000)::bigint, j.type::text)
                INTO news FROM dispatcherd.jobs_live j
                WHERE j.id = last AND j.status = 'pending' AND j.run_at <= clock_timestamp() AND NOT EXISTS (
                    SELECT FROM dispatcherd.jobs_live o WHERE o.id BETWEEN last - 16 AND last - 1 AND o.xmin = j.xmin);
        EXCEPTION WHEN object_not_in_prerequisite_state THEN
            NULL; -- the ids were given, so this session has taken none from the sequence
        END;
    END IF;
    PERFORM pg_notify('dispatcherd_jobs', coalesce(news, ''));
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

ALTER TABLE dispatcherd.jobs_live ALTER COLUMN run_at SET DEFAULT now();
ALTER TABLE ONLY dispatcherd.jobs ALTER COLUMN run_at SET DEFAULT now();
DROP FUNCTION dispatcherd.insertion_time;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.notify_dispatchers() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    news text;
    last bigint;
BEGIN
    IF NOT (EXISTS (SELECT FROM dispatcherd.dispatchers WHERE armed) AND dispatcherd.may_notify()) THEN
        RETURN NULL;
    END IF;
    IF coalesce(current_setting('dispatcherd.rung', true), '') = '' THEN
        PERFORM set_config('dispatcherd.rung', 'yes', true);
        BEGIN
            last := currval('dispatcherd.job_ids');
            SELECT concat_ws(' ', j.id::bigint, j.priority::int, (extract(epoch FROM j.run_at::timestamptz) * 1000000)::bigint, j.type::text)
                INTO news FROM dispatcherd.jobs_live j
                WHERE j.id = last AND j.status = 'pending' AND j.run_at <= now() AND NOT EXISTS (
                    SELECT FROM dispatcherd.jobs_live o WHERE o.id BETWEEN last - 16 AND last - 1 AND o.xmin = j.xmin);
        EXCEPTION WHEN object_not_in_prerequisite_state THEN
            NULL; -- the ids were given, so this session has taken none from the sequence
        END;
    END IF;
    PERFORM pg_notify('dispatcherd_jobs', coalesce(news, ''));
    RETURN NULL;
END $$;
-- +goose StatementEnd
