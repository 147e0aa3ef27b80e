-- Jobs that depend on other jobs: batches, flows, children. docs/storage.md gives the reasons. Migration 38 adds the functions of
-- users, migration 39 creates the indexes, and migration 40 gives the rights.

-- +goose Up

ALTER TABLE dispatcherd.jobs ADD COLUMN parent bigint, ADD COLUMN unique_key text, ADD COLUMN watched boolean;
ALTER TABLE dispatcherd.jobs ALTER COLUMN unique_key SET STORAGE PLAIN; -- never in the TOAST table
COMMENT ON COLUMN dispatcherd.jobs.parent IS 'The batch, flow or job that the job belongs to. Producers name an open batch.';
COMMENT ON COLUMN dispatcherd.jobs.unique_key IS 'At most one pending or running job has it.';
COMMENT ON COLUMN dispatcherd.jobs.watched IS 'Other rows depend on the end of the job.';

-- Jobs that wait for other jobs. They are in no lane.
CREATE TABLE dispatcherd.jobs_waiting PARTITION OF dispatcherd.jobs (
    CONSTRAINT waiting_has_no_dispatcher CHECK (dispatcher IS NULL),
    CONSTRAINT waiting_has_no_unique_key CHECK (unique_key IS NULL),
    CONSTRAINT keys_are_1_to_4_words CHECK (keys IS NULL OR dispatcherd.reject_keys(keys))
) FOR VALUES IN ('waiting') WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
ALTER TABLE dispatcherd.jobs_waiting ADD CONSTRAINT jobs_waiting_id PRIMARY KEY (id);
CREATE INDEX jobs_waiting_parent ON dispatcherd.jobs_waiting (parent, (id + 0)) WHERE parent IS NOT NULL;

ALTER TABLE dispatcherd.jobs_live
    ADD CONSTRAINT unique_key_is_1_to_512_bytes CHECK (unique_key IS NULL OR octet_length(unique_key) BETWEEN 1 AND 512) NOT VALID;

