-- Gives all rights of the newest schema to each role that has none yet, because it was created after the
-- migrations. Rights that an administrator has revoked from another role stay revoked. The migrations give
-- the same rights to the roles that exist; a test compares.
DO $$
DECLARE
    r text;
    plan constant text := 'name, kind, spec, every, time_zone, jitter, starts_at, ends_at, once, type, payload, priority, max_attempts, timeout_ms, overlap, catch_up, catch_up_most, paused, keys, expected_ms';
BEGIN
    FOR r IN SELECT rolname FROM pg_roles WHERE rolname IN ('dispatcherd_producer', 'dispatcherd_reader', 'dispatcherd_operator', 'dispatcherd_dispatcher')
        AND NOT has_schema_privilege(oid, 'dispatcherd', 'USAGE')
    LOOP
        EXECUTE format('GRANT USAGE ON SCHEMA dispatcherd TO %I', r);
        EXECUTE format('GRANT EXECUTE ON FUNCTION dispatcherd.compatible_from, dispatcherd.duration_class TO %I', r);
        IF r <> 'dispatcherd_reader' THEN
            EXECUTE format('GRANT USAGE ON SEQUENCE dispatcherd.job_ids TO %I', r);
            EXECUTE format('GRANT EXECUTE ON FUNCTION dispatcherd.insertion_time, dispatcherd.numbers_length, dispatcherd.reject_keys, dispatcherd.open_batch,
                dispatcherd.insert_member, dispatcherd.seal_batch, dispatcherd.insert_flow, dispatcherd.insert_unique TO %I', r);
        END IF;
        IF r IN ('dispatcherd_producer', 'dispatcherd_operator') THEN
            EXECUTE format('GRANT INSERT (type, payload, priority, run_at, max_attempts, timeout_ms, expected_ms, keys, parent, unique_key) ON dispatcherd.jobs TO %I', r);
        END IF;
        IF r <> 'dispatcherd_producer' THEN
            EXECUTE format('GRANT SELECT ON dispatcherd.dispatchers, dispatcherd.schema_version, dispatcherd.ticks, dispatcherd.schedule_runs, dispatcherd.controller,
                dispatcherd.batches, dispatcherd.nodes, dispatcherd.edges, dispatcherd.uniques, dispatcherd.durations TO %I', r);
        END IF;
        IF r IN ('dispatcherd_operator', 'dispatcherd_dispatcher') THEN
            EXECUTE format('GRANT SELECT ON dispatcherd.jobs, dispatcherd.jobs_live, dispatcherd.jobs_waiting, dispatcherd.jobs_cancelled TO %I', r);
            EXECUTE format('GRANT SELECT, INSERT ON dispatcherd.cancels TO %I', r);
            EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON dispatcherd.limits TO %I', r);
            EXECUTE format('GRANT EXECUTE ON FUNCTION dispatcherd.cancel_pending, dispatcherd.retry_jobs, dispatcherd.may_notify, dispatcherd.make_ticks,
                dispatcherd.cancel_tree, dispatcherd.retry_tree, dispatcherd.repair_flows TO %I', r);
            EXECUTE format('GRANT SELECT, DELETE, INSERT (%s), UPDATE (%s) ON dispatcherd.schedules TO %I', plan, plan, r);
        END IF;
        CASE r
        WHEN 'dispatcherd_producer' THEN
            GRANT SELECT (id) ON dispatcherd.jobs TO dispatcherd_producer; -- INSERT … RETURNING id
        WHEN 'dispatcherd_reader' THEN -- no payload, no result
            GRANT SELECT (id, run_at, created_at, attempt, status, dispatcher, timeout_ms, priority, max_attempts, failures, crashes, type,
                started_at, finished_at, first_run_at, cancelled_by, placement, keys, fence, admitted_to, parent, unique_key, watched, expected_ms) ON dispatcherd.jobs, dispatcherd.jobs_live TO dispatcherd_reader;
            GRANT SELECT (id, name, kind, spec, every, time_zone, jitter, starts_at, ends_at, once, type, priority, max_attempts, timeout_ms, overlap,
                catch_up, catch_up_most, paused, error, version, since, created_at, keys, expected_ms) ON dispatcherd.schedules TO dispatcherd_reader;
            GRANT SELECT ON dispatcherd.limits TO dispatcherd_reader;
        WHEN 'dispatcherd_operator' THEN
            NULL;
        WHEN 'dispatcherd_dispatcher' THEN
            GRANT SELECT, INSERT, UPDATE, DELETE ON dispatcherd.jobs, dispatcherd.jobs_waiting, dispatcherd.jobs_live, dispatcherd.jobs_done, dispatcherd.jobs_failed,
                dispatcherd.jobs_cancelled, dispatcherd.dispatchers, dispatcherd.claims, dispatcherd.cancels, dispatcherd.request_keys,
                dispatcherd.ticks TO dispatcherd_dispatcher;
            GRANT SELECT, UPDATE, DELETE ON dispatcherd.schedule_edits TO dispatcherd_dispatcher;
            GRANT SELECT, DELETE ON dispatcherd.limit_edits TO dispatcherd_dispatcher;
            GRANT SELECT, INSERT, UPDATE, DELETE ON dispatcherd.key_starts TO dispatcherd_dispatcher;
            GRANT INSERT, DELETE ON dispatcherd.schedule_runs TO dispatcherd_dispatcher;
            GRANT INSERT, UPDATE, DELETE ON dispatcherd.durations TO dispatcherd_dispatcher;
            GRANT SELECT, INSERT ON dispatcherd.ends TO dispatcherd_dispatcher;
            GRANT EXECUTE ON FUNCTION dispatcherd.end_idle, dispatcherd.canceller, dispatcherd.release_waiting, dispatcherd.proceed, dispatcherd.runs_when,
                dispatcherd.fire, dispatcherd.fitting, dispatcherd.cancel_members, dispatcherd.seal, dispatcherd.inputs, dispatcherd.release_nodes, dispatcherd.count_dependencies,
                dispatcherd.link_dependencies, dispatcherd.settle, dispatcherd.check_again, dispatcherd.lock_batches, dispatcherd.count_retries, dispatcherd.counts,
                dispatcherd.require_read_committed, dispatcherd.has_dependants, dispatcherd.must_wait,
                dispatcherd.job_problem, dispatcherd.insert_jobs, dispatcherd.notify_ends, dispatcherd.insert_children, dispatcherd.node_problem,
                dispatcherd.reject_flow, dispatcherd.check_flow, dispatcherd.reject_dependency, dispatcherd.insert_nodes, dispatcherd.wait_again, dispatcherd.dependencies, dispatcherd.retry_nodes,
                dispatcherd.repair_batch, dispatcherd.repair_next, dispatcherd.expire_flows TO dispatcherd_dispatcher;
            GRANT UPDATE (error) ON dispatcherd.schedules TO dispatcherd_dispatcher;
            GRANT UPDATE ON dispatcherd.controller TO dispatcherd_dispatcher;
            GRANT SELECT ON SEQUENCE dispatcherd.schedule_edit_ids TO dispatcherd_dispatcher;
            GRANT EXECUTE ON FUNCTION dispatcherd.cancel_runs, dispatcherd.forget_runs, dispatcherd.has_locker, dispatcherd.keep_leaves, dispatcherd.keep_partitions, dispatcherd.pause_vacuum,
                dispatcherd.rest_vacuum, dispatcherd.start_queued TO dispatcherd_dispatcher;
        END CASE;
    END LOOP;
END $$;
