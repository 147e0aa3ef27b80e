-- A full notification queue never makes a statement fail. docs/storage.md gives the
-- reasons.

-- +goose Up

-- Whether a transaction may notify. All databases of a server share one queue. If it is
-- full, the commit of every transaction that has notified fails.
CREATE FUNCTION dispatcherd.may_notify() RETURNS boolean LANGUAGE sql VOLATILE PARALLEL RESTRICTED
    AS 'SELECT pg_catalog.pg_notification_queue_usage() OPERATOR(pg_catalog.<) 0.5';
REVOKE ALL ON FUNCTION dispatcherd.may_notify FROM PUBLIC;
-- +goose StatementBegin
DO $$
DECLARE
    r text;
BEGIN
    FOR r IN SELECT rolname FROM pg_roles WHERE rolname IN ('dispatcherd_operator', 'dispatcherd_dispatcher') LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION dispatcherd.may_notify TO %I', r);
    END LOOP;
END $$;
-- +goose StatementEnd

-- As in migration 5, and only while may_notify returns true.
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

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.notify_dispatchers() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    news text;
    last bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM dispatcherd.dispatchers WHERE armed) THEN
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
            NULL; -- ids were given by hand, and this session never took one
        END;
    END IF;
    PERFORM pg_notify('dispatcherd_jobs', coalesce(news, ''));
    RETURN NULL;
END $$;
-- +goose StatementEnd
DROP FUNCTION dispatcherd.may_notify;
