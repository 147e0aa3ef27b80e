-- Settlement: what follows from the ends of jobs on which batches, flows and children depend (6_flows.sql). First settle, which
-- dispatchers call, and its helpers in the order of their calls. Then cancel, retry, repair and retention, each before its helpers. They
-- are in SQL because they count and move many rows at once.

-- Counts the ends that are recorded in the table ends, about `most` of them in each round, for about 200 ms. Then it releases the nodes
-- whose dependencies have ended, and ends the batches whose members have ended. Dispatchers call it. It leaves out what another transaction
-- has locked, and then blocked is true. more says that there is more to do at once. "To check a batch again" means here and below: a row
-- with the status waiting in ends makes the next round look at the batch.
CREATE FUNCTION dispatcherd.settle(most int, OUT settled int, OUT more boolean, OUT blocked boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_variable
DECLARE
    until    timestamptz := clock_timestamp() + interval '200 ms';
    again    boolean := true; -- batches are checked again once in each call, and if a part of them was left
    rest     boolean;
    busy     bigint[] := '{}'; -- batches that other transactions have locked
    stuck    bigint[] := '{}'; -- watched jobs whose ends change them
    parents  bigint[];
    watched  bigint[];
    needed   bigint[];
    mine     bigint[];
    missed   bigint[];
    n        int;
    changed  bigint[];
    dones    int[];
    fails    int[];
    stops    int[];
    reasons  text[];
    ended    bigint[];
    statuses dispatcherd.status[];
    checks   bigint[];
    complete bigint[];
BEGIN
    settled := 0; more := false;
    LOOP
        SELECT coalesce(array_agg(DISTINCT e.parent) FILTER (WHERE e.parent IS NOT NULL), '{}'),
            coalesce(array_agg(e.job_id) FILTER (WHERE e.watched), '{}'), count(*)
            INTO parents, watched, n FROM (
                SELECT e.job_id, e.parent, e.watched FROM dispatcherd.ends e WHERE (again OR e.status <> 'waiting')
                    AND (e.parent IS NULL OR e.parent NOT IN (SELECT unnest(busy)))
                        AND e.job_id NOT IN (SELECT unnest(stuck)) LIMIT most) e;
        EXIT WHEN n = 0;
        needed := parents || watched;
        IF watched <> '{}' THEN
            needed := needed || ARRAY (SELECT DISTINCT g.flow FROM unnest(watched) AS w (id)
                JOIN dispatcherd.edges g ON g.before BETWEEN w.id AND w.id WHERE g.linked);
        END IF;
        mine := ARRAY (SELECT b.id FROM dispatcherd.batches b WHERE b.id = ANY (needed) ORDER BY b.id FOR NO KEY UPDATE SKIP LOCKED);
        missed := ARRAY (SELECT b.id FROM dispatcherd.batches b WHERE b.id = ANY (needed) AND b.id NOT IN (SELECT unnest(mine)));
        IF missed <> '{}' THEN
            busy := busy || missed;
            stuck := stuck || ARRAY (SELECT w.id FROM unnest(watched) AS w (id) WHERE w.id = ANY (missed)
                OR (SELECT g.before FROM dispatcherd.edges g WHERE g.before = w.id AND g.linked
                    AND g.flow = ANY (missed) LIMIT 1) IS NOT NULL);
            parents := ARRAY (SELECT unnest(parents) EXCEPT SELECT unnest(busy));
            watched := ARRAY (SELECT unnest(watched) EXCEPT SELECT unnest(stuck));
        END IF;
        -- From here on no other call counts these ends, because it would have to lock the same batches.
        WITH gone AS (
            DELETE FROM dispatcherd.ends e WHERE e.ctid = ANY (ARRAY (
                SELECT e.ctid FROM dispatcherd.ends e WHERE (again OR e.status <> 'waiting')
                    AND (e.parent IS NULL OR e.parent IN (SELECT unnest(parents)))
                    AND (e.watched IS NULL OR e.job_id IN (SELECT unnest(watched))) LIMIT most))
            RETURNING e.job_id, e.parent, e.status, e.watched
        ), per AS (
            SELECT g.parent, count(*) FILTER (WHERE g.status = 'done') AS done, count(*) FILTER (WHERE g.status = 'failed') AS failed,
                count(*) FILTER (WHERE g.status = 'cancelled') AS cancelled,
                coalesce('member ' || min(g.job_id) FILTER (WHERE g.status = 'failed') || ' failed',
                    'member ' || min(g.job_id) FILTER (WHERE g.status = 'cancelled') || ' was cancelled') AS reason
            FROM gone g WHERE g.parent IS NOT NULL AND g.status <> 'waiting' GROUP BY g.parent
        ), batch AS (
            SELECT array_agg(p.parent) AS ids, array_agg(p.done) AS done, array_agg(p.failed) AS failed,
                array_agg(p.cancelled) AS cancelled, array_agg(p.reason) AS reasons FROM per p
        )
        SELECT b.ids, b.done, b.failed, b.cancelled, b.reasons, g.n, g.ids, g.statuses, g.checks
            INTO changed, dones, fails, stops, reasons, n, ended, statuses, checks
            FROM batch b, (SELECT count(*) AS n, array_agg(g.job_id) FILTER (WHERE g.watched) AS ids,
                array_agg(g.status) FILTER (WHERE g.watched) AS statuses,
                array_agg(DISTINCT g.parent) FILTER (WHERE g.status = 'waiting') AS checks FROM gone g) g;
        settled := settled + n;
        UPDATE dispatcherd.batches b SET open = b.open - i.done - i.failed - i.cancelled, done = b.done + i.done,
            failed = b.failed + i.failed,
            cancelled = b.cancelled + i.cancelled, reason = coalesce(b.reason, i.reason)
            FROM unnest(changed, dones, fails, stops, reasons) AS i (id, done, failed, cancelled, reason)
                WHERE b.id BETWEEN i.id AND i.id;
        rest := ended IS NOT NULL AND dispatcherd.count_dependencies(ended, statuses, NULL);
        IF checks IS NOT NULL OR ended && mine THEN
            rest := dispatcherd.check_again(checks, ended) OR rest;
        END IF;
        complete := ARRAY (SELECT b.id FROM dispatcherd.batches b WHERE b.id = ANY (changed || checks) AND b.sealed_at IS NOT NULL
            AND b.open <= 0 AND b.ended_at IS NULL);
        IF complete <> '{}' THEN
            n := (SELECT count(*) FROM dispatcherd.jobs_waiting w WHERE w.id = ANY (complete));
            PERFORM dispatcherd.fire(complete);
            rest := rest OR (SELECT count(*) BETWEEN 1 AND n - 1 FROM dispatcherd.jobs_waiting w WHERE w.id = ANY (complete));
        END IF;
        again := rest OR again AND checks IS NULL; -- a portion may have contained no batch to be checked
        IF clock_timestamp() > until THEN
            more := true;
            EXIT;
        END IF;
    END LOOP;
    IF EXISTS (SELECT FROM dispatcherd.edges e WHERE NOT e.linked) THEN -- after the counts, so that few ends are uncounted
        more := dispatcherd.link_dependencies() OR more;
    END IF;
    blocked := busy <> '{}';
END $$;

-- settle and link_dependencies call it: counts the ends of jobs in the nodes that depend on them, and releases the nodes that have no open
-- dependency left. It returns what release_nodes returns. The caller has locked the flows. The end of jobs[i] counts in flow flows[i], or
-- for NULL in all linked ones.
CREATE FUNCTION dispatcherd.count_dependencies(jobs bigint[], statuses dispatcherd.status[], flows bigint[]) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    ready bigint[];
BEGIN
    WITH ended AS (
        SELECT a.id, count(*) AS n, count(*) FILTER (WHERE e.status = 'done') AS done,
            count(*) FILTER (WHERE e.status = 'failed') AS failed,
            count(*) FILTER (WHERE e.status = 'cancelled') AS cancelled,
            coalesce('dependency ' || min(e.id) FILTER (WHERE e.status = 'failed') || ' failed',
                'dependency ' || min(e.id) FILTER (WHERE e.status = 'cancelled') || ' was cancelled') AS reason
        FROM unnest(jobs, statuses, flows) AS e (id, status, flow)
        JOIN dispatcherd.edges g ON g.before BETWEEN e.id AND e.id AND g.linked AND (e.flow IS NULL OR g.flow = e.flow)
            CROSS JOIN unnest(g.after) AS a (id) GROUP BY a.id
    ), counted AS (
        UPDATE dispatcherd.nodes n SET open = n.open - e.n, done = n.done + e.done, failed = n.failed + e.failed,
            cancelled = n.cancelled + e.cancelled,
            reason = coalesce(n.reason, e.reason)
        FROM ended e WHERE n.id BETWEEN e.id AND e.id AND n.ready_at IS NULL RETURNING n.id, n.open
    )
    SELECT array_agg(id) INTO ready FROM counted WHERE open <= 0;
    RETURN ready IS NOT NULL AND dispatcherd.release_nodes(ready);
END $$;

-- settle calls it: links the edges (6_flows.sql) of jobs outside the flow. It marks those that are live as watched, and counts those that
-- have ended; one that was deleted counts as cancelled. It leaves out a job whose end is still in ends, because settle would count it a
-- second time, and locked rows and flows. It returns whether there is more to do at once.
CREATE FUNCTION dispatcherd.link_dependencies() RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = on AS $$
#variable_conflict use_variable
DECLARE
    most     constant int := 10000;
    flows    bigint[];
    jobs     bigint[];
    locked   bigint[]; -- live and watched now
    n        int;
    final    bigint[];
    statuses dispatcherd.status[];
    its      bigint[]; -- the flow of each of final
BEGIN
    flows := ARRAY (SELECT id FROM dispatcherd.batches WHERE id IN (SELECT e.flow FROM dispatcherd.edges e WHERE NOT e.linked) LIMIT 100
        FOR NO KEY UPDATE SKIP LOCKED);
    jobs := ARRAY (SELECT DISTINCT e.before FROM dispatcherd.edges e WHERE NOT e.linked AND e.flow = ANY (flows) LIMIT most);
    locked := ARRAY (SELECT id FROM dispatcherd.jobs_live WHERE id = ANY (jobs) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
        || ARRAY (SELECT id FROM dispatcherd.jobs_waiting WHERE id = ANY (jobs) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED);
    UPDATE dispatcherd.jobs_live SET watched = true WHERE id = ANY (locked) AND watched IS NULL;
    UPDATE dispatcherd.jobs_waiting SET watched = true WHERE id = ANY (locked) AND watched IS NULL;
    -- This snapshot shows the other jobs where they are now: ended, deleted, or live and locked; and each end that is not counted.
    WITH known AS MATERIALIZED (
        SELECT d.id, CASE WHEN l.id IS NULL THEN coalesce(j.status, 'cancelled') END AS final
        FROM unnest(jobs) AS d (id) LEFT JOIN unnest(locked) AS l (id) ON l.id = d.id
            LEFT JOIN dispatcherd.jobs j ON j.id BETWEEN d.id AND d.id
        LEFT JOIN (SELECT DISTINCT e.job_id FROM dispatcherd.ends e WHERE e.status <> 'waiting') u ON u.job_id = d.id
        WHERE (l.id IS NOT NULL OR j.id IS NULL OR j.status IN ('done', 'failed', 'cancelled')) AND u.job_id IS NULL
    ), linked AS (
        UPDATE dispatcherd.edges e SET linked = true FROM known k WHERE e.before BETWEEN k.id AND k.id AND e.flow = ANY (flows)
            AND NOT e.linked RETURNING k.id, k.final, e.flow
    )
    SELECT count(*), array_agg(l.id) FILTER (WHERE l.final IS NOT NULL), array_agg(l.final) FILTER (WHERE l.final IS NOT NULL),
        array_agg(l.flow) FILTER (WHERE l.final IS NOT NULL)
        INTO n, final, statuses, its FROM linked l;
    RETURN dispatcherd.count_dependencies(final, statuses, its) OR cardinality(jobs) = most AND n > 0;
END $$;

-- settle calls it for batches that must be checked again (checks), and for watched jobs that have ended (ended). It cancels the remaining
-- members of batches that are cancelled or whose job is being cancelled or has ended, and releases the nodes that are ready. It returns
-- whether there is more to do at once. The caller has locked the batches.
CREATE FUNCTION dispatcherd.check_again(checks bigint[], ended bigint[]) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    b     record;
    rest  boolean := false;
    ready bigint[];
BEGIN
    FOR b IN SELECT array_agg(x.id) AS ids, coalesce(x.cancelled_by, c.who, 'parent') AS who FROM dispatcherd.batches x
        LEFT JOIN LATERAL (SELECT o.target, o.who FROM dispatcherd.operations o WHERE o.kind = 'cancel' AND o.target = x.id
            ORDER BY o.id LIMIT 1) c ON true
        WHERE x.id = ANY (ended || checks) AND x.ended_at IS NULL
            AND (x.cancelled_by IS NOT NULL OR c.target IS NOT NULL OR x.id = ANY (ended)
            AND (SELECT j.id FROM dispatcherd.jobs_live j WHERE j.id = x.id) IS NULL
                AND (SELECT w.id FROM dispatcherd.jobs_waiting w WHERE w.id = x.id) IS NULL) GROUP BY 2
    LOOP
        rest := (SELECT more FROM dispatcherd.cancel_members(b.ids, b.who)) OR rest;
    END LOOP;
    ready := ARRAY (SELECT id FROM dispatcherd.nodes WHERE flow = ANY (checks) AND open <= 0 AND ready_at IS NULL);
    RETURN ready <> '{}' AND dispatcherd.release_nodes(ready) OR rest;
END $$;

-- Makes nodes whose dependencies have ended pending, or cancels them if their run_when does not apply: at most 500 of ids, with about 4 MB
-- of inputs. The flows of the others are checked again. It returns whether others can be released at once. The caller has locked the flows.
-- count_dependencies, check_again and retry_nodes call it.
CREATE FUNCTION dispatcherd.release_nodes(ids bigint[]) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    n         record;
    size      int := 0;
    taken     bigint[] := '{}';
    runs      boolean[] := '{}';
    reasons   text[] := '{}';
    additions jsonb[] := '{}';
    locked    bigint[];
BEGIN
    FOR n IN SELECT id, takes_results, dispatcherd.runs_when(run_when, failed + cancelled) AND NOT stopped AS run,
            CASE WHEN stopped THEN 'the flow was cancelled'
                ELSE coalesce(reason, 'no dependency failed') END AS reason, NULL::jsonb AS addition
        FROM dispatcherd.nodes CROSS JOIN LATERAL (SELECT b.cancelled_by IS NOT NULL AS stopped FROM dispatcherd.batches b
            WHERE b.id = flow) f
        WHERE id = ANY (ids) AND ready_at IS NULL LIMIT 500
    LOOP
        IF n.takes_results AND n.run THEN
            BEGIN
                n.addition := dispatcherd.inputs(n.id);
            EXCEPTION WHEN data_exception OR program_limit_exceeded OR internal_error THEN
                n.run := NULL;
                n.reason := 'the results of the dependencies cannot be passed on: ' || SQLERRM;
            END;
        END IF;
        taken := taken || n.id;
        runs := runs || n.run;
        reasons := reasons || n.reason;
        additions := additions || n.addition;
        size := size + coalesce(pg_column_size(n.addition), 0);
        EXIT WHEN size > 4000000;
    END LOOP;
    locked := dispatcherd.proceed(taken, runs, reasons, additions);
    UPDATE dispatcherd.nodes SET ready_at = clock_timestamp() WHERE id = ANY (taken) AND id <> ALL (locked);
    INSERT INTO dispatcherd.ends SELECT id, flow, 'waiting' FROM dispatcherd.nodes WHERE id = ANY (locked);
    INSERT INTO dispatcherd.ends SELECT DISTINCT flow, flow, 'waiting'::dispatcherd.status FROM dispatcherd.nodes WHERE id = ANY (ids)
        AND id <> ALL (taken) AND ready_at IS NULL;
    RETURN (FOUND OR locked <> '{}') AND cardinality(locked) < cardinality(taken);
END $$;

-- release_nodes calls it: returns the results of the dependencies of a node, in the form in which they are added to its payload.
CREATE FUNCTION dispatcherd.inputs(node bigint) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    size   bigint;
    answer jsonb;
BEGIN
    WITH dependency AS (
        SELECT d.id, coalesce(m.name, d.id::text) AS name, CASE WHEN m.id IS NULL THEN '-infinity' ELSE b.opened_at END AS since
        FROM dispatcherd.nodes n JOIN dispatcherd.batches b ON b.id = n.flow CROSS JOIN unnest(n.depends_on) AS d (id)
        LEFT JOIN dispatcherd.nodes m ON m.id = d.id AND m.flow = n.flow WHERE n.id = node
    ), read AS MATERIALIZED (
        SELECT d.name, r.status, r.result FROM dependency d LEFT JOIN LATERAL (
            SELECT j.status, j.result FROM dispatcherd.jobs j
            WHERE j.id = d.id AND j.status IN ('done', 'failed', 'cancelled') AND j.finished_at >= d.since LIMIT 1) r ON true
    ), sized AS MATERIALIZED (
        SELECT coalesce(sum(octet_length(result::text)), 0) AS size FROM read
    )
    SELECT s.size, CASE WHEN s.size <= 1000000 THEN (SELECT jsonb_strip_nulls(jsonb_build_object(
                'missing', jsonb_agg(name) FILTER (WHERE status IS NULL), 'unsuccessful',
                    jsonb_object_agg(name, status) FILTER (WHERE status <> 'done')))
            || jsonb_build_object('inputs', jsonb_object_agg(name, result)) FROM read) END
        INTO size, answer FROM sized s;
    IF answer IS NULL THEN
        RAISE program_limit_exceeded USING MESSAGE = format('they have %s bytes, at most 1000000 are possible', size);
    END IF;
    RETURN answer;
END $$;

-- Ends batches and flows all of whose members have ended. The callback becomes pending, or is cancelled if run_when does not apply. The
-- caller has locked them. settle, seal and retry_tree call it.
CREATE FUNCTION dispatcherd.fire(ids bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    locked bigint[];
BEGIN
    SELECT dispatcherd.proceed(array_agg(b.id), array_agg(b.cancelled_by IS NULL
        AND dispatcherd.runs_when(b.run_when, b.failed + b.cancelled)),
            array_agg(CASE WHEN b.cancelled_by IS NOT NULL THEN 'the batch was cancelled'
                ELSE coalesce(b.reason, 'no member failed') END),
            array_agg(jsonb_build_object('batch', jsonb_build_object('id', b.id, 'total', b.done + b.failed + b.cancelled, 'done', b.done,
                'failed', b.failed, 'cancelled', b.cancelled))))
        INTO locked FROM dispatcherd.batches b WHERE b.id = ANY (ids) AND b.callback;
    UPDATE dispatcherd.batches SET ended_at = clock_timestamp() WHERE id = ANY (ids) AND id <> ALL (coalesce(locked, '{}'));
    INSERT INTO dispatcherd.ends SELECT i, i, 'waiting' FROM unnest(locked) i;
END $$;

-- Decides about waiting jobs: job ids[i] becomes pending with additions[i] if runs[i] is true, and is cancelled with reasons[i] if it is
-- false. It fails with reasons[i] if runs[i] is NULL, and with an error if its payload cannot take the addition. It returns the jobs that
-- it has left waiting, because another transaction has locked them or they do not fit (see fitting); the callers check their batches and
-- flows again. fire and release_nodes call it.
CREATE FUNCTION dispatcherd.proceed(ids bigint[], runs boolean[], reasons text[], additions jsonb[]) RETURNS bigint[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    free  bigint[] := dispatcherd.fitting(ARRAY (SELECT id FROM dispatcherd.jobs_waiting WHERE id = ANY (ids) ORDER BY id
        FOR UPDATE SKIP LOCKED));
    run   bigint[];
    more  jsonb[];
    stop  bigint[];
    whys  text[];
    fail  bigint[];
    fails text[];
BEGIN
    SELECT array_agg(id) FILTER (WHERE go), array_agg(addition) FILTER (WHERE go), array_agg(id) FILTER (WHERE NOT go),
        array_agg(reason) FILTER (WHERE NOT go),
            array_agg(id) FILTER (WHERE go IS NULL), array_agg(reason) FILTER (WHERE go IS NULL)
        INTO run, more, stop, whys, fail, fails
        FROM unnest(ids, runs, reasons, additions) AS i (id, go, reason, addition) WHERE id IN (SELECT unnest(free));
    IF run IS NOT NULL THEN
        BEGIN
            PERFORM dispatcherd.release_waiting(run, more);
        EXCEPTION WHEN data_exception OR integrity_constraint_violation OR program_limit_exceeded OR internal_error THEN
            FOR i IN 1..cardinality(run) LOOP
                BEGIN
                    PERFORM dispatcherd.release_waiting(run[i:i], more[i:i]);
                EXCEPTION WHEN data_exception OR integrity_constraint_violation OR program_limit_exceeded OR internal_error THEN
                    fail := fail || run[i];
                    fails := fails || ('the job cannot be released: ' || SQLERRM);
                END;
            END LOOP;
        END;
    END IF;
    IF stop IS NOT NULL THEN
        PERFORM dispatcherd.end_idle(stop, 'cancelled', 'flow', whys);
    END IF;
    IF fail IS NOT NULL THEN
        PERFORM dispatcherd.end_idle(fail, 'failed', NULL, fails);
    END IF;
    RETURN ARRAY (SELECT id FROM dispatcherd.jobs_waiting WHERE id = ANY (ids) AND id <> ALL (free));
END $$;

-- proceed calls it: moves waiting jobs to jobs_live, merges additions[i] into the payload of job ids[i], and notifies dispatchers and the
-- controller of keys as notify_dispatchers does, which is no trigger of jobs_live.
CREATE FUNCTION dispatcherd.release_waiting(ids bigint[], additions jsonb[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    news  text;
    keyed boolean;
BEGIN
    WITH gone AS (
        DELETE FROM dispatcherd.jobs_waiting w USING unnest(ids, additions) AS i (id, addition)
        WHERE w.id BETWEEN i.id AND i.id RETURNING w.*, i.addition, greatest(w.run_at, clock_timestamp()) AS due
    ), live AS (
        INSERT INTO dispatcherd.jobs_live (id, run_at, first_run_at, created_at, attempt, timeout_ms, priority, max_attempts, type,
            payload, keys, expected_ms, parent, watched, errors)
        SELECT id, due, coalesce(first_run_at, due), created_at, attempt, timeout_ms, priority, max_attempts, type,
            CASE WHEN addition IS NULL THEN payload
                ELSE (CASE WHEN payload ? 'inputs' THEN payload - '{missing,unsuccessful}'::text[]
                    ELSE payload END || addition)::dispatcherd.payload END, keys, expected_ms, parent, watched, errors FROM gone
        RETURNING id, priority, run_at, type, keys, expected_ms
    )
    SELECT CASE WHEN count(*) = 0 THEN NULL WHEN count(*) = 1 AND bool_and(keys IS NULL AND run_at <= clock_timestamp()) THEN
            min(concat_ws(' ', id::bigint, concat_ws('/', priority::int, dispatcherd.duration_class(expected_ms)),
                (extract(epoch FROM run_at::timestamptz) * 1000000)::bigint, type::text)) ELSE '' END, bool_or(keys IS NOT NULL)
        INTO news, keyed FROM live;
    IF news IS NOT NULL AND EXISTS (SELECT FROM dispatcherd.dispatchers WHERE armed) AND dispatcherd.may_notify() THEN
        PERFORM pg_notify('dispatcherd', 'keys') WHERE keyed;
        PERFORM pg_notify('dispatcherd', concat_ws(' ', 'jobs', nullif(news, '')));
    END IF;
END $$;

-- Returns the first of jobs, by id, whose payloads have about 4 MB together. proceed and cancel_members move only these: a step that moves
-- more could reach the time limit of its statement, and would then be repeated for ever.
CREATE FUNCTION dispatcherd.fitting(jobs bigint[]) RETURNS bigint[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM (
        SELECT id, sum(size) OVER (ORDER BY id) - size AS earlier FROM (
            SELECT id, pg_column_size(payload) AS size FROM dispatcherd.jobs_live WHERE id = ANY (jobs)
            UNION ALL SELECT id, pg_column_size(payload) FROM dispatcherd.jobs_waiting WHERE id = ANY (jobs)
        ) sized
    ) summed WHERE earlier < 4000000 $$;

-- Whether a node or callback runs, of whose dependencies or members bad have failed or were cancelled. fire and release_nodes call it.
CREATE FUNCTION dispatcherd.runs_when(run_when text, bad int) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE run_when WHEN 'done' THEN bad OPERATOR(pg_catalog.=) 0 WHEN 'failed' THEN bad OPERATOR(pg_catalog.>) 0 ELSE true END
$$;

-- Ends those of jobs ids that are pending or waiting, as cancelled or failed (final), and returns their number. reasons[i] becomes the last
-- of the errors of job ids[i]; NULL = none. What Postgres cannot read of payload and errors is dropped. The CASE of the payload has the
-- type of the column: if it were jsonb, the INSERT would check the domain payload again. Dispatchers call it, as do cancel_tree,
-- cancel_members and proceed.
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
                INSERT INTO dispatcherd.ends SELECT id, parent, final, watched FROM gone WHERE parent IS NOT NULL OR watched
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

-- Seals batches, and ends those without open members. The caller has locked them FOR UPDATE, so each transaction that has inserted members
-- has ended. One statement counts the open members, because its snapshot shows each either as a live row or by the record of its end.
-- seal_batch and cancel_members call it.
CREATE FUNCTION dispatcherd.seal(ids bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    complete bigint[];
BEGIN
    WITH sealed AS (
        UPDATE dispatcherd.batches b SET sealed_at = clock_timestamp(), open = m.open
        FROM (SELECT i AS id, (SELECT count(*) FROM dispatcherd.jobs_live j WHERE j.parent = i)
                + (SELECT count(*) FROM dispatcherd.jobs_waiting w WHERE w.parent = i) + coalesce(e.n, 0) AS open
            FROM unnest(ids) i LEFT JOIN (SELECT parent, count(*) AS n FROM dispatcherd.ends WHERE parent = ANY (ids)
                AND status <> 'waiting' GROUP BY parent) e ON e.parent = i) m
        WHERE b.id = m.id AND b.sealed_at IS NULL RETURNING b.id, b.open
    )
    SELECT array_agg(id) INTO complete FROM sealed WHERE open = 0;
    IF complete IS NOT NULL THEN
        PERFORM dispatcherd.fire(complete);
    END IF;
END $$;

-- Cancels a job, batch or flow, and everything below it: of each level 10,000 jobs at once, and the others when dispatchers settle. It
-- returns how many jobs it has cancelled, and how many run and were asked to end. Dispatchers call it.
CREATE FUNCTION dispatcherd.cancel_tree(job bigint, by text DEFAULT NULL, OUT cancelled int, OUT running int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    who   text := coalesce(by, session_user);
    batch boolean;
    below record;
BEGIN
    PERFORM dispatcherd.require_read_committed('cancel_tree');
    PERFORM FROM dispatcherd.batches b WHERE b.id = job FOR NO KEY UPDATE;
    batch := FOUND;
    IF NOT batch AND NOT EXISTS (SELECT FROM dispatcherd.jobs j WHERE j.id = job) THEN
        RAISE no_data_found USING CONSTRAINT = 'job_exists', MESSAGE = format('no job, batch or flow %s', job);
    END IF;
    FOR round IN 1..10 LOOP -- another transaction may release or retry the job between two statements
        cancelled := dispatcherd.end_idle(ARRAY[job], 'cancelled', who, NULL);
        running := (SELECT count(*) FROM dispatcherd.jobs_live j WHERE j.id = job AND j.status = 'running');
        EXIT WHEN cancelled + running > 0 OR NOT EXISTS (SELECT FROM dispatcherd.jobs j WHERE j.id = job
            AND j.status IN ('waiting', 'pending'));
    END LOOP;
    INSERT INTO dispatcherd.operations (kind, target, who) SELECT 'cancel', job, who WHERE running > 0;
    IF batch THEN
        SELECT * INTO below FROM dispatcherd.cancel_members(ARRAY[job], who);
        cancelled := cancelled + below.cancelled;
        running := running + below.running;
    END IF;
    PERFORM dispatcherd.notify_ends();
END $$;

-- Cancels the members of batches, and the children of members that run, generation by generation. What depends on the other members is
-- cancelled when their ends are counted. It skips locked rows, and cancels at most 10,000 members of a generation; more says that it left
-- some. Batches with members that are left are checked again; the others are sealed. The caller has locked roots. cancel_tree and
-- check_again call it.
CREATE FUNCTION dispatcherd.cancel_members(roots bigint[], by text, OUT cancelled int, OUT running int, OUT more boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    most    constant int := 10000;
    parents bigint[] := roots;
    quiet   bigint[]; -- no other transaction inserts members
    idle    bigint[];
    runs    bigint[];
    untold  bigint[]; -- those of runs without a request to cancel
BEGIN
    cancelled := 0; running := 0; more := false;
    WHILE parents <> '{}' LOOP
        UPDATE dispatcherd.batches SET cancelled_by = coalesce(cancelled_by, by) WHERE id = ANY (parents) AND ended_at IS NULL;
        quiet := ARRAY (SELECT id FROM dispatcherd.batches WHERE id = ANY (parents) AND ended_at IS NULL ORDER BY id
            FOR UPDATE SKIP LOCKED);
        idle := ARRAY (SELECT id FROM dispatcherd.jobs_live WHERE parent = ANY (parents) AND status = 'pending' LIMIT most
            FOR UPDATE SKIP LOCKED);
        idle := idle || ARRAY (SELECT id FROM dispatcherd.jobs_waiting WHERE parent = ANY (parents) LIMIT most - cardinality(idle)
            FOR UPDATE SKIP LOCKED);
        untold := dispatcherd.fitting(idle);
        more := more OR cardinality(idle) = most OR cardinality(untold) < cardinality(idle);
        idle := untold;
        cancelled := cancelled + dispatcherd.end_idle(idle, 'cancelled', by, NULL);
        runs := ARRAY (SELECT id FROM dispatcherd.jobs_live WHERE parent = ANY (parents) AND status = 'running' ORDER BY id);
        running := running + cardinality(runs);
        untold := ARRAY (SELECT r FROM unnest(runs) r
            WHERE NOT EXISTS (SELECT FROM dispatcherd.operations c WHERE c.kind = 'cancel' AND c.target = r));
        INSERT INTO dispatcherd.operations (kind, target, who) SELECT 'cancel', unnest(untold), by;
        INSERT INTO dispatcherd.ends SELECT p, p, 'waiting' FROM unnest(parents) p
            WHERE p <> ALL (quiet) OR (SELECT j.id FROM dispatcherd.jobs_live j WHERE j.parent = p
                AND j.status = 'pending' LIMIT 1) IS NOT NULL
                OR (SELECT w.id FROM dispatcherd.jobs_waiting w WHERE w.parent = p LIMIT 1) IS NOT NULL
                -- also one that was claimed meanwhile
                OR EXISTS (SELECT FROM dispatcherd.jobs_live j WHERE j.parent = p AND j.status = 'running'
                    AND NOT EXISTS (SELECT FROM dispatcherd.operations c WHERE c.kind = 'cancel' AND c.target = j.id));
        PERFORM dispatcherd.seal(quiet);
        parents := ARRAY (SELECT id FROM dispatcherd.batches WHERE id = ANY (runs) AND ended_at IS NULL ORDER BY id
            FOR NO KEY UPDATE SKIP LOCKED);
        INSERT INTO dispatcherd.ends SELECT id, id, 'waiting' FROM dispatcherd.batches WHERE id = ANY (runs) AND ended_at IS NULL
            AND id <> ALL (parents);
    END LOOP;
END $$;

-- Makes failed and cancelled jobs pending again, and returns how many. Dispatchers and retry_tree call it. The rows are locked in the order
-- of their ids.
-- - Requests to cancel are removed, because one that arrived while the job ended would cancel it again. The attempt is kept, because it
--   only grows, and errors are kept as evidence.
-- - A job counts again in its batch if that has not ended; otherwise it has no parent any more. It also counts again for nodes that still
--   wait for other jobs.
-- - Of several jobs with one unique key the newest is retried, unless a live job has the key.
-- - A job that must wait for other jobs (must_wait) is not retried: retry_tree makes it wait again.
-- - A run of a schedule counts as open again. Unless the schedule has overlap = allow_all, it is not retried beside another run that has
--   not ended, and of several runs the newest is retried. The lock of the schedule orders this and its ticks.
CREATE FUNCTION dispatcherd.retry_jobs(ids bigint[]) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    n        int;
    jobs     bigint[] := ARRAY (SELECT j.id FROM dispatcherd.jobs j WHERE j.id = ANY (ids) AND j.status IN ('failed', 'cancelled')
        AND (j.parent IS NOT NULL OR j.watched OR dispatcherd.has_dependants(j.id)));
    newest   bigint[];
    parents  bigint[];
    statuses dispatcherd.status[];
BEGIN
    IF jobs <> '{}' THEN
        PERFORM dispatcherd.lock_batches(jobs);
    END IF;
    PERFORM FROM dispatcherd.schedules s WHERE s.id IN (SELECT t.schedule_id FROM dispatcherd.ticks t WHERE t.job_id = ANY (ids))
        ORDER BY s.id FOR NO KEY UPDATE;
    PERFORM FROM dispatcherd.jobs j WHERE j.id = ANY (ids) AND j.status IN ('failed', 'cancelled') ORDER BY j.id FOR UPDATE;
    newest := ARRAY (SELECT max(j.id) FROM dispatcherd.jobs j LEFT JOIN LATERAL (
            SELECT s.id FROM dispatcherd.ticks t JOIN dispatcherd.schedules s ON s.id = t.schedule_id
            WHERE t.job_id = j.id AND s.overlap <> 'allow_all' LIMIT 1) s ON true
        WHERE j.id = ANY (ids) AND j.status IN ('failed', 'cancelled') AND NOT dispatcherd.must_wait(j.id, j.attempt)
            AND NOT EXISTS (SELECT FROM dispatcherd.schedule_runs r WHERE r.schedule_id = s.id
                AND (SELECT l.id FROM dispatcherd.jobs_live l WHERE l.id = r.job_id) IS NOT NULL)
        GROUP BY j.unique_key, s.id, CASE WHEN j.unique_key IS NULL AND s.id IS NULL THEN j.id END);
    WITH gone AS (
        DELETE FROM dispatcherd.jobs j WHERE j.id = ANY (newest) AND j.status IN ('failed', 'cancelled')
            AND (j.unique_key IS NULL OR (SELECT l.id FROM dispatcherd.jobs_live l WHERE l.unique_key = j.unique_key) IS NULL) RETURNING *
    ), settled AS (
        DELETE FROM dispatcherd.operations WHERE kind = 'cancel' AND target = ANY (ARRAY (SELECT id FROM gone))
    ), pending AS (
        INSERT INTO dispatcherd.jobs (id, first_run_at, created_at, attempt, timeout_ms, priority, max_attempts, type, payload, keys,
            expected_ms, parent, unique_key, watched, errors)
        SELECT id, coalesce(first_run_at, run_at), created_at, attempt, timeout_ms, priority, max_attempts, type, payload, keys,
            expected_ms,
            CASE WHEN dispatcherd.counts(parent) THEN parent END, unique_key, CASE WHEN dispatcherd.has_dependants(id) THEN true
                ELSE watched END, errors FROM gone
    ), run AS (
        INSERT INTO dispatcherd.schedule_runs SELECT t.schedule_id, t.job_id FROM dispatcherd.ticks t
            WHERE t.job_id = ANY (ARRAY (SELECT id FROM gone)) ON CONFLICT DO NOTHING
    )
    SELECT count(*), array_agg(g.id), array_agg(g.parent), array_agg(g.status) INTO n, jobs, parents, statuses FROM gone g;
    IF n > 0 THEN
        PERFORM dispatcherd.count_retries(jobs, parents, statuses);
    END IF;
    RETURN n;
END $$;

-- Retries the failed and cancelled jobs below a batch or flow, and its callback. Nodes wait again for the dependencies that run
-- again. It returns how many jobs it has retried. Dispatchers call it.
CREATE FUNCTION dispatcherd.retry_tree(job bigint) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = on AS $$
DECLARE
    b         dispatcherd.batches;
    bad       bigint[]; -- failed and cancelled members or nodes
    uncounted boolean;
    callback  bigint[];
    n         int;
BEGIN
    PERFORM dispatcherd.require_read_committed('retry_tree');
    SELECT * INTO b FROM dispatcherd.batches WHERE id = job;
    IF NOT FOUND OR b.kind = 'children' THEN
        IF NOT EXISTS (SELECT FROM dispatcherd.jobs j WHERE j.id = job) THEN
            RAISE no_data_found USING CONSTRAINT = 'job_exists', MESSAGE = format('no job, batch or flow %s', job);
        END IF;
        RETURN dispatcherd.retry_jobs(ARRAY[job]);
    END IF;
    IF b.kind = 'flow' THEN
        bad := ARRAY (SELECT j.id FROM dispatcherd.nodes d JOIN dispatcherd.jobs j ON j.id BETWEEN d.id AND d.id
            AND j.status IN ('failed', 'cancelled') WHERE d.flow = job);
    ELSE
        bad := ARRAY (SELECT j.id FROM dispatcherd.jobs j WHERE j.parent = job AND j.status IN ('failed', 'cancelled')
            AND j.finished_at >= b.opened_at);
    END IF;
    PERFORM dispatcherd.lock_batches(bad || job);
    FOR round IN 1..100 LOOP
        uncounted := EXISTS (SELECT FROM dispatcherd.ends e WHERE e.status <> 'waiting' AND (e.parent = job OR e.job_id = job));
        EXIT WHEN NOT uncounted;
        PERFORM dispatcherd.settle(10000);
    END LOOP;
    IF uncounted THEN
        RAISE lock_not_available USING CONSTRAINT = 'ends_are_counted',
            MESSAGE = format('the ends of the jobs of %s %s are being counted; try again', b.kind, job);
    ELSIF EXISTS (SELECT FROM dispatcherd.jobs_live j WHERE j.id = job) THEN
        RAISE object_not_in_prerequisite_state USING CONSTRAINT = 'callback_has_ended',
            MESSAGE = format('the callback of %s %s is pending or running: retry after its end, or cancel it', b.kind, job);
    END IF;
    callback := ARRAY (SELECT j.id FROM dispatcherd.jobs j WHERE j.id = job AND j.status IN ('failed', 'cancelled'));
    IF bad || callback = '{}' THEN
        RETURN 0;
    END IF;
    UPDATE dispatcherd.batches SET ended_at = NULL, cancelled_by = NULL WHERE id = job;
    PERFORM dispatcherd.count_retries(ARRAY[j.id::bigint], ARRAY[j.parent], ARRAY[j.status]) FROM dispatcherd.jobs j
        WHERE j.id = ANY (callback);
    PERFORM dispatcherd.wait_again(callback);
    n := CASE b.kind WHEN 'flow' THEN dispatcherd.retry_nodes(job, bad) ELSE dispatcherd.retry_jobs(bad) END;
    PERFORM dispatcherd.fire(ARRAY[job]) WHERE EXISTS (SELECT FROM dispatcherd.batches WHERE id = job AND open <= 0);
    PERFORM dispatcherd.notify_ends();
    RETURN n + cardinality(callback);
END $$;

-- retry_tree calls it: retries those of nodes bad of a flow that have failed or were cancelled, and returns how many. The caller has locked
-- the flow, and the flows that depend on the nodes. Nodes that were retried alone after the end of the flow belong to it again, so the
-- counters of the flow are counted from the rows; a job that was deleted counts as done.
CREATE FUNCTION dispatcherd.retry_nodes(flow bigint, bad bigint[]) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = on AS $$
#variable_conflict use_variable
DECLARE
    again    bigint[];
    statuses dispatcherd.status[];
    ready    bigint[];
BEGIN
    SELECT coalesce(array_agg(j.id), '{}'), coalesce(array_agg(j.status), '{}') INTO again, statuses
        FROM unnest(bad) AS i (id) JOIN dispatcherd.jobs j ON j.id BETWEEN i.id AND i.id AND j.status IN ('failed', 'cancelled');
    PERFORM dispatcherd.wait_again(again, flow);
    PERFORM dispatcherd.count_retries(again, NULL, statuses);
    UPDATE dispatcherd.jobs_live j SET parent = flow FROM dispatcherd.nodes d WHERE d.flow = flow AND j.id BETWEEN d.id AND d.id
        AND j.parent IS NULL;
    UPDATE dispatcherd.batches b SET open = r.open, failed = r.failed, cancelled = r.cancelled,
        done = r.nodes - r.open - r.failed - r.cancelled,
        reason = CASE WHEN r.failed + r.cancelled > 0 THEN b.reason END
        FROM (SELECT count(*) AS nodes, count(*) FILTER (WHERE j.status IN ('waiting', 'pending', 'running')) + coalesce(min(e.n),
            0) AS open,
                count(*) FILTER (WHERE j.status = 'failed') - coalesce(min(e.failed), 0) AS failed,
                    count(*) FILTER (WHERE j.status = 'cancelled') - coalesce(min(e.cancelled), 0) AS cancelled
            FROM dispatcherd.nodes d LEFT JOIN dispatcherd.jobs j ON j.id BETWEEN d.id AND d.id CROSS JOIN (
                SELECT count(*) AS n, count(*) FILTER (WHERE x.status = 'failed') AS failed,
                    count(*) FILTER (WHERE x.status = 'cancelled') AS cancelled
                FROM dispatcherd.ends x WHERE x.parent = flow AND x.status <> 'waiting') e
            WHERE d.flow = flow) r
        WHERE b.id = flow;
    UPDATE dispatcherd.nodes d SET ready_at = NULL, reason = x.reason, open = x.open, failed = x.failed, cancelled = x.cancelled,
        done = cardinality(d.depends_on) - x.open - x.failed - x.cancelled
        FROM (SELECT i.id, coalesce(sum(c.open), 0) AS open, coalesce(sum(c.failed), 0) AS failed,
            coalesce(sum(c.cancelled), 0) AS cancelled,
                min('dependency ' || c.id || CASE WHEN c.failed > 0 THEN ' failed'
                    ELSE ' was cancelled' END) FILTER (WHERE c.failed + c.cancelled > 0) AS reason
            FROM unnest(again) AS i (id) JOIN dispatcherd.nodes n ON n.id BETWEEN i.id AND i.id
                LEFT JOIN LATERAL unnest(n.depends_on) AS a (id) ON true
            LEFT JOIN (SELECT * FROM dispatcherd.dependencies(flow)) c ON c.id = a.id GROUP BY i.id) x
        WHERE d.id BETWEEN x.id AND x.id;
    ready := ARRAY (SELECT d.id FROM dispatcherd.nodes d WHERE d.flow = flow AND d.ready_at IS NULL AND d.open <= 0);
    PERFORM dispatcherd.release_nodes(ready) WHERE ready <> '{}';
    RETURN cardinality(again);
END $$;

-- Locks the batches and flows that retries of jobs change: those that count the ends of the jobs, now or after a link, and those whose
-- callbacks or parents the jobs are. retry_jobs and retry_tree call it.
CREATE FUNCTION dispatcherd.lock_batches(jobs bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    PERFORM FROM dispatcherd.batches b WHERE b.id IN (
        SELECT unnest(jobs) UNION SELECT j.parent FROM dispatcherd.jobs j WHERE j.id = ANY (jobs)
        UNION SELECT g.flow FROM dispatcherd.edges g WHERE g.before = ANY (jobs)) ORDER BY b.id FOR NO KEY UPDATE;
END $$;

-- Undoes the count of ends: job jobs[i] with parent parents[i] and status statuses[i] is open again. The caller has locked the batches.
-- retry_jobs, retry_tree and retry_nodes call it.
CREATE FUNCTION dispatcherd.count_retries(jobs bigint[], parents bigint[], statuses dispatcherd.status[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    UPDATE dispatcherd.batches b SET open = b.open + i.n, failed = b.failed - i.failed, cancelled = b.cancelled - (i.n - i.failed),
        reason = CASE WHEN b.failed + b.cancelled > i.n THEN b.reason END
        FROM (SELECT p AS id, count(*) AS n, count(*) FILTER (WHERE s = 'failed') AS failed FROM unnest(parents, statuses) AS e (p, s)
            GROUP BY p) i
        WHERE b.id BETWEEN i.id AND i.id AND b.ended_at IS NULL AND b.cancelled_by IS NULL;
    UPDATE dispatcherd.nodes d SET open = d.open + i.n, failed = d.failed - i.failed, cancelled = d.cancelled - (i.n - i.failed),
        reason = CASE WHEN d.failed + d.cancelled > i.n THEN d.reason END
        FROM (SELECT a.id, count(*) AS n, count(*) FILTER (WHERE e.status = 'failed') AS failed
            FROM unnest(jobs, statuses) AS e (id, status)
            JOIN dispatcherd.edges g ON g.before BETWEEN e.id AND e.id AND g.linked CROSS JOIN unnest(g.after) AS a (id) GROUP BY a.id) i
        WHERE d.id BETWEEN i.id AND i.id AND d.ready_at IS NULL;
END $$;

-- Makes ended jobs wait again, as members of batch. For NULL they keep a parent that has not ended. retry_tree and retry_nodes call it.
CREATE FUNCTION dispatcherd.wait_again(ids bigint[], batch bigint DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    WITH gone AS (
        DELETE FROM dispatcherd.jobs j WHERE j.id = ANY (ids) AND j.status IN ('failed', 'cancelled') RETURNING *
    ), settled AS (
        DELETE FROM dispatcherd.operations WHERE kind = 'cancel' AND target = ANY (ids)
    )
    INSERT INTO dispatcherd.jobs_waiting (id, status, first_run_at, created_at, attempt, timeout_ms, priority, max_attempts, type,
        payload, keys, expected_ms, parent, watched, errors)
    SELECT id, 'waiting', coalesce(first_run_at, run_at), created_at, attempt, timeout_ms, priority, max_attempts, type, payload, keys,
        expected_ms,
        coalesce(batch, CASE WHEN dispatcherd.counts(parent) THEN parent END), CASE WHEN dispatcherd.has_dependants(id) THEN true
            ELSE watched END, errors FROM gone;
END $$;

-- Whether nodes depend on a job. retry_jobs and wait_again call it. It and must_wait have no SET, so that they are inlined.
CREATE FUNCTION dispatcherd.has_dependants(job bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM dispatcherd.edges g WHERE g.before OPERATOR(pg_catalog.=) job)
$$;

-- Whether a job that has ended must wait for other jobs before it runs again: it is a node with dependencies or a callback, and was
-- never released, or was made to wait again. retry_jobs calls it.
CREATE FUNCTION dispatcherd.must_wait(job bigint, attempt int) RETURNS boolean
LANGUAGE sql STABLE AS $$
SELECT EXISTS (SELECT FROM dispatcherd.nodes n WHERE n.id OPERATOR(pg_catalog.=) job AND n.depends_on OPERATOR(pg_catalog.<>) '{}'
    AND (attempt OPERATOR(pg_catalog.=) 0 OR n.ready_at IS NULL))
        OR EXISTS (SELECT FROM dispatcherd.batches b WHERE b.id OPERATOR(pg_catalog.=) job AND b.callback
            AND (attempt OPERATOR(pg_catalog.=) 0 OR b.ended_at IS NULL)) $$;

-- Whether a batch still counts the end of a retried member: it has not ended and is not cancelled. retry_jobs and wait_again call it.
CREATE FUNCTION dispatcherd.counts(batch bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM dispatcherd.batches b WHERE b.id = batch AND b.ended_at IS NULL AND b.cancelled_by IS NULL)
$$;

-- Counts from the rows what each dependency of a flow adds to the counters of its nodes: 1 if it is open, failed or cancelled. An end that
-- is in the table ends, and so not yet counted, adds 1 to open and -1 to its status; its count will add that. So a dependency that is live
-- again while its former end is not counted is open twice. retry_nodes and repair_batch call it.
CREATE FUNCTION dispatcherd.dependencies(flow bigint) RETURNS TABLE(id bigint, open int, failed int, cancelled int)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = on AS $$
    SELECT a.id, CASE WHEN g.linked THEN coalesce(j.status IN ('waiting', 'pending', 'running'), false)::int + coalesce(e.n, 0)
        ELSE 1 END,
        CASE WHEN g.linked THEN coalesce(j.status = 'failed', false)::int - coalesce(e.failed, 0) ELSE 0 END,
        CASE WHEN g.linked THEN coalesce(j.status = 'cancelled', false)::int - coalesce(e.cancelled, 0) ELSE 0 END
    FROM (SELECT DISTINCT x.id FROM dispatcherd.nodes d CROSS JOIN unnest(d.depends_on) AS x (id) WHERE d.flow = dependencies.flow) a
    JOIN dispatcherd.edges g ON g.before BETWEEN a.id AND a.id AND g.flow = dependencies.flow
    LEFT JOIN dispatcherd.jobs j ON j.id BETWEEN a.id AND a.id
    LEFT JOIN (SELECT r.job_id, count(*)::int AS n, (count(*) FILTER (WHERE r.status = 'failed'))::int AS failed,
        (count(*) FILTER (WHERE r.status = 'cancelled'))::int AS cancelled
        FROM dispatcherd.ends r WHERE r.status <> 'waiting' AND r.watched GROUP BY r.job_id) e ON e.job_id = a.id $$;

-- Repairs the counters of a batch or flow that has not ended, or of all of them for NULL, and returns how many were wrong. It skips
-- those that other transactions have locked. Dispatchers call it.
CREATE FUNCTION dispatcherd.repair_flows(job bigint DEFAULT NULL) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    b     record;
    total int := 0;
BEGIN
    PERFORM dispatcherd.require_read_committed('repair_flows');
    IF job IS NOT NULL AND NOT EXISTS (SELECT FROM dispatcherd.batches WHERE id = job) THEN
        RAISE no_data_found USING CONSTRAINT = 'batch_exists', MESSAGE = format('no batch or flow %s', job);
    END IF;
    FOR b IN SELECT id FROM dispatcherd.batches WHERE ended_at IS NULL AND sealed_at IS NOT NULL AND (job IS NULL OR id = job) ORDER BY id
        FOR NO KEY UPDATE SKIP LOCKED LOOP
        total := total + dispatcherd.repair_batch(b.id);
    END LOOP;
    PERFORM dispatcherd.notify_ends() WHERE total > 0;
    RETURN total;
END $$;

-- Repairs the counters of one batch or flow, the first with an id above previous that is sealed, has not ended and is not locked. It
-- returns its id as next, or NULL if there is none. Dispatchers call it twice a day for all of them.
CREATE FUNCTION dispatcherd.repair_next(previous bigint, OUT next bigint, OUT wrong int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    next := (SELECT id FROM dispatcherd.batches WHERE ended_at IS NULL AND sealed_at IS NOT NULL AND id > previous ORDER BY id LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED);
    wrong := CASE WHEN next IS NULL THEN 0 ELSE dispatcherd.repair_batch(next) END;
END $$;

-- Counts the open members and dependencies of a batch or flow from the rows, corrects its counters, and returns how many were wrong. What
-- was deleted without an end counts as cancelled. The caller has locked the batch. repair_flows and repair_next call it.
CREATE FUNCTION dispatcherd.repair_batch(batch bigint) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = on AS $$
#variable_conflict use_variable
DECLARE
    nodes bigint[];
    now   int;
    wrong boolean;
BEGIN
    WITH dependency AS MATERIALIZED (
        SELECT s.id, s.open FROM dispatcherd.dependencies(batch) s
    ), counted AS (
        SELECT d.id, coalesce(sum(s.open), 0) AS open FROM dispatcherd.nodes d LEFT JOIN LATERAL unnest(d.depends_on) AS a (id) ON true
            LEFT JOIN dependency s ON s.id = a.id
        WHERE d.flow = batch AND d.ready_at IS NULL GROUP BY d.id
    ), changed AS (
        UPDATE dispatcherd.nodes d SET open = c.open, cancelled = greatest(cardinality(d.depends_on) - c.open - d.done - d.failed, 0),
            reason = coalesce(d.reason, CASE WHEN c.open < d.open THEN 'a dependency was deleted' END)
        FROM counted c WHERE d.id = c.id AND d.open <> c.open RETURNING d.id
    )
    SELECT coalesce(array_agg(c.id), '{}') INTO nodes FROM changed c;
    now := (SELECT count(*) FROM dispatcherd.jobs_live j WHERE j.parent = batch) + (SELECT count(*) FROM dispatcherd.jobs_waiting w
        WHERE w.parent = batch)
        + (SELECT count(*) FROM dispatcherd.ends e WHERE e.parent = batch AND e.status <> 'waiting');
    UPDATE dispatcherd.batches b SET open = now, cancelled = b.cancelled + greatest(b.open - now, 0),
        reason = coalesce(b.reason, CASE WHEN now < b.open THEN 'a member was deleted' END) WHERE b.id = batch AND b.open <> now;
    wrong := FOUND;
    INSERT INTO dispatcherd.ends SELECT batch, batch, 'waiting' WHERE nodes <> '{}' OR now = 0;
    RETURN cardinality(nodes) + wrong::int;
END $$;

-- Deletes batches and flows that ended more than keep ago, and expired unique keys, in portions: up to 100 of them, and flows until
-- they have 10,000 nodes. more says that there is more to delete. Dispatchers call it.
CREATE FUNCTION dispatcherd.expire_flows(keep interval, OUT more boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    found int;
    old   bigint[];
    keys  text[] := ARRAY (SELECT key FROM dispatcherd.uniques WHERE until < now() ORDER BY until LIMIT 10000 FOR UPDATE SKIP LOCKED);
BEGIN
    WITH oldest AS MATERIALIZED (
        SELECT id, ended_at, CASE kind WHEN 'flow' THEN done + failed + cancelled ELSE 0 END AS nodes FROM dispatcherd.batches
        WHERE ended_at < now() - keep ORDER BY ended_at LIMIT 100 FOR UPDATE SKIP LOCKED
    )
    SELECT count(*), coalesce(array_agg(o.id) FILTER (WHERE o.before < 10000), '{}') INTO found, old
        FROM (SELECT id, sum(nodes) OVER (ORDER BY ended_at, id) - nodes AS before FROM oldest) o;
    DELETE FROM dispatcherd.edges g USING (SELECT DISTINCT d.flow, a.id FROM dispatcherd.nodes d CROSS JOIN unnest(d.depends_on) AS a (id)
        WHERE d.flow = ANY (old)) e
        WHERE g.before BETWEEN e.id AND e.id AND g.flow = e.flow;
    DELETE FROM dispatcherd.nodes WHERE flow = ANY (old);
    DELETE FROM dispatcherd.batches WHERE id = ANY (old);
    DELETE FROM dispatcherd.uniques WHERE key = ANY (keys);
    more := found = 100 OR found > cardinality(old) OR cardinality(keys) = 10000;
END $$;