CREATE TABLE dispatcherd.batches (
    id           bigint      PRIMARY KEY,
    kind         text        NOT NULL CONSTRAINT kind_is_batch_flow_or_children CHECK (kind IN ('batch', 'flow', 'children')),
    name         text        CONSTRAINT name_is_1_to_128_bytes CHECK (octet_length(name) BETWEEN 1 AND 128),
    callback     boolean     NOT NULL DEFAULT false,
    run_when     text        NOT NULL DEFAULT 'done' CONSTRAINT run_when_is_done_ended_or_failed CHECK (run_when IN ('done', 'ended', 'failed')),
    opened_at    timestamptz NOT NULL DEFAULT now(),
    sealed_at    timestamptz,
    ended_at     timestamptz,
    open         int,
    done         int         NOT NULL DEFAULT 0,
    failed       int         NOT NULL DEFAULT 0,
    cancelled    int         NOT NULL DEFAULT 0,
    reason       text,
    cancelled_by text
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE dispatcherd.batches IS 'Batches, flows, and jobs with children. A transaction that changes a row, or a node of the flow, first locks the row.';
COMMENT ON COLUMN dispatcherd.batches.callback IS 'A job with this id waits for the end of the members.';
COMMENT ON COLUMN dispatcherd.batches.sealed_at IS 'From here on there are no further members.';
COMMENT ON COLUMN dispatcherd.batches.ended_at IS 'All members have ended, and the callback was released or cancelled.';
COMMENT ON COLUMN dispatcherd.batches.open IS 'Members that have not ended; NULL = not sealed.';
COMMENT ON COLUMN dispatcherd.batches.reason IS 'The first member that failed or was cancelled.';
COMMENT ON COLUMN dispatcherd.batches.cancelled_by IS 'As jobs.cancelled_by, or parent: the job has ended. Its members are being cancelled.';

CREATE TABLE dispatcherd.nodes (
    id            bigint  PRIMARY KEY,
    flow          bigint  NOT NULL,
    place         int     NOT NULL,
    name          text    NOT NULL,
    depends_on    bigint[] NOT NULL DEFAULT '{}',
    run_when      text    NOT NULL DEFAULT 'done',
    takes_results boolean NOT NULL DEFAULT false,
    open          int     NOT NULL DEFAULT 0,
    done          int     NOT NULL DEFAULT 0,
    failed        int     NOT NULL DEFAULT 0,
    cancelled     int     NOT NULL DEFAULT 0,
    reason        text,
    ready_at      timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX nodes_place ON dispatcherd.nodes (flow, place);
COMMENT ON TABLE dispatcherd.nodes IS 'The jobs of flows. The row of the flow in batches is the lock of its nodes.';
COMMENT ON COLUMN dispatcherd.nodes.place IS 'In the document of the flow, from 1.';
COMMENT ON COLUMN dispatcherd.nodes.open IS 'Dependencies that have not ended.';
COMMENT ON COLUMN dispatcherd.nodes.reason IS 'The first dependency that failed or was cancelled.';
COMMENT ON COLUMN dispatcherd.nodes.ready_at IS 'All dependencies have ended, and the job was released or cancelled.';

-- The nodes of a flow that depend on a job. A job outside the flow is linked when it is watched, or its end is counted. That
-- is the work of dispatchers, because users must not lock rows of other jobs.
CREATE TABLE dispatcherd.edges (
    before bigint   NOT NULL,
    flow   bigint   NOT NULL,
    after  bigint[] NOT NULL,
    linked boolean  NOT NULL,
    PRIMARY KEY (before, flow)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX edges_unlinked ON dispatcherd.edges (flow, before) WHERE NOT linked;

CREATE TABLE dispatcherd.uniques (
    key    text        PRIMARY KEY,
    job_id bigint      NOT NULL,
    until  timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX uniques_until ON dispatcherd.uniques (until);
COMMENT ON TABLE dispatcherd.uniques IS 'Unique keys that stay taken until an instant, also after their jobs have ended.';
CREATE INDEX batches_ended ON dispatcherd.batches (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX batches_unsealed ON dispatcherd.batches (opened_at) WHERE sealed_at IS NULL; -- for the metric of batches that are never sealed

-- One row for each end of a job that has a parent or is watched, in the transaction of the end. The status waiting means
-- that the batch must be checked again. Without an index an insertion costs 1 µs.
CREATE TABLE dispatcherd.ends (
    job_id  bigint             NOT NULL,
    parent  bigint,
    status  dispatcherd.status NOT NULL,
    watched boolean
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
COMMENT ON TABLE dispatcherd.ends IS 'Ends that are not counted yet. Dispatchers count and delete them at once.';

-- A job is inserted into an open batch only. The lock makes the seal of the batch wait until the transaction has ended.
-- Only retried and released jobs, and children, have first_run_at. A flow that is not sealed is inserted by this transaction.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.check_parent() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    b record;
BEGIN
    SELECT sealed_at, cancelled_by INTO b FROM dispatcherd.batches WHERE id = NEW.parent AND (kind = 'batch' OR kind = 'flow' AND sealed_at IS NULL) FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE foreign_key_violation USING CONSTRAINT = 'parent_is_a_batch', TABLE = 'jobs', SCHEMA = 'dispatcherd', COLUMN = 'parent',
            MESSAGE = format('parent %s is no batch', NEW.parent), HINT = 'Use the id that open_batch returned.';
    END IF;
    IF b.sealed_at IS NOT NULL OR b.cancelled_by IS NOT NULL THEN
        RAISE check_violation USING CONSTRAINT = 'batch_is_open', TABLE = 'jobs', SCHEMA = 'dispatcherd', COLUMN = 'parent',
            MESSAGE = format('batch %s is %s', NEW.parent, CASE WHEN b.cancelled_by IS NULL THEN 'sealed' ELSE 'cancelled' END),
            HINT = CASE WHEN b.cancelled_by IS NULL THEN 'Insert all members before seal_batch.' ELSE 'Open another batch.' END;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER check_parent AFTER INSERT ON dispatcherd.jobs_live FOR EACH ROW
    WHEN (NEW.parent IS NOT NULL AND NEW.first_run_at IS NULL) EXECUTE FUNCTION dispatcherd.check_parent();
CREATE TRIGGER check_parent AFTER INSERT ON dispatcherd.jobs_waiting FOR EACH ROW
    WHEN (NEW.parent IS NOT NULL AND NEW.first_run_at IS NULL) EXECUTE FUNCTION dispatcherd.check_parent();

-- Ends pending and waiting jobs, and returns how many: final is cancelled or failed, and reasons[i] becomes the last of
-- the errors of job ids[i]. A job whose payload or errors cannot be read ends without them. The CASE has the type of the
-- column. With type jsonb, the INSERT would check the constraint of migration 19 again.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.end_idle(ids bigint[], final dispatcherd.status, by text, reasons text[]) RETURNS int LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
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
                max_attempts, failures, crashes, type, payload, keys, fence, parent, unique_key, watched, finished_at, cancelled_by, log, errors)
            SELECT id, run_at, first_run_at, created_at, attempt, 'cancelled', timeout_ms, priority,
                max_attempts, failures, crashes, type, CASE WHEN readable THEN payload ELSE 'null'::dispatcherd.payload END, keys, fence, parent, unique_key, watched,
                now(), by, log, CASE WHEN readable AND reason IS NULL THEN errors ELSE
                    CASE WHEN NOT readable THEN '[]' WHEN jsonb_array_length(errors) >= 10 THEN errors - 0 ELSE coalesce(errors, '[]') END
                    || jsonb_build_object('attempt', attempt, 'at', now(), 'outcome', final, 'error', concat_ws('; ', reason,
                        CASE WHEN NOT readable THEN 'the payload and the earlier errors cannot be read in Postgres and were dropped' END)) END FROM gone;
            GET DIAGNOSTICS n = ROW_COUNT;
            IF final = 'failed' THEN
                UPDATE dispatcherd.jobs SET status = 'failed', cancelled_by = NULL WHERE id = ANY (ids) AND status = 'cancelled' AND finished_at = now();
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
-- +goose StatementEnd

-- What counts rows after it has waited for a lock needs a new snapshot for each statement.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.require_read_committed(operation text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE active_sql_transaction USING CONSTRAINT = 'isolation_is_read_committed',
            MESSAGE = format('%s needs the isolation level read committed; this transaction has %s', operation, current_setting('transaction_isolation')),
            HINT = 'Begin it with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
END $$;
-- +goose StatementEnd

-- Who cancels: by, or else the role of the session. A role that may not write cancelled_by names itself.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.canceller(by text) RETURNS text LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN has_column_privilege(session_user, 'dispatcherd.jobs', 'cancelled_by', 'UPDATE') THEN coalesce(by, session_user) ELSE session_user END
$$;
-- +goose StatementEnd

-- As before, and it also cancels waiting jobs.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.cancel_pending(job bigint, by text DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN dispatcherd.end_idle(ARRAY[job], 'cancelled', dispatcherd.canceller(by), NULL) = 1;
END $$;
-- +goose StatementEnd

-- As before, and by names who cancels.
-- +goose StatementBegin
DO $$
DECLARE
    definition text := pg_get_functiondef('dispatcherd.cancel_runs'::regproc);
    edit text[];
BEGIN
    DROP FUNCTION dispatcherd.cancel_runs;
    FOREACH edit SLICE 1 IN ARRAY ARRAY[
        ['(jobs bigint[])', '(jobs bigint[], by text DEFAULT ''schedule''::text)'],
        ['unnest(jobs), ''schedule'' ON', 'unnest(jobs), by ON'],
        ['(run, ''schedule'')', '(run, by)']
    ] LOOP
        ASSERT strpos(definition, edit[1]) > 0, edit[1];
        definition := replace(definition, edit[1], edit[2]);
    END LOOP;
    EXECUTE definition;
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION dispatcherd.cancel_runs FROM PUBLIC;

-- Makes waiting jobs pending, merges additions[i] into the payload of ids[i], and notifies dispatchers and the controller of keys.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.release_waiting(ids bigint[], additions jsonb[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    news  text;
    keyed boolean;
BEGIN
    WITH gone AS (
        DELETE FROM dispatcherd.jobs_waiting w USING unnest(ids, additions) AS i (id, addition)
        WHERE w.id BETWEEN i.id AND i.id RETURNING w.*, i.addition, greatest(w.run_at, clock_timestamp()) AS due
    ), live AS (
        INSERT INTO dispatcherd.jobs_live (id, run_at, first_run_at, created_at, attempt, timeout_ms, priority, max_attempts, type, payload, keys, parent, watched, errors)
        SELECT id, due, coalesce(first_run_at, due), created_at, attempt, timeout_ms, priority, max_attempts, type,
            CASE WHEN addition IS NULL THEN payload
                ELSE (CASE WHEN payload ? 'inputs' THEN payload - '{missing,unsuccessful}'::text[] ELSE payload END || addition)::dispatcherd.payload END, keys, parent, watched, errors FROM gone
        RETURNING id, priority, run_at, type, keys
    )
    SELECT CASE WHEN count(*) = 0 THEN NULL WHEN count(*) = 1 AND bool_and(keys IS NULL AND run_at <= clock_timestamp()) THEN
            min(concat_ws(' ', id::bigint, priority::int, (extract(epoch FROM run_at::timestamptz) * 1000000)::bigint, type::text)) ELSE '' END, bool_or(keys IS NOT NULL)
        INTO news, keyed FROM live;
    IF news IS NOT NULL AND EXISTS (SELECT FROM dispatcherd.dispatchers WHERE armed) AND dispatcherd.may_notify() THEN
        PERFORM pg_notify('dispatcherd_keys', '') WHERE keyed;
        PERFORM pg_notify('dispatcherd_jobs', news);
    END IF;
END $$;
-- +goose StatementEnd

-- Releases waiting jobs: job ids[i] gets additions[i] if runs[i], is cancelled with reasons[i] if not, and fails with reasons[i]
-- if runs[i] is NULL or it cannot get its addition. It returns the jobs that other transactions have locked.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.proceed(ids bigint[], runs boolean[], reasons text[], additions jsonb[]) RETURNS bigint[] LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    free  bigint[] := ARRAY (SELECT id FROM dispatcherd.jobs_waiting WHERE id = ANY (ids) ORDER BY id FOR UPDATE SKIP LOCKED);
    run   bigint[];
    more  jsonb[];
    stop  bigint[];
    whys  text[];
    fail  bigint[];
    fails text[];
BEGIN
    SELECT array_agg(id) FILTER (WHERE go), array_agg(addition) FILTER (WHERE go), array_agg(id) FILTER (WHERE NOT go), array_agg(reason) FILTER (WHERE NOT go),
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
-- +goose StatementEnd

-- Whether a job runs after its dependencies or members have ended.
CREATE FUNCTION dispatcherd.runs_when(run_when text, bad int) RETURNS boolean LANGUAGE sql IMMUTABLE AS
    'SELECT CASE run_when WHEN ''done'' THEN bad OPERATOR(pg_catalog.=) 0 WHEN ''failed'' THEN bad OPERATOR(pg_catalog.>) 0 ELSE true END';

-- Ends batches whose members have all ended; the caller has locked them. The callback is released, or cancelled.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.fire(ids bigint[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    locked bigint[];
BEGIN
    SELECT dispatcherd.proceed(array_agg(b.id), array_agg(b.cancelled_by IS NULL AND dispatcherd.runs_when(b.run_when, b.failed + b.cancelled)),
            array_agg(CASE WHEN b.cancelled_by IS NOT NULL THEN 'the batch was cancelled' ELSE coalesce(b.reason, 'no member failed') END),
            array_agg(jsonb_build_object('batch', jsonb_build_object('id', b.id, 'total', b.done + b.failed + b.cancelled, 'done', b.done, 'failed', b.failed, 'cancelled', b.cancelled))))
        INTO locked FROM dispatcherd.batches b WHERE b.id = ANY (ids) AND b.callback;
    UPDATE dispatcherd.batches SET ended_at = clock_timestamp() WHERE id = ANY (ids) AND id <> ALL (coalesce(locked, '{}'));
    INSERT INTO dispatcherd.ends SELECT i, i, 'waiting' FROM unnest(locked) i;
END $$;
-- +goose StatementEnd

-- Cancels the live members of batches, which the caller has locked, and everything below members that run. What is below the other ones is
-- cancelled when their ends are counted. It skips locked rows, and cancels at most 10,000 members of a level; more says that it left some. Batches
-- with members that are left are checked again; the others are sealed.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.cancel_members(roots bigint[], by text, OUT cancelled int, OUT running int, OUT more boolean) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
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
        quiet := ARRAY (SELECT id FROM dispatcherd.batches WHERE id = ANY (parents) AND ended_at IS NULL ORDER BY id FOR UPDATE SKIP LOCKED);
        idle := ARRAY (SELECT id FROM dispatcherd.jobs_live WHERE parent = ANY (parents) AND status = 'pending' LIMIT most FOR UPDATE SKIP LOCKED);
        idle := idle || ARRAY (SELECT id FROM dispatcherd.jobs_waiting WHERE parent = ANY (parents) LIMIT most - cardinality(idle) FOR UPDATE SKIP LOCKED);
        more := more OR cardinality(idle) = most;
        cancelled := cancelled + dispatcherd.end_idle(idle, 'cancelled', by, NULL);
        runs := ARRAY (SELECT id FROM dispatcherd.jobs_live WHERE parent = ANY (parents) AND status = 'running' ORDER BY id);
        running := running + cardinality(runs);
        untold := ARRAY (SELECT r FROM unnest(runs) r WHERE NOT EXISTS (SELECT FROM dispatcherd.cancels c WHERE c.job_id = r));
        IF untold <> '{}' THEN
            PERFORM dispatcherd.cancel_runs(untold, by);
        END IF;
        INSERT INTO dispatcherd.ends SELECT p, p, 'waiting' FROM unnest(parents) p
            WHERE p <> ALL (quiet) OR (SELECT j.id FROM dispatcherd.jobs_live j WHERE j.parent = p AND j.status = 'pending' LIMIT 1) IS NOT NULL
                OR (SELECT w.id FROM dispatcherd.jobs_waiting w WHERE w.parent = p LIMIT 1) IS NOT NULL
                OR EXISTS (SELECT FROM dispatcherd.jobs_live j WHERE j.parent = p AND j.status = 'running' -- also one that was claimed meanwhile
                    AND NOT EXISTS (SELECT FROM dispatcherd.cancels c WHERE c.job_id = j.id));
        PERFORM dispatcherd.seal(quiet);
        parents := ARRAY (SELECT id FROM dispatcherd.batches WHERE id = ANY (runs) AND ended_at IS NULL ORDER BY id FOR NO KEY UPDATE SKIP LOCKED);
        INSERT INTO dispatcherd.ends SELECT id, id, 'waiting' FROM dispatcherd.batches WHERE id = ANY (runs) AND ended_at IS NULL AND id <> ALL (parents);
    END LOOP;
END $$;
-- +goose StatementEnd

-- Seals batches and ends those without open members. The caller has locked them FOR UPDATE, so no other transaction has
-- inserted members that it does not see. One snapshot shows each member either as a live row or by the record of its end.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.seal(ids bigint[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    complete bigint[];
BEGIN
    WITH sealed AS (
        UPDATE dispatcherd.batches b SET sealed_at = clock_timestamp(), open = m.open
        FROM (SELECT i AS id, (SELECT count(*) FROM dispatcherd.jobs_live j WHERE j.parent = i)
                + (SELECT count(*) FROM dispatcherd.jobs_waiting w WHERE w.parent = i) + coalesce(e.n, 0) AS open
            FROM unnest(ids) i LEFT JOIN (SELECT parent, count(*) AS n FROM dispatcherd.ends WHERE parent = ANY (ids) AND status <> 'waiting' GROUP BY parent) e ON e.parent = i) m
        WHERE b.id = m.id AND b.sealed_at IS NULL RETURNING b.id, b.open
    )
    SELECT array_agg(id) INTO complete FROM sealed WHERE open = 0;
    IF complete IS NOT NULL THEN
        PERFORM dispatcherd.fire(complete);
    END IF;
END $$;
-- +goose StatementEnd

-- The results of the dependencies of a node, as they are added to its payload.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.inputs(node bigint) RETURNS jsonb LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
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
                'missing', jsonb_agg(name) FILTER (WHERE status IS NULL), 'unsuccessful', jsonb_object_agg(name, status) FILTER (WHERE status <> 'done')))
            || jsonb_build_object('inputs', jsonb_object_agg(name, result)) FROM read) END
        INTO size, answer FROM sized s;
    IF answer IS NULL THEN
        RAISE program_limit_exceeded USING MESSAGE = format('they have %s bytes, at most 1000000 are possible', size);
    END IF;
    RETURN answer;
END $$;
-- +goose StatementEnd

-- Releases or cancels nodes without open dependencies, at most 500 of them with about 4 MB of inputs. It reports whether others can be released at
-- once; the flows of all that are left are checked again. The caller has locked their flows.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.release_nodes(ids bigint[]) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    n         record;
    size      int := 0;
    taken     bigint[] := '{}';
    runs      boolean[] := '{}';
    reasons   text[] := '{}';
    additions jsonb[] := '{}';
    locked    bigint[];
BEGIN
    FOR n IN SELECT id, takes_results, dispatcherd.runs_when(run_when, failed + cancelled) AS run, coalesce(reason, 'no dependency failed') AS reason, NULL::jsonb AS addition
        FROM dispatcherd.nodes WHERE id = ANY (ids) AND ready_at IS NULL LIMIT 500
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
    INSERT INTO dispatcherd.ends SELECT DISTINCT flow, flow, 'waiting'::dispatcherd.status FROM dispatcherd.nodes WHERE id = ANY (ids) AND id <> ALL (taken) AND ready_at IS NULL;
    RETURN FOUND AND cardinality(locked) < cardinality(taken);
END $$;
-- +goose StatementEnd

-- Counts the ends of dependencies, and releases the nodes that become ready, like release_nodes. The caller has locked their flows. The end of
-- jobs[i] counts in flow flows[i]; NULL = in all that are linked.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.count_dependencies(jobs bigint[], statuses dispatcherd.status[], flows bigint[]) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    ready bigint[];
BEGIN
    WITH ended AS (
        SELECT a.id, count(*) AS n, count(*) FILTER (WHERE e.status = 'done') AS done, count(*) FILTER (WHERE e.status = 'failed') AS failed,
            count(*) FILTER (WHERE e.status = 'cancelled') AS cancelled,
            coalesce('dependency ' || min(e.id) FILTER (WHERE e.status = 'failed') || ' failed', 'dependency ' || min(e.id) FILTER (WHERE e.status = 'cancelled') || ' was cancelled') AS reason
        FROM unnest(jobs, statuses, flows) AS e (id, status, flow)
        JOIN dispatcherd.edges g ON g.before BETWEEN e.id AND e.id AND g.linked AND (e.flow IS NULL OR g.flow = e.flow) CROSS JOIN unnest(g.after) AS a (id) GROUP BY a.id
    ), counted AS (
        UPDATE dispatcherd.nodes n SET open = n.open - e.n, done = n.done + e.done, failed = n.failed + e.failed, cancelled = n.cancelled + e.cancelled,
            reason = coalesce(n.reason, e.reason)
        FROM ended e WHERE n.id BETWEEN e.id AND e.id AND n.ready_at IS NULL RETURNING n.id, n.open
    )
    SELECT array_agg(id) INTO ready FROM counted WHERE open <= 0;
    RETURN ready IS NOT NULL AND dispatcherd.release_nodes(ready);
END $$;
-- +goose StatementEnd

-- Watches the jobs outside flows on which nodes depend, and counts those that have ended. A job that was deleted counts as
-- cancelled. A job with an end that is not counted is left out: the count of that end would count it again. It skips locked rows and
-- flows. It reports whether there is more to do at once.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.link_dependencies() RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = on AS $$
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
    flows := ARRAY (SELECT id FROM dispatcherd.batches WHERE id IN (SELECT e.flow FROM dispatcherd.edges e WHERE NOT e.linked) LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED);
    jobs := ARRAY (SELECT DISTINCT e.before FROM dispatcherd.edges e WHERE NOT e.linked AND e.flow = ANY (flows) LIMIT most);
    locked := ARRAY (SELECT id FROM dispatcherd.jobs_live WHERE id = ANY (jobs) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
        || ARRAY (SELECT id FROM dispatcherd.jobs_waiting WHERE id = ANY (jobs) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED);
    UPDATE dispatcherd.jobs_live SET watched = true WHERE id = ANY (locked) AND watched IS NULL;
    UPDATE dispatcherd.jobs_waiting SET watched = true WHERE id = ANY (locked) AND watched IS NULL;
    -- This snapshot shows the other jobs where they are now: ended, deleted, or live and locked; and each end that is not counted.
    WITH known AS MATERIALIZED (
        SELECT d.id, CASE WHEN l.id IS NULL THEN coalesce(j.status, 'cancelled') END AS final
        FROM unnest(jobs) AS d (id) LEFT JOIN unnest(locked) AS l (id) ON l.id = d.id LEFT JOIN dispatcherd.jobs j ON j.id BETWEEN d.id AND d.id
        LEFT JOIN (SELECT DISTINCT e.job_id FROM dispatcherd.ends e WHERE e.status <> 'waiting') u ON u.job_id = d.id
        WHERE (l.id IS NOT NULL OR j.id IS NULL OR j.status IN ('done', 'failed', 'cancelled')) AND u.job_id IS NULL
    ), linked AS (
        UPDATE dispatcherd.edges e SET linked = true FROM known k WHERE e.before BETWEEN k.id AND k.id AND e.flow = ANY (flows) AND NOT e.linked RETURNING k.id, k.final, e.flow
    )
    SELECT count(*), array_agg(l.id) FILTER (WHERE l.final IS NOT NULL), array_agg(l.final) FILTER (WHERE l.final IS NOT NULL), array_agg(l.flow) FILTER (WHERE l.final IS NOT NULL)
        INTO n, final, statuses, its FROM linked l;
    RETURN dispatcherd.count_dependencies(final, statuses, its) OR cardinality(jobs) = most AND n > 0;
END $$;
-- +goose StatementEnd

-- Counts ends, at most about most of them at a time, releases the nodes and ends the batches that have no open ones left. It changes
-- only what no other transaction has locked; blocked says that it has left out something. more says that there is more to do at once.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.settle(most int, OUT settled int, OUT more boolean, OUT blocked boolean) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
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
        SELECT coalesce(array_agg(DISTINCT e.parent) FILTER (WHERE e.parent IS NOT NULL), '{}'), coalesce(array_agg(e.job_id) FILTER (WHERE e.watched), '{}'), count(*)
            INTO parents, watched, n FROM (
                SELECT e.job_id, e.parent, e.watched FROM dispatcherd.ends e WHERE (again OR e.status <> 'waiting')
                    AND (e.parent IS NULL OR e.parent NOT IN (SELECT unnest(busy))) AND e.job_id NOT IN (SELECT unnest(stuck)) LIMIT most) e;
        EXIT WHEN n = 0;
        needed := parents || watched;
        IF watched <> '{}' THEN
            needed := needed || ARRAY (SELECT DISTINCT g.flow FROM unnest(watched) AS w (id) JOIN dispatcherd.edges g ON g.before BETWEEN w.id AND w.id WHERE g.linked);
        END IF;
        mine := ARRAY (SELECT b.id FROM dispatcherd.batches b WHERE b.id = ANY (needed) ORDER BY b.id FOR NO KEY UPDATE SKIP LOCKED);
        missed := ARRAY (SELECT b.id FROM dispatcherd.batches b WHERE b.id = ANY (needed) AND b.id NOT IN (SELECT unnest(mine)));
        IF missed <> '{}' THEN
            busy := busy || missed;
            stuck := stuck || ARRAY (SELECT w.id FROM unnest(watched) AS w (id) WHERE w.id = ANY (missed)
                OR (SELECT g.before FROM dispatcherd.edges g WHERE g.before = w.id AND g.linked AND g.flow = ANY (missed) LIMIT 1) IS NOT NULL);
            parents := ARRAY (SELECT unnest(parents) EXCEPT SELECT unnest(busy));
            watched := ARRAY (SELECT unnest(watched) EXCEPT SELECT unnest(stuck));
        END IF;
        -- From here on no other call counts these ends, because it would have to lock the same batches.
        WITH gone AS (
            DELETE FROM dispatcherd.ends e WHERE e.ctid = ANY (ARRAY (
                SELECT e.ctid FROM dispatcherd.ends e WHERE (again OR e.status <> 'waiting') AND (e.parent IS NULL OR e.parent IN (SELECT unnest(parents)))
                    AND (e.watched IS NULL OR e.job_id IN (SELECT unnest(watched))) LIMIT most))
            RETURNING e.job_id, e.parent, e.status, e.watched
        ), per AS (
            SELECT g.parent, count(*) FILTER (WHERE g.status = 'done') AS done, count(*) FILTER (WHERE g.status = 'failed') AS failed, count(*) FILTER (WHERE g.status = 'cancelled') AS cancelled,
                coalesce('member ' || min(g.job_id) FILTER (WHERE g.status = 'failed') || ' failed', 'member ' || min(g.job_id) FILTER (WHERE g.status = 'cancelled') || ' was cancelled') AS reason
            FROM gone g WHERE g.parent IS NOT NULL AND g.status <> 'waiting' GROUP BY g.parent
        ), batch AS (
            SELECT array_agg(p.parent) AS ids, array_agg(p.done) AS done, array_agg(p.failed) AS failed, array_agg(p.cancelled) AS cancelled, array_agg(p.reason) AS reasons FROM per p
        )
        SELECT b.ids, b.done, b.failed, b.cancelled, b.reasons, g.n, g.ids, g.statuses, g.checks INTO changed, dones, fails, stops, reasons, n, ended, statuses, checks
            FROM batch b, (SELECT count(*) AS n, array_agg(g.job_id) FILTER (WHERE g.watched) AS ids, array_agg(g.status) FILTER (WHERE g.watched) AS statuses,
                array_agg(DISTINCT g.parent) FILTER (WHERE g.status = 'waiting') AS checks FROM gone g) g;
        settled := settled + n;
        UPDATE dispatcherd.batches b SET open = b.open - i.done - i.failed - i.cancelled, done = b.done + i.done, failed = b.failed + i.failed,
            cancelled = b.cancelled + i.cancelled, reason = coalesce(b.reason, i.reason)
            FROM unnest(changed, dones, fails, stops, reasons) AS i (id, done, failed, cancelled, reason) WHERE b.id BETWEEN i.id AND i.id;
        rest := ended IS NOT NULL AND dispatcherd.count_dependencies(ended, statuses, NULL);
        IF checks IS NOT NULL OR ended && mine THEN
            rest := dispatcherd.check_again(checks, ended) OR rest;
        END IF;
        complete := ARRAY (SELECT b.id FROM dispatcherd.batches b WHERE b.id = ANY (changed || checks) AND b.sealed_at IS NOT NULL AND b.open <= 0 AND b.ended_at IS NULL);
        IF complete <> '{}' THEN
            PERFORM dispatcherd.fire(complete);
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
-- +goose StatementEnd

-- Continues what was left in batches checks, and cancels the members of batches whose jobs have ended and are not live again. It reports
-- whether there is more to do at once. The caller has locked them.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.check_again(checks bigint[], ended bigint[]) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    b     record;
    rest  boolean := false;
    ready bigint[];
BEGIN
    FOR b IN SELECT array_agg(x.id) AS ids, coalesce(x.cancelled_by, c.requested_by, 'parent') AS who FROM dispatcherd.batches x LEFT JOIN dispatcherd.cancels c ON c.job_id = x.id
        WHERE x.id = ANY (ended || checks) AND x.ended_at IS NULL AND (x.cancelled_by IS NOT NULL OR c.job_id IS NOT NULL OR x.id = ANY (ended)
            AND (SELECT j.id FROM dispatcherd.jobs_live j WHERE j.id = x.id) IS NULL AND (SELECT w.id FROM dispatcherd.jobs_waiting w WHERE w.id = x.id) IS NULL) GROUP BY 2
    LOOP
        rest := (SELECT more FROM dispatcherd.cancel_members(b.ids, b.who)) OR rest;
    END LOOP;
    ready := ARRAY (SELECT id FROM dispatcherd.nodes WHERE flow = ANY (checks) AND open <= 0 AND ready_at IS NULL);
    RETURN ready <> '{}' AND dispatcherd.release_nodes(ready) OR rest;
END $$;
-- +goose StatementEnd

-- Locks the batches that count the ends of jobs, or will when they are linked, and those whose callbacks or parents the jobs are.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.lock_batches(jobs bigint[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    PERFORM FROM dispatcherd.batches b WHERE b.id IN (
        SELECT unnest(jobs) UNION SELECT j.parent FROM dispatcherd.jobs j WHERE j.id = ANY (jobs)
        UNION SELECT g.flow FROM dispatcherd.edges g WHERE g.before = ANY (jobs)) ORDER BY b.id FOR NO KEY UPDATE;
END $$;
-- +goose StatementEnd

-- Undoes the count of ends: job jobs[i] with parent parents[i] and status statuses[i] is open again. The caller has locked the batches.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.count_retries(jobs bigint[], parents bigint[], statuses dispatcherd.status[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    UPDATE dispatcherd.batches b SET open = b.open + i.n, failed = b.failed - i.failed, cancelled = b.cancelled - (i.n - i.failed),
        reason = CASE WHEN b.failed + b.cancelled > i.n THEN b.reason END
        FROM (SELECT p AS id, count(*) AS n, count(*) FILTER (WHERE s = 'failed') AS failed FROM unnest(parents, statuses) AS e (p, s) GROUP BY p) i
        WHERE b.id BETWEEN i.id AND i.id AND b.ended_at IS NULL AND b.cancelled_by IS NULL;
    UPDATE dispatcherd.nodes d SET open = d.open + i.n, failed = d.failed - i.failed, cancelled = d.cancelled - (i.n - i.failed),
        reason = CASE WHEN d.failed + d.cancelled > i.n THEN d.reason END
        FROM (SELECT a.id, count(*) AS n, count(*) FILTER (WHERE e.status = 'failed') AS failed FROM unnest(jobs, statuses) AS e (id, status)
            JOIN dispatcherd.edges g ON g.before BETWEEN e.id AND e.id AND g.linked CROSS JOIN unnest(g.after) AS a (id) GROUP BY a.id) i
        WHERE d.id BETWEEN i.id AND i.id AND d.ready_at IS NULL;
END $$;
-- +goose StatementEnd

-- As before. A job counts again in its batch if that has not ended; otherwise it is detached. It also counts again for nodes that wait
-- for other jobs. Of jobs with one unique key the newest is retried, unless another live job has the key. A job that must wait for other
-- jobs is not retried: retry_tree makes it wait again.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.retry_jobs(ids bigint[]) RETURNS int LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
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
    PERFORM FROM dispatcherd.jobs j WHERE j.id = ANY (ids) AND j.status IN ('failed', 'cancelled') ORDER BY j.id FOR UPDATE;
    newest := ARRAY (SELECT max(j.id) FROM dispatcherd.jobs j WHERE j.id = ANY (ids) AND j.status IN ('failed', 'cancelled')
        AND NOT dispatcherd.must_wait(j.id, j.attempt) GROUP BY j.unique_key, CASE WHEN j.unique_key IS NULL THEN j.id END);
    WITH gone AS (
        DELETE FROM dispatcherd.jobs j WHERE j.id = ANY (newest) AND j.status IN ('failed', 'cancelled')
            AND (j.unique_key IS NULL OR (SELECT l.id FROM dispatcherd.jobs_live l WHERE l.unique_key = j.unique_key) IS NULL) RETURNING *
    ), settled AS (
        DELETE FROM dispatcherd.cancels WHERE job_id = ANY (ARRAY (SELECT id FROM gone))
    ), pending AS (
        INSERT INTO dispatcherd.jobs (id, first_run_at, created_at, attempt, timeout_ms, priority, max_attempts, type, payload, keys, parent, unique_key, watched, errors)
        SELECT id, coalesce(first_run_at, run_at), created_at, attempt, timeout_ms, priority, max_attempts, type, payload, keys,
            CASE WHEN dispatcherd.counts(parent) THEN parent END, unique_key, CASE WHEN dispatcherd.has_dependants(id) THEN true ELSE watched END, errors FROM gone
    )
    SELECT count(*), array_agg(g.id), array_agg(g.parent), array_agg(g.status) INTO n, jobs, parents, statuses FROM gone g;
    IF n > 0 THEN
        PERFORM dispatcherd.count_retries(jobs, parents, statuses);
    END IF;
    RETURN n;
END $$;
-- +goose StatementEnd

-- Whether nodes depend on a job. It and must_wait have no SET, so that they are inlined.
CREATE FUNCTION dispatcherd.has_dependants(job bigint) RETURNS boolean LANGUAGE sql STABLE AS
    'SELECT EXISTS (SELECT FROM dispatcherd.edges g WHERE g.before OPERATOR(pg_catalog.=) job)';

-- Whether a job that has ended must wait for other jobs before it runs again: it is a node with dependencies or a callback, and was never
-- released, or was made to wait again.
CREATE FUNCTION dispatcherd.must_wait(job bigint, attempt int) RETURNS boolean LANGUAGE sql STABLE AS
    'SELECT EXISTS (SELECT FROM dispatcherd.nodes n WHERE n.id OPERATOR(pg_catalog.=) job AND n.depends_on OPERATOR(pg_catalog.<>) ''{}'' AND (attempt OPERATOR(pg_catalog.=) 0 OR n.ready_at IS NULL))
        OR EXISTS (SELECT FROM dispatcherd.batches b WHERE b.id OPERATOR(pg_catalog.=) job AND b.callback AND (attempt OPERATOR(pg_catalog.=) 0 OR b.ended_at IS NULL))';

-- Whether a batch counts jobs that are retried.
CREATE FUNCTION dispatcherd.counts(batch bigint) RETURNS boolean LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS
    'SELECT EXISTS (SELECT FROM dispatcherd.batches b WHERE b.id = batch AND b.ended_at IS NULL AND b.cancelled_by IS NULL)';

REVOKE ALL ON FUNCTION dispatcherd.check_parent, dispatcherd.end_idle, dispatcherd.canceller, dispatcherd.release_waiting, dispatcherd.proceed, dispatcherd.runs_when, dispatcherd.fire,
    dispatcherd.cancel_members, dispatcherd.seal, dispatcherd.inputs, dispatcherd.release_nodes, dispatcherd.count_dependencies, dispatcherd.link_dependencies,
    dispatcherd.settle, dispatcherd.check_again, dispatcherd.lock_batches, dispatcherd.count_retries, dispatcherd.counts,
    dispatcherd.require_read_committed, dispatcherd.has_dependants, dispatcherd.must_wait FROM PUBLIC;

-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_dispatcher') THEN
        GRANT EXECUTE ON FUNCTION dispatcherd.cancel_runs, dispatcherd.end_idle, dispatcherd.canceller, dispatcherd.release_waiting, dispatcherd.proceed, dispatcherd.runs_when,
            dispatcherd.fire, dispatcherd.cancel_members, dispatcherd.seal, dispatcherd.inputs, dispatcherd.release_nodes, dispatcherd.count_dependencies,
            dispatcherd.link_dependencies, dispatcherd.settle, dispatcherd.check_again, dispatcherd.lock_batches, dispatcherd.count_retries, dispatcherd.counts,
            dispatcherd.require_read_committed, dispatcherd.has_dependants, dispatcherd.must_wait TO dispatcherd_dispatcher;
        GRANT SELECT, INSERT, UPDATE, DELETE ON dispatcherd.jobs_waiting TO dispatcherd_dispatcher;
        GRANT SELECT ON dispatcherd.batches, dispatcherd.nodes, dispatcherd.edges, dispatcherd.uniques TO dispatcherd_dispatcher;
        GRANT SELECT, INSERT ON dispatcherd.ends TO dispatcherd_dispatcher;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_operator') THEN
        GRANT SELECT ON dispatcherd.jobs_waiting, dispatcherd.batches, dispatcherd.nodes, dispatcherd.edges, dispatcherd.uniques TO dispatcherd_operator;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_reader') THEN
        GRANT SELECT (parent, unique_key, watched) ON dispatcherd.jobs, dispatcherd.jobs_live TO dispatcherd_reader;
        GRANT SELECT ON dispatcherd.batches, dispatcherd.nodes, dispatcherd.edges, dispatcherd.uniques TO dispatcherd_reader;
    END IF;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 30::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 30::bigint';

UPDATE dispatcherd.jobs SET status = 'cancelled', finished_at = now(), cancelled_by = 'migrate down' WHERE status = 'waiting';
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.cancel_pending(job bigint, by text DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    readable boolean;
BEGIN
    FOREACH readable IN ARRAY ARRAY[true, false] LOOP
        BEGIN
            WITH gone AS (
                DELETE FROM dispatcherd.jobs_live WHERE id = job AND status = 'pending' RETURNING *
            )
            INSERT INTO dispatcherd.jobs_cancelled (id, run_at, first_run_at, created_at, attempt, status, timeout_ms, priority,
                max_attempts, failures, crashes, type, payload, keys, fence, finished_at, cancelled_by, log, errors)
            SELECT id, run_at, first_run_at, created_at, attempt, 'cancelled', timeout_ms, priority,
                max_attempts, failures, crashes, type, CASE WHEN readable THEN payload ELSE 'null'::dispatcherd.payload END, keys, fence, now(), CASE WHEN has_column_privilege(session_user, 'dispatcherd.jobs', 'cancelled_by', 'UPDATE') THEN coalesce(by, session_user) ELSE session_user END, log,
                CASE WHEN readable THEN errors ELSE jsonb_build_array(jsonb_build_object('attempt', attempt, 'at', now(), 'outcome', 'cancelled',
                    'error', 'the payload and the earlier errors cannot be read in Postgres and were dropped')) END FROM gone;
            RETURN FOUND;
        EXCEPTION WHEN data_corrupted OR internal_error THEN
            IF NOT readable THEN
                RAISE;
            END IF;
        END;
    END LOOP;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.retry_jobs(ids bigint[]) RETURNS int LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    n int;
BEGIN
    PERFORM FROM dispatcherd.jobs j WHERE j.id = ANY (ids) AND j.status IN ('failed', 'cancelled') ORDER BY j.id FOR UPDATE;
    WITH gone AS (
        DELETE FROM dispatcherd.jobs j WHERE j.id = ANY (ids) AND j.status IN ('failed', 'cancelled') RETURNING *
    ), settled AS (
        DELETE FROM dispatcherd.cancels WHERE job_id = ANY (ARRAY (SELECT id FROM gone))
    )
    INSERT INTO dispatcherd.jobs (id, first_run_at, created_at, attempt, timeout_ms, priority, max_attempts, type, payload, keys, errors)
    SELECT id, coalesce(first_run_at, run_at), created_at, attempt, timeout_ms, priority, max_attempts, type, payload, keys, errors FROM gone;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
DO $$
DECLARE
    definition text := pg_get_functiondef('dispatcherd.cancel_runs'::regproc);
    edit text[];
BEGIN
    DROP FUNCTION dispatcherd.cancel_runs;
    FOREACH edit SLICE 1 IN ARRAY ARRAY[
        ['(jobs bigint[])', '(jobs bigint[], by text DEFAULT ''schedule''::text)'],
        ['unnest(jobs), ''schedule'' ON', 'unnest(jobs), by ON'],
        ['(run, ''schedule'')', '(run, by)']
    ] LOOP
        ASSERT strpos(definition, edit[2]) > 0, edit[2];
        definition := replace(definition, edit[2], edit[1]);
    END LOOP;
    EXECUTE definition;
    REVOKE ALL ON FUNCTION dispatcherd.cancel_runs FROM PUBLIC;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_dispatcher') THEN
        GRANT EXECUTE ON FUNCTION dispatcherd.cancel_runs TO dispatcherd_dispatcher;
    END IF;
END $$;
-- +goose StatementEnd
DROP FUNCTION dispatcherd.end_idle, dispatcherd.canceller, dispatcherd.release_waiting, dispatcherd.proceed, dispatcherd.runs_when, dispatcherd.fire,
    dispatcherd.cancel_members, dispatcherd.seal, dispatcherd.inputs, dispatcherd.release_nodes, dispatcherd.count_dependencies, dispatcherd.link_dependencies,
    dispatcherd.settle, dispatcherd.check_again, dispatcherd.lock_batches, dispatcherd.count_retries, dispatcherd.counts,
    dispatcherd.require_read_committed, dispatcherd.has_dependants, dispatcherd.must_wait;
DROP TRIGGER check_parent ON dispatcherd.jobs_live;
DROP TABLE dispatcherd.jobs_waiting, dispatcherd.batches, dispatcherd.nodes, dispatcherd.edges, dispatcherd.ends, dispatcherd.uniques;
DROP FUNCTION dispatcherd.check_parent;
ALTER TABLE dispatcherd.jobs_live DROP CONSTRAINT unique_key_is_1_to_512_bytes;
ALTER TABLE dispatcherd.jobs DROP COLUMN watched, DROP COLUMN unique_key, DROP COLUMN parent;
