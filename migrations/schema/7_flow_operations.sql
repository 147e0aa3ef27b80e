-- What dispatchers do with rows of batches, flows and children. What follows from ends is decided in Go (internal/flow).
-- These functions move and count rows.

-- Ends those of jobs ids that are pending or waiting, as cancelled or failed (final), and returns their number. reasons[i] becomes the last
-- of the errors of job ids[i]; NULL = none. What Postgres cannot read of payload and errors is dropped. The CASE of the payload has the
-- type of the column: if it were jsonb, the INSERT would check the domain payload again. Dispatchers call it, as does
-- cancel_tree.
CREATE FUNCTION dispatcherd.end_idle(ids bigint[], final dispatcherd.status, by text, reasons text[]) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    readable boolean;
    n        int;
    total    int := 0;
BEGIN
    FOREACH readable IN ARRAY ARRAY[true, false] LOOP
        BEGIN
            WITH item AS (
                SELECT id, max(reason) AS reason FROM unnest(ids, reasons) AS i (id, reason) GROUP BY id
            ), gone AS (
                DELETE FROM dispatcherd.jobs j USING item i
                WHERE j.id BETWEEN i.id AND i.id AND j.status IN ('waiting', 'pending') RETURNING j.*, i.reason
            ), ended AS (
                INSERT INTO dispatcherd.ends (target, jobs, statuses, sizes)
                SELECT parent, array_agg(id::bigint ORDER BY id), array_agg(final), array_agg(0) FROM gone
                WHERE parent IS NOT NULL GROUP BY parent
                UNION ALL SELECT id, ARRAY[id::bigint], ARRAY[final], '{0}' FROM gone WHERE watched
            )
            INSERT INTO dispatcherd.jobs_cancelled (id, run_at, first_run_at, created_at, attempt, status, timeout_ms, priority,
                max_attempts, failures, crashes, type, payload, keys, expected_ms, fence, parent, unique_key, watched, finished_at,
                    cancelled_by, log, errors)
            SELECT id, run_at, first_run_at, created_at, attempt, 'cancelled', timeout_ms, priority,
                max_attempts, failures, crashes, type, CASE WHEN readable THEN payload
                    ELSE 'null'::dispatcherd.payload END, keys, expected_ms, fence, parent, unique_key, watched,
                now(), by, log, CASE WHEN readable AND reason IS NULL THEN errors ELSE
                    CASE WHEN NOT readable THEN '[]' WHEN jsonb_array_length(errors) >= 10 THEN errors - 0 ELSE coalesce(errors, '[]') END
                    || jsonb_build_object('attempt', attempt, 'at', now(), 'outcome', final, 'error', concat_ws('; ', reason,
                        CASE WHEN NOT readable
                            THEN 'the payload and the earlier errors cannot be read in Postgres and were dropped' END)) END FROM gone;
            GET DIAGNOSTICS n = ROW_COUNT;
            IF final = 'failed' THEN
                UPDATE dispatcherd.jobs SET status = 'failed', cancelled_by = NULL WHERE id = ANY (ids) AND status = 'cancelled'
                    AND finished_at = now();
            END IF;
            RETURN n;
        EXCEPTION WHEN data_corrupted OR internal_error THEN
            IF NOT readable THEN
                RAISE;
            END IF;
        END;
        IF cardinality(ids) > 1 THEN
            FOR i IN 1..cardinality(ids) LOOP
                total := total + dispatcherd.end_idle(ids[i:i], final, by, reasons[i:i]);
            END LOOP;
            RETURN total;
        END IF;
    END LOOP;
END $$;

