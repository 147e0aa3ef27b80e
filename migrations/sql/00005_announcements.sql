-- The doorbell names the row of a transaction that inserts one, so that an idle
-- dispatcher need not ask for it.

-- +goose Up

-- One NOTIFY a statement, two at most of a transaction, and only while a
-- dispatcher wants it. The first statement of a transaction names the last row
-- it inserted, "id priority run_at type", run_at in microseconds since 1970,
-- unless it can be seen to have inserted others. Later statements add the empty
-- payload, which says that there is more. Which row was inserted is known from
-- the sequence: a transition table would keep COPY from inserting many rows at a
-- time. The settings keep a plan that was made for an empty table off the table,
-- and keep the server from planning at every call (150 µs instead of 10) and
-- from compiling, to which the price of a forbidden scan would tempt it.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.ring() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
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

-- +goose Down

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.ring() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM dispatcherd.dispatchers WHERE armed) THEN
        PERFORM pg_notify('dispatcherd_jobs', '');
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
