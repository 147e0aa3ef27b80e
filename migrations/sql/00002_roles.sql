-- Least privilege. The two roles cannot log in: grant them to those that can.
-- Roles belong to the whole server, so Down leaves them, without any right here.

-- +goose Up

-- +goose StatementBegin
DO $$
DECLARE
    r text;
BEGIN
    FOREACH r IN ARRAY ARRAY['dispatcherd_producer', 'dispatcherd_dispatcher'] LOOP
        CONTINUE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = r);
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', r);
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN NULL; -- another database's migration was faster
            WHEN insufficient_privilege THEN
                RAISE NOTICE 'role % was not created: % may not create roles', r, current_user;
        END;
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_producer') THEN
        GRANT USAGE ON SCHEMA dispatcherd TO dispatcherd_producer;
        GRANT USAGE ON SEQUENCE dispatcherd.job_ids TO dispatcherd_producer;
        GRANT INSERT (type, payload, priority, run_at, max_attempts, timeout_ms) ON dispatcherd.jobs TO dispatcherd_producer;
        GRANT SELECT (id) ON dispatcherd.jobs TO dispatcherd_producer; -- INSERT … RETURNING id
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_dispatcher') THEN
        GRANT USAGE ON SCHEMA dispatcherd TO dispatcherd_dispatcher;
        GRANT USAGE ON SEQUENCE dispatcherd.job_ids TO dispatcherd_dispatcher;
        GRANT SELECT, INSERT, UPDATE, DELETE ON dispatcherd.jobs, dispatcherd.jobs_live, dispatcherd.jobs_done,
            dispatcherd.jobs_failed, dispatcherd.jobs_cancelled, dispatcherd.dispatchers, dispatcherd.claims,
            dispatcherd.cancels TO dispatcherd_dispatcher;
        GRANT SELECT ON dispatcherd.schema_version TO dispatcherd_dispatcher;
        GRANT EXECUTE ON FUNCTION dispatcherd.keep_leaves TO dispatcherd_dispatcher;
    END IF;
END $$;
-- +goose StatementEnd

-- +goose Down

-- +goose StatementBegin
DO $$
DECLARE
    r text;
BEGIN
    FOR r IN SELECT rolname FROM pg_roles WHERE rolname IN ('dispatcherd_producer', 'dispatcherd_dispatcher') LOOP
        EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA dispatcherd FROM %I', r);
        EXECUTE format('REVOKE INSERT (type, payload, priority, run_at, max_attempts, timeout_ms), SELECT (id) ON dispatcherd.jobs FROM %I', r);
        EXECUTE format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA dispatcherd FROM %I', r);
        EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA dispatcherd FROM %I', r);
        EXECUTE format('REVOKE ALL ON SCHEMA dispatcherd FROM %I', r);
    END LOOP;
END $$;
-- +goose StatementEnd
