-- An insert notifies the controller of jobs with keys, which it would otherwise learn from its next heartbeat while it
-- knows of none. As before, only the last row of the first statement of a transaction is read. The length of per is bounded in
-- seconds, as the controller and the programs count it: a comparison of intervals takes a year for 360 days.

-- +goose Up

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.notify_dispatchers() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    news  text;
    keyed boolean;
    last  bigint;
BEGIN
    IF NOT (EXISTS (SELECT FROM dispatcherd.dispatchers WHERE armed) AND dispatcherd.may_notify()) THEN
        RETURN NULL;
    END IF;
    IF coalesce(current_setting('dispatcherd.rung', true), '') = '' THEN
        PERFORM set_config('dispatcherd.rung', 'yes', true);
        BEGIN
            last := currval('dispatcherd.job_ids');
            SELECT j.keys IS NOT NULL, CASE WHEN j.keys IS NULL AND j.run_at <= clock_timestamp() AND NOT EXISTS (
                    SELECT FROM dispatcherd.jobs_live o WHERE o.id BETWEEN last - 16 AND last - 1 AND o.xmin = j.xmin)
                THEN concat_ws(' ', j.id::bigint, j.priority::int, (extract(epoch FROM j.run_at::timestamptz) * 1000000)::bigint, j.type::text) END
                INTO keyed, news FROM dispatcherd.jobs_live j WHERE j.id = last AND j.status = 'pending';
        EXCEPTION WHEN object_not_in_prerequisite_state THEN
            NULL; -- the ids were given, so this session has taken none from the sequence
        END;
    END IF;
    IF keyed THEN
        PERFORM pg_notify('dispatcherd_keys', '');
    END IF;
    PERFORM pg_notify('dispatcherd_jobs', coalesce(news, ''));
    RETURN NULL;
END $$;
-- +goose StatementEnd

ALTER TABLE dispatcherd.limits ADD CONSTRAINT per_is_10_milliseconds_to_31622400_seconds CHECK (extract(epoch FROM per) BETWEEN 0.01 AND 31622400) NOT VALID;

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 30::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 30::bigint';

ALTER TABLE dispatcherd.limits DROP CONSTRAINT per_is_10_milliseconds_to_31622400_seconds;

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
                WHERE j.id = last AND j.keys IS NULL AND j.status = 'pending' AND j.run_at <= clock_timestamp() AND NOT EXISTS (
                    SELECT FROM dispatcherd.jobs_live o WHERE o.id BETWEEN last - 16 AND last - 1 AND o.xmin = j.xmin);
        EXCEPTION WHEN object_not_in_prerequisite_state THEN
            NULL; -- the ids were given, so this session has taken none from the sequence
        END;
    END IF;
    PERFORM pg_notify('dispatcherd_jobs', coalesce(news, ''));
    RETURN NULL;
END $$;
-- +goose StatementEnd