-- Counts the members of a batch that have not ended, as far as the batch has counted ends. One snapshot shows each member either as a row
-- or by its end. seal_batch and dispatchers call it.
CREATE FUNCTION dispatcherd.open_members(batch bigint) RETURNS int
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT (SELECT count(*) FROM dispatcherd.jobs_live j WHERE j.parent = batch)::int
        + (SELECT count(*) FROM dispatcherd.jobs_waiting w WHERE w.parent = batch)::int
        + (SELECT coalesce(sum(e.done + coalesce(cardinality(e.jobs) - 2 * cardinality(array_positions(e.statuses, 'pending')), 0)), 0)
            FROM dispatcherd.ends e WHERE e.target = batch AND (e.jobs IS NULL OR e.jobs[1] <> batch))::int
$$;

-- Makes failed and cancelled jobs pending again, and returns how many. Dispatchers call it.
-- - Of several jobs with one unique key the newest is retried, unless a live job has the key.
-- - A job that must wait for others is not retried: retry_tree makes it wait again. Neither is a node of a flow that is being cancelled.
-- - A run of a schedule counts as open again. Unless the schedule has overlap = allow_all, it is not retried beside another run that has
--   not ended, and of several runs the newest is retried. The lock of the schedule orders this and its ticks.
CREATE FUNCTION dispatcherd.retry_jobs(ids bigint[]) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    newest bigint[];
    n      int;
BEGIN
    PERFORM FROM dispatcherd.schedules s WHERE s.id IN (SELECT t.schedule_id FROM dispatcherd.ticks t WHERE t.job_id = ANY (ids))
        ORDER BY s.id FOR NO KEY UPDATE;
    PERFORM FROM dispatcherd.jobs j WHERE j.id = ANY (ids) AND j.status IN ('failed', 'cancelled') ORDER BY j.id FOR UPDATE;
    newest := ARRAY (SELECT max(j.id) FROM dispatcherd.jobs j LEFT JOIN LATERAL (
            SELECT s.id FROM dispatcherd.ticks t JOIN dispatcherd.schedules s ON s.id = t.schedule_id
            WHERE t.job_id = j.id AND s.overlap <> 'allow_all' LIMIT 1) s ON true
        WHERE j.id = ANY (ids) AND j.status IN ('failed', 'cancelled') AND NOT dispatcherd.must_wait(j.id, j.attempt)
            AND NOT EXISTS (SELECT FROM dispatcherd.schedule_runs r WHERE r.schedule_id = s.id
                AND (SELECT l.id FROM dispatcherd.jobs_live l WHERE l.id = r.job_id) IS NOT NULL)
            AND NOT EXISTS (SELECT FROM dispatcherd.batches b WHERE b.id = j.parent AND b.kind = 'flow' AND b.ended_at IS NULL
                AND b.cancelled_by IS NOT NULL)
            AND (j.unique_key IS NULL OR (SELECT l.id FROM dispatcherd.jobs_live l WHERE l.unique_key = j.unique_key) IS NULL)
        GROUP BY j.unique_key, s.id, CASE WHEN j.unique_key IS NULL AND s.id IS NULL THEN j.id END);
    n := dispatcherd.run_again(newest, array_fill('pending'::dispatcherd.status, ARRAY[cardinality(newest)]), NULL);
    INSERT INTO dispatcherd.schedule_runs SELECT t.schedule_id, t.job_id FROM dispatcherd.ticks t
        WHERE t.job_id = ANY (newest) ON CONFLICT DO NOTHING;
    RETURN n;
END $$;

