-- The rights of each role of 8_roles.sql that has none yet. "migrate up" executes this file again, because a role may have been created
-- after the schema. Rights that an administrator has revoked from another role stay revoked.

DO $$
DECLARE
    role text;
    -- what producers set of a job
    job_columns constant text :=
        'type, payload, priority, run_at, max_attempts, timeout_ms, expected_ms, keys, parent, unique_key, traceparent, backoff';
    -- what users set of a schedule; triggers and the controller set the others
    plan_columns constant text :=
        'name, kind, spec, every, time_zone, jitter, starts_at, ends_at, once, type, payload, priority, max_attempts, timeout_ms, '
        'overlap, catch_up, catch_up_most, paused, keys, expected_ms';
BEGIN
    FOR role IN
        SELECT rolname FROM pg_roles
        WHERE rolname IN ('dispatcherd_producer', 'dispatcherd_reader', 'dispatcherd_operator', 'dispatcherd_dispatcher')
            AND NOT has_schema_privilege(oid, 'dispatcherd', 'USAGE')
    LOOP
        EXECUTE format('GRANT USAGE ON SCHEMA dispatcherd TO %I', role);
        EXECUTE format('GRANT EXECUTE ON FUNCTION dispatcherd.compatible_from, dispatcherd.duration_class TO %I', role);

        IF role IN ('dispatcherd_producer', 'dispatcherd_operator', 'dispatcherd_dispatcher') THEN -- insert jobs, batches and flows
            EXECUTE format('GRANT INSERT (%s), SELECT (id) ON dispatcherd.jobs TO %I', job_columns, role); -- INSERT ... RETURNING id
            EXECUTE format('GRANT USAGE ON SEQUENCE dispatcherd.job_ids TO %I', role);
            EXECUTE format('GRANT EXECUTE ON FUNCTION
                dispatcherd.insertion_time, dispatcherd.numbers_length, dispatcherd.check_keys, dispatcherd.owner, dispatcherd.owns_batch,
                dispatcherd.insert_unique, dispatcherd.open_batch, dispatcherd.insert_member, dispatcherd.seal_batch,
                dispatcherd.insert_flow TO %I', role);
        END IF;

        IF role IN ('dispatcherd_reader', 'dispatcherd_operator', 'dispatcherd_dispatcher') THEN -- see the state
            EXECUTE format('GRANT SELECT ON
                dispatcherd.schema_version, dispatcherd.dispatchers, dispatcherd.controller, dispatcherd.durations,
                dispatcherd.ticks, dispatcherd.schedule_runs, dispatcherd.limits, dispatcherd.types, dispatcherd.drains,
                dispatcherd.batches, dispatcherd.nodes, dispatcherd.edges, dispatcherd.uniques TO %I', role);
        END IF;

        IF role IN ('dispatcherd_operator', 'dispatcherd_dispatcher') THEN -- read jobs, cancel, retry; edit schedules and limits
            EXECUTE format('GRANT SELECT ON
                dispatcherd.jobs, dispatcherd.jobs_live, dispatcherd.jobs_waiting, dispatcherd.jobs_cancelled, dispatcherd.job_list
                TO %I', role);
            EXECUTE format('GRANT SELECT, INSERT (kind, target, reason, name, until) ON dispatcherd.operations TO %I', role);
            EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON dispatcherd.limits TO %I', role);
            EXECUTE format('GRANT SELECT, DELETE, INSERT (%1$s), UPDATE (%1$s) ON dispatcherd.schedules TO %2$I', plan_columns, role);
            EXECUTE format('GRANT EXECUTE ON FUNCTION dispatcherd.may_notify TO %I', role);
        END IF;

        CASE role
            WHEN 'dispatcherd_reader' THEN -- no payload, result, error or log
                GRANT SELECT (id, run_at, created_at, attempt, status, dispatcher, timeout_ms, priority, max_attempts, failures, crashes,
                    type, started_at, finished_at, first_run_at, cancelled_by, placement, keys, fence, admitted_to, admitted_at, parent,
                    unique_key, watched, expected_ms, traceparent, backoff)
                    ON dispatcherd.jobs, dispatcherd.jobs_live TO dispatcherd_reader;
                GRANT SELECT (id, name, kind, spec, every, time_zone, jitter, starts_at, ends_at, once, type, priority, max_attempts,
                    timeout_ms, overlap, catch_up, catch_up_most, paused, keys, expected_ms, error, version, since, created_at)
                    ON dispatcherd.schedules TO dispatcherd_reader;
            WHEN 'dispatcherd_dispatcher' THEN
                GRANT SELECT, INSERT, UPDATE, DELETE ON
                    dispatcherd.jobs, dispatcherd.jobs_waiting, dispatcherd.jobs_live, dispatcherd.jobs_done, dispatcherd.jobs_failed,
                    dispatcherd.jobs_cancelled, dispatcherd.dispatchers, dispatcherd.claims, dispatcherd.operations,
                    dispatcherd.request_keys, dispatcherd.ticks, dispatcherd.key_starts, dispatcherd.durations, dispatcherd.summaries
                    TO dispatcherd_dispatcher;
                GRANT SELECT, INSERT, DELETE ON dispatcherd.reports TO dispatcherd_dispatcher; -- parts of outputs
                GRANT SELECT, UPDATE, DELETE ON -- retention
                    dispatcherd.jobs_done_rest, dispatcherd.jobs_failed_rest, dispatcherd.jobs_cancelled_rest TO dispatcherd_dispatcher;
                GRANT INSERT ON dispatcherd.batches TO dispatcherd_dispatcher; -- children
                GRANT SELECT, INSERT, UPDATE, DELETE ON dispatcherd.ends, dispatcherd.bad_members TO dispatcherd_dispatcher;
                GRANT UPDATE, DELETE ON dispatcherd.batches, dispatcherd.nodes, dispatcherd.edges, dispatcherd.uniques
                    TO dispatcherd_dispatcher;
                GRANT INSERT, DELETE ON dispatcherd.schedule_runs TO dispatcherd_dispatcher;
                GRANT INSERT, UPDATE, DELETE ON dispatcherd.types, dispatcherd.drains TO dispatcherd_dispatcher;
                GRANT UPDATE (error) ON dispatcherd.schedules TO dispatcherd_dispatcher;
                GRANT INSERT, UPDATE ON dispatcherd.controller TO dispatcherd_dispatcher;
                GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA dispatcherd TO dispatcherd_dispatcher;
            ELSE
                NULL;
        END CASE;
    END LOOP;
END $$;
