-- Two further roles that cannot log in: grant them to those that can. Roles
-- belong to the whole server, so Down leaves them, without any right here.

-- +goose Up

COMMENT ON COLUMN dispatcherd.dispatchers.armed IS 'Its workers have slots, and notifications are no storm: producers ring.';
COMMENT ON COLUMN dispatcherd.jobs.id IS 'Assigned; unique over all statuses as long as nobody sets it: only roles above the producers can.';

-- +goose StatementBegin
DO $$
DECLARE
    r text;
BEGIN
    FOREACH r IN ARRAY ARRAY['dispatcherd_reader', 'dispatcherd_operator'] LOOP
        CONTINUE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = r);
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', r);
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN NULL; -- another database's migration was faster
            WHEN insufficient_privilege THEN
                RAISE NOTICE 'role % was not created: % may not create roles', r, current_user;
        END;
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_reader') THEN -- dashboards, trace export
        GRANT USAGE ON SCHEMA dispatcherd TO dispatcherd_reader;
        GRANT SELECT (id, run_at, created_at, attempt, status, dispatcher, timeout_ms, priority, max_attempts, failures, crashes, type,
            started_at, finished_at) ON dispatcherd.jobs, dispatcherd.jobs_live TO dispatcherd_reader;
        GRANT SELECT ON dispatcherd.dispatchers, dispatcherd.schema_version TO dispatcherd_reader;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_operator') THEN -- job insert, get, list, retry, cancel
        GRANT USAGE ON SCHEMA dispatcherd TO dispatcherd_operator;
        GRANT USAGE ON SEQUENCE dispatcherd.job_ids TO dispatcherd_operator;
        GRANT SELECT, INSERT, DELETE ON dispatcherd.jobs, dispatcherd.jobs_live, dispatcherd.jobs_cancelled TO dispatcherd_operator;
        GRANT UPDATE (progress) ON dispatcherd.jobs, dispatcherd.jobs_live TO dispatcherd_operator; -- SELECT … FOR UPDATE
        GRANT SELECT, INSERT ON dispatcherd.cancels TO dispatcherd_operator;
        GRANT SELECT ON dispatcherd.dispatchers, dispatcherd.schema_version TO dispatcherd_operator;
    END IF;
END $$;
-- +goose StatementEnd

-- +goose Down

-- +goose StatementBegin
DO $$
DECLARE
    r text;
BEGIN
    FOR r IN SELECT rolname FROM pg_roles WHERE rolname IN ('dispatcherd_reader', 'dispatcherd_operator') LOOP
        EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA dispatcherd FROM %I', r); -- those on columns, too
        EXECUTE format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA dispatcherd FROM %I', r);
        EXECUTE format('REVOKE ALL ON SCHEMA dispatcherd FROM %I', r);
    END LOOP;
END $$;
-- +goose StatementEnd
COMMENT ON COLUMN dispatcherd.jobs.id IS 'Assigned; unique over all statuses.';
COMMENT ON COLUMN dispatcherd.dispatchers.armed IS 'It has a free slot and nothing to do: producers ring.';