-- Gives failed and cancelled jobs ids the statuses again[i], and returns how many. Requests to cancel are removed, because one that arrived
-- while the job ended would cancel it again. The attempt is kept, because it only grows, and errors are kept as evidence. What has counted
-- the ends is told, but not the target by, which has. A job whose parent takes no ends any more has no parent afterwards. retry_jobs and
-- dispatchers call it.
CREATE FUNCTION dispatcherd.run_again(ids bigint[], again dispatcherd.status[], by bigint) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    n int;
BEGIN
    WITH gone AS (
        DELETE FROM dispatcherd.jobs j USING unnest(ids, run_again.again) AS i (id, again)
        WHERE j.id BETWEEN i.id AND i.id AND j.status IN ('failed', 'cancelled') RETURNING j.*, i.again,
            (SELECT b.id FROM dispatcherd.batches b WHERE b.id = j.parent AND (b.cancelled_by IS NULL OR b.ended_at IS NOT NULL)
                AND (b.kind <> 'children' OR b.ended_at IS NULL)) AS member,
            j.watched OR EXISTS (SELECT FROM dispatcherd.edges g WHERE g.before = j.id) AS told
    ), settled AS (
        DELETE FROM dispatcherd.operations WHERE kind = 'cancel' AND target = ANY (ids)
    ), told AS (
        INSERT INTO dispatcherd.ends (target, jobs, statuses, sizes)
        SELECT member, array_agg(id::bigint ORDER BY id), array_agg('pending'::dispatcherd.status), array_agg(0) FROM gone
            WHERE member IS NOT NULL AND member IS DISTINCT FROM run_again.by GROUP BY member
        UNION ALL SELECT id, ARRAY[id::bigint], '{pending}', '{0}' FROM gone WHERE told
    )
    INSERT INTO dispatcherd.jobs (id, status, first_run_at, created_at, attempt, timeout_ms, priority, max_attempts, type, payload, keys,
        expected_ms, parent, unique_key, watched, errors)
    SELECT id, again, coalesce(first_run_at, run_at), created_at, attempt, timeout_ms, priority, max_attempts, type, payload, keys,
        expected_ms, member, unique_key, CASE WHEN told THEN true ELSE watched END, errors FROM gone;
    GET DIAGNOSTICS n = ROW_COUNT;
    PERFORM dispatcherd.notify_ends() WHERE n > 0;
    RETURN n;
END $$;

-- Retries the failed and cancelled jobs below a batch or flow, and its callback: dispatchers walk through them. Nodes wait again for the
-- dependencies that run again. It returns how many jobs there are. Dispatchers call it.
CREATE FUNCTION dispatcherd.retry_tree(job bigint) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    b     dispatcherd.batches;
    bad   int;
    gone  int;
    first bigint;
BEGIN
    SELECT * INTO b FROM dispatcherd.batches WHERE id = job;
    IF NOT FOUND OR b.kind = 'children' THEN
        IF NOT EXISTS (SELECT FROM dispatcherd.jobs j WHERE j.id = job) THEN
            RAISE no_data_found USING CONSTRAINT = 'job_exists', MESSAGE = format('no job, batch or flow %s', job);
        END IF;
        RETURN dispatcherd.retry_jobs(ARRAY[job]);
    ELSIF EXISTS (SELECT FROM dispatcherd.jobs_live j WHERE j.id = job) THEN
        RAISE object_not_in_prerequisite_state USING CONSTRAINT = 'callback_has_ended',
            MESSAGE = format('the callback of %s %s is pending or running: retry after its end, or cancel it', b.kind, job);
    END IF;
    -- one that runs again has a row, and a message about it is under way
    SELECT count(*), count(*) FILTER (WHERE x.gone), min(m.id) FILTER (WHERE x.gone) INTO bad, gone, first FROM (
        SELECT d.id, d.status, d.finished_at FROM dispatcherd.nodes d WHERE d.flow = job AND d.status IN ('failed', 'cancelled')
        UNION ALL SELECT m.job_id, m.status, m.finished_at FROM dispatcherd.bad_members m WHERE m.batch = job) m
        CROSS JOIN LATERAL (SELECT NOT EXISTS (SELECT FROM dispatcherd.jobs j
                WHERE j.id = m.id AND j.status = m.status AND j.finished_at = m.finished_at)
            AND NOT EXISTS (SELECT FROM dispatcherd.jobs j WHERE j.id = m.id) AS gone) x;
    IF gone > 0 THEN
        RAISE object_not_in_prerequisite_state USING CONSTRAINT = 'rows_exist', MESSAGE = format(
            '%s %s: %s of its %s failed and cancelled jobs were deleted by retention, for example job %s: insert it again',
            b.kind, job, gone, bad, first);
    END IF;
    INSERT INTO dispatcherd.ends (target, walk) VALUES (job, 'retry');
    PERFORM dispatcherd.notify_ends();
    RETURN bad + (SELECT count(*) FROM dispatcherd.jobs j WHERE j.id = job AND j.status IN ('failed', 'cancelled'));
