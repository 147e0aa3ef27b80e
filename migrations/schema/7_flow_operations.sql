-- What dispatchers do with rows of batches, flows and children. What follows from ends is decided in Go (internal/flow).
-- These functions move and count rows.

-- Ends those of jobs ids that are pending or waiting, as cancelled or failed (final), and returns their number. reasons[i] becomes the last
-- of the errors of job ids[i]; NULL = none. What Postgres cannot read of payload and errors is dropped. The CASE of the payload has the
-- type of the column: if it were jsonb, the INSERT would check the domain payload again. Dispatchers call it.
CREATE FUNCTION dispatcherd.end_idle(ids bigint[], final dispatcherd.status, by text, reasons text[]) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    readable boolean;
    n        int;
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
                SELECT parent, array_agg(id::bigint ORDER BY id), array_agg(final), array_agg(0)
                FROM gone WHERE parent IS NOT NULL GROUP BY parent
                UNION ALL SELECT id, ARRAY[id::bigint], ARRAY[final], '{0}' FROM gone WHERE watched
            )
            INSERT INTO dispatcherd.jobs_cancelled (id, run_at, first_run_at, created_at, attempt, status, timeout_ms, priority,
                max_attempts, failures, crashes, type, payload, keys, expected_ms, fence, parent, unique_key, watched, traceparent,
                backoff, finished_at, cancelled_by, log, errors)
            SELECT id, run_at, first_run_at, created_at, attempt, 'cancelled', timeout_ms, priority, max_attempts, failures, crashes, type,
                CASE WHEN readable THEN payload ELSE 'null'::dispatcherd.payload END, keys, expected_ms, fence, parent, unique_key, watched,
                traceparent, backoff, now(), by, log, CASE WHEN readable AND reason IS NULL THEN errors ELSE
                    CASE WHEN NOT readable THEN '[]' WHEN jsonb_array_length(errors) >= 10 THEN errors - 0 ELSE coalesce(errors, '[]') END
                    || jsonb_build_object('attempt', attempt, 'at', now(), 'outcome', final, 'error', concat_ws('; ', reason,
                    CASE WHEN NOT readable THEN 'the payload and the earlier errors cannot be read in Postgres and were dropped' END)) END
            FROM gone;
            GET DIAGNOSTICS n = ROW_COUNT;
            IF final = 'failed' THEN
                UPDATE dispatcherd.jobs SET status = 'failed', cancelled_by = NULL
                    WHERE id = ANY (ids) AND status = 'cancelled' AND finished_at = now();
            END IF;
            RETURN n;
        EXCEPTION WHEN data_corrupted OR internal_error THEN
            IF NOT readable THEN
                RAISE;
            END IF;
        END;
        IF cardinality(ids) > 1 THEN
            RETURN (SELECT sum(dispatcherd.end_idle(ids[i:i], final, by, reasons[i:i])) FROM generate_series(1, cardinality(ids)) i);
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

-- Gives failed and cancelled jobs ids the statuses again[i], and returns how many. Requests to cancel are removed, because one that arrived
-- while the job ended would cancel it again. The attempt is kept, because it only grows, and errors are kept as evidence. What has counted
-- the ends is told, but not the target by, which has. A child whose parent has ended, with all of its children, has no parent afterwards.
-- Dispatchers call it.
CREATE FUNCTION dispatcherd.run_again(ids bigint[], again dispatcherd.status[], by bigint) RETURNS int
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    WITH gone AS (
        DELETE FROM dispatcherd.jobs j USING unnest(ids, run_again.again) AS i (id, again)
        WHERE j.id BETWEEN i.id AND i.id AND j.status IN ('failed', 'cancelled') RETURNING j.*, i.again,
            (SELECT b.id FROM dispatcherd.batches b WHERE b.id = j.parent AND (b.kind <> 'children' OR b.ended_at IS NULL)) AS member,
            j.watched OR EXISTS (SELECT FROM dispatcherd.edges g WHERE g.before = j.id) AS told
    ), settled AS (
        DELETE FROM dispatcherd.operations WHERE kind = 'cancel' AND target = ANY (ids)
    ), told AS (
        INSERT INTO dispatcherd.ends (target, jobs, statuses, sizes)
        SELECT member, array_agg(id::bigint ORDER BY id), array_agg('pending'::dispatcherd.status), array_agg(0) FROM gone
            WHERE member IS NOT NULL AND member IS DISTINCT FROM run_again.by GROUP BY member
        UNION ALL SELECT id, ARRAY[id::bigint], '{pending}', '{0}' FROM gone WHERE told
    ), moved AS (
        INSERT INTO dispatcherd.jobs (id, status, first_run_at, created_at, attempt, timeout_ms, priority, max_attempts, type, payload,
            keys, expected_ms, parent, unique_key, traceparent, backoff, watched, errors)
        SELECT id, again, coalesce(first_run_at, run_at), created_at, attempt, timeout_ms, priority, max_attempts, type, payload, keys,
            expected_ms, member, unique_key, traceparent, backoff, CASE WHEN told THEN true ELSE watched END, errors FROM gone
        RETURNING id
    )
    SELECT count(*)::int FROM moved
$$;