END $$;

-- Whether a job that has ended must wait for other jobs before it runs again: it is a node with dependencies or a callback, and was
-- never released, or was made to wait again. retry_jobs calls it.
CREATE FUNCTION dispatcherd.must_wait(job bigint, attempt int) RETURNS boolean
LANGUAGE sql STABLE AS $$
SELECT EXISTS (SELECT FROM dispatcherd.nodes n WHERE n.id OPERATOR(pg_catalog.=) job AND n.depends_on OPERATOR(pg_catalog.<>) '{}'
    AND (attempt OPERATOR(pg_catalog.=) 0 OR n.ready_at IS NULL))
        OR EXISTS (SELECT FROM dispatcherd.batches b WHERE b.id OPERATOR(pg_catalog.=) job AND b.callback
            AND (attempt OPERATOR(pg_catalog.=) 0 OR b.ended_at IS NULL)) $$;

-- Cancels a job, batch or flow, and everything below it. The job itself is cancelled, or asked to end, at once; dispatchers do the rest. It
-- returns how many jobs it and its members are that have not started, and how many run. Dispatchers call it.
CREATE FUNCTION dispatcherd.cancel_tree(job bigint, by text DEFAULT NULL, OUT cancelled int, OUT running int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    who text := coalesce(by, session_user);
BEGIN
    IF NOT EXISTS (SELECT FROM dispatcherd.batches b WHERE b.id = job) AND NOT EXISTS (SELECT FROM dispatcherd.jobs j WHERE j.id = job) THEN
        RAISE no_data_found USING CONSTRAINT = 'job_exists', MESSAGE = format('no job, batch or flow %s', job);
    END IF;
    UPDATE dispatcherd.batches b SET cancelled_by = coalesce(b.cancelled_by, who) WHERE b.id = job AND b.ended_at IS NULL;
    INSERT INTO dispatcherd.ends (target) SELECT job WHERE FOUND;
    SELECT count(*) FILTER (WHERE j.status <> 'running'), count(*) FILTER (WHERE j.status = 'running') INTO cancelled, running
        FROM dispatcherd.jobs j WHERE j.parent = job AND j.status IN ('waiting', 'pending', 'running') AND FOUND;
    FOR round IN 1..10 LOOP -- another transaction may release or retry the job between two statements
        EXIT WHEN NOT EXISTS (SELECT FROM dispatcherd.jobs j WHERE j.id = job AND j.status IN ('waiting', 'pending', 'running'));
        IF EXISTS (SELECT FROM dispatcherd.jobs_live j WHERE j.id = job AND j.status = 'running') THEN
            INSERT INTO dispatcherd.operations (kind, target, who) VALUES ('cancel', job, who);
            running := running + 1;
            EXIT;
        END IF;
        cancelled := cancelled + dispatcherd.end_idle(ARRAY[job], 'cancelled', who, NULL);
    END LOOP;
    PERFORM dispatcherd.notify_ends();
END $$;

-- Asks dispatchers to count the open members and dependencies of a batch or flow that has not ended again, or of all of them for NULL, and
-- to try those again that they have set aside. Dispatchers call it.
CREATE FUNCTION dispatcherd.repair_flows(job bigint DEFAULT NULL) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE dispatcherd.batches SET aside = NULL, aside_at = NULL WHERE aside_at IS NOT NULL AND (job IS NULL OR id = job);
    INSERT INTO dispatcherd.ends (target, walk) SELECT id, 'repair' FROM dispatcherd.batches
        WHERE ended_at IS NULL AND sealed_at IS NOT NULL AND (job IS NULL OR id = job) ORDER BY id;
    SELECT dispatcherd.notify_ends();
$$;
