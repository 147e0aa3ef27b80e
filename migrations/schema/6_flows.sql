-- Jobs that depend on other jobs. A batch has members, jobs that run at once; after its seal and the end of all members its callback
-- runs. A flow is a graph of jobs, its nodes; a node runs after its dependencies. A job that runs may insert children, which are
-- cancelled after its end. Also unique jobs. First the tables, then the functions that insert, which producers call because they have
-- only SQL. docs/how-to/flows.md explains all of them.

CREATE TABLE dispatcherd.batches (
    id           bigint      PRIMARY KEY,
    kind         text        NOT NULL CONSTRAINT kind_is_batch_flow_or_children CHECK (kind IN ('batch', 'flow', 'children')),
    name         text        CONSTRAINT name_is_1_to_128_bytes CHECK (octet_length(name) BETWEEN 1 AND 128),
    callback     boolean     NOT NULL DEFAULT false,
    run_when     text        NOT NULL DEFAULT 'done'
        CONSTRAINT run_when_is_done_ended_or_failed CHECK (run_when IN ('done', 'ended', 'failed')),
    opened_at    timestamptz NOT NULL DEFAULT now(),
    sealed_at    timestamptz,
    ended_at     timestamptz,
    open         int,
    done         int         NOT NULL DEFAULT 0,
    failed       int         NOT NULL DEFAULT 0,
    cancelled    int         NOT NULL DEFAULT 0,
    reason       text,
    cancelled_by text,
    walk         text        CONSTRAINT walk_is_retry_or_repair CHECK (walk IN ('retry', 'repair')),
    walked       bigint      NOT NULL DEFAULT 0,
    aside        text,
    aside_at     timestamptz,
    owner        text
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX batches_ended ON dispatcherd.batches (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX batches_open ON dispatcherd.batches (id) WHERE ended_at IS NULL;
CREATE INDEX batches_unsealed ON dispatcherd.batches (opened_at) WHERE sealed_at IS NULL; -- for the metric of batches never sealed
CREATE INDEX batches_aside ON dispatcherd.batches (aside_at) WHERE aside_at IS NOT NULL;
COMMENT ON TABLE dispatcherd.batches IS
    'Batches, flows, and jobs with children. A transaction that changes a row, its nodes, edges or bad members, first locks the row.';
COMMENT ON COLUMN dispatcherd.batches.walk IS
    'What goes through the nodes or members in portions: a retry or a repair. Meanwhile ends wait.';
COMMENT ON COLUMN dispatcherd.batches.walked IS 'The place of a node, or the negated id of a member, up to which it has come.';
COMMENT ON COLUMN dispatcherd.batches.aside IS 'Why dispatchers have set it aside: an error that its smallest step meets.';
COMMENT ON COLUMN dispatcherd.batches.owner IS
    'The role, or the group, whose members may insert members and seal it; NULL = the dispatchers, which may always. It never changes.';
COMMENT ON COLUMN dispatcherd.batches.callback IS 'Whether a job with the same id waits for the end of the members.';
COMMENT ON COLUMN dispatcherd.batches.sealed_at IS 'When it was sealed. Later no member is inserted.';
COMMENT ON COLUMN dispatcherd.batches.ended_at IS 'When all members had ended, and the callback was released to run or was cancelled.';
COMMENT ON COLUMN dispatcherd.batches.open IS 'Members that have not ended; NULL = not sealed.';
COMMENT ON COLUMN dispatcherd.batches.reason IS 'The first member that failed or was cancelled.';
COMMENT ON COLUMN dispatcherd.batches.cancelled_by IS
    'Who cancels the members, as in jobs.cancelled_by; "parent": the job whose children they are has ended.';

CREATE TABLE dispatcherd.nodes (
    id            bigint      PRIMARY KEY,
    flow          bigint      NOT NULL,
    place         int         NOT NULL,
    name          text        NOT NULL,
    depends_on    bigint[]    NOT NULL DEFAULT '{}',
    run_when      text        NOT NULL DEFAULT 'done',
    takes_results boolean     NOT NULL DEFAULT false,
    open          int         NOT NULL DEFAULT 0,
    bad           int         NOT NULL DEFAULT 0,
    inputs        bigint      NOT NULL DEFAULT 0,
    reason        text,
    ready_at      timestamptz,
    status        dispatcherd.status,
    finished_at   timestamptz,
    size          int
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE UNIQUE INDEX nodes_place ON dispatcherd.nodes (flow, place);
COMMENT ON TABLE dispatcherd.nodes IS 'The jobs of flows. The row of the flow in batches is the lock of its nodes.';
COMMENT ON COLUMN dispatcherd.nodes.place IS 'Its place in the document of the flow, from 1.';
COMMENT ON COLUMN dispatcherd.nodes.open IS 'Dependencies that have not ended.';
COMMENT ON COLUMN dispatcherd.nodes.bad IS 'Dependencies that failed or were cancelled.';
COMMENT ON COLUMN dispatcherd.nodes.inputs IS 'Bytes of the results of the dependencies that have ended.';
COMMENT ON COLUMN dispatcherd.nodes.status IS
    'The final status as the flow has counted it; NULL = it has not ended. finished_at finds its row.';
COMMENT ON COLUMN dispatcherd.nodes.reason IS 'The first dependency that failed or was cancelled.';
COMMENT ON COLUMN dispatcherd.nodes.ready_at IS 'When all dependencies had ended, and the job was released to run or was cancelled.';

-- One row for each job (before) on which nodes of a flow (after) depend. For a job outside the flow, linked says that its end will be
-- reported: its row is marked as watched, or its end is known. Dispatchers link jobs, because users must not lock rows of other jobs. Such
-- a row also records the end as the flow has counted it. For a node of the flow linked is NULL.
CREATE TABLE dispatcherd.edges (
    before      bigint   NOT NULL,
    flow        bigint   NOT NULL,
    after       bigint[] NOT NULL,
    linked      boolean,
    status      dispatcherd.status,
    finished_at timestamptz,
    size        int,
    PRIMARY KEY (before, flow)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX edges_unlinked ON dispatcherd.edges (flow, before) WHERE NOT linked;

-- Members of batches and children that failed or were cancelled, as their target has counted them. A retry finds their rows by it.
CREATE TABLE dispatcherd.bad_members (
    batch       bigint             NOT NULL,
    job_id      bigint             NOT NULL,
    status      dispatcherd.status NOT NULL,
    finished_at timestamptz        NOT NULL,
    PRIMARY KEY (batch, job_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE dispatcherd.uniques (
    key    text        PRIMARY KEY,
    job_id bigint      NOT NULL,
    until  timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX uniques_until ON dispatcherd.uniques (until);
COMMENT ON TABLE dispatcherd.uniques IS 'Unique keys that stay taken until an instant, also after their jobs have ended.';
COMMENT ON COLUMN dispatcherd.uniques.key IS 'As jobs.unique_key.';

-- Messages to targets: batches, flows, jobs with children, and jobs on which nodes of flows depend. The statement that ends jobs, or makes
-- them run again, inserts them in the same transaction; a step of a dispatcher counts and deletes them (internal/flow). A message without
-- jobs asks for a step.
CREATE TABLE dispatcherd.ends (
    target   bigint               NOT NULL,
    id       bigint               GENERATED ALWAYS AS IDENTITY,
    done     int                  NOT NULL DEFAULT 0,     -- members that are done and need no record
    jobs     bigint[],                                    -- at most 1,000
    statuses dispatcherd.status[],                        -- pending = it runs again
    sizes    int[],                                       -- bytes of the results
    part     bigint               NOT NULL DEFAULT 0,     -- of the first job: how many dependants, or up to which flow, have been told
    walk     text,                                        -- retry or repair
    at       timestamptz          NOT NULL DEFAULT now(), -- finished_at of the jobs
    PRIMARY KEY (target, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_threshold = -1,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = false
);
COMMENT ON TABLE dispatcherd.ends IS 'Ends that are not counted yet. Dispatchers count and delete them at once.';

-- Returns true if caller may insert members into a batch and seal it: a dispatcher, or a role that belongs to the owner of the batch.
-- Otherwise, and if it finds no batch, it raises an error before it locks anything, so a role cannot hold a row of another owner. With
-- joins, a job becomes a member of the batch: it must be open, and the lock makes its seal wait until this transaction has ended. A flow
-- that is not sealed is visible only to the transaction that inserts it. check_parent and the functions for producers call it.
CREATE FUNCTION dispatcherd.owns_batch(batch bigint, caller dispatcherd.caller DEFAULT current_user, joins boolean DEFAULT false)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    b record;
BEGIN
    IF batch IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'batch is NULL, must be the id that open_batch returned';
    ELSIF has_table_privilege(caller, 'dispatcherd.jobs_live', 'UPDATE') IS NOT TRUE THEN
        SELECT owner INTO b FROM dispatcherd.batches WHERE id = batch;
        IF NOT FOUND THEN
            RAISE no_data_found USING CONSTRAINT = 'batch_exists', MESSAGE = format('no batch %s', batch);
        ELSIF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = b.owner AND pg_has_role(caller, r.oid, 'MEMBER')) THEN
            RAISE insufficient_privilege USING CONSTRAINT = 'batch_is_of_its_owner', MESSAGE = format(
                'batch %s belongs to %s, to which role %s does not belong', batch, coalesce('role ' || b.owner, 'the dispatchers'), caller),
                HINT = 'Connect as a member of that role, or set dispatcherd.owner to a common group before you open the batch.';
        END IF;
    END IF;
    IF joins THEN
        SELECT sealed_at, cancelled_by INTO b FROM dispatcherd.batches WHERE id = batch
            AND (kind = 'batch' OR kind = 'flow' AND sealed_at IS NULL) FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE foreign_key_violation USING CONSTRAINT = 'parent_is_a_batch', TABLE = 'jobs', SCHEMA = 'dispatcherd', COLUMN = 'parent',
                MESSAGE = format('parent %s is no batch', batch), HINT = 'Use the id that open_batch returned.';
        ELSIF b.sealed_at IS NOT NULL OR b.cancelled_by IS NOT NULL THEN
            RAISE check_violation USING CONSTRAINT = 'batch_is_open', TABLE = 'jobs', SCHEMA = 'dispatcherd', COLUMN = 'parent',
                MESSAGE = format('batch %s is %s', batch, CASE WHEN b.cancelled_by IS NULL THEN 'sealed' ELSE 'cancelled' END),
                HINT = CASE WHEN b.cancelled_by IS NULL THEN 'Insert all members before seal_batch.' ELSE 'Open another batch.' END;
        END IF;
    END IF;
    RETURN true;
END $$;

-- Trigger on inserts into jobs_live and jobs_waiting: a job is inserted into an open batch of its owner only. It runs with the rights of
-- the role that inserts, so owns_batch learns this role. The condition of the triggers leaves out jobs with first_run_at, which are retried
-- or released jobs and children: their parents need no check. A call in the condition would cost each INSERT 3 microseconds.
CREATE FUNCTION dispatcherd.check_parent() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM dispatcherd.owns_batch(NEW.parent, joins => true);
    RETURN NULL;
END $$;
CREATE TRIGGER check_parent AFTER INSERT ON dispatcherd.jobs_live FOR EACH ROW
    WHEN (NEW.parent IS NOT NULL AND NEW.first_run_at IS NULL) EXECUTE FUNCTION dispatcherd.check_parent();
CREATE TRIGGER check_parent AFTER INSERT ON dispatcherd.jobs_waiting FOR EACH ROW
    WHEN (NEW.parent IS NOT NULL AND NEW.first_run_at IS NULL) EXECUTE FUNCTION dispatcherd.check_parent();

-- Returns why a job in JSON is invalid, as far as this can be said without the constraints of the table jobs; NULL = it is valid so far.
-- The list `further` names the members that are allowed besides those of a job. All statements that insert jobs from JSON call it.
CREATE FUNCTION dispatcherd.job_problem(job jsonb, further text[]) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN jsonb_typeof(job) IS DISTINCT FROM 'object' THEN 'a job must be a JSON object'
        WHEN u.name = ANY ('{name,after,run_when,takes_results,parent,unique_key}') THEN format('"%s" is not possible here', u.name)
        WHEN u.name = ANY ('{id,status,attempt,dispatcher,token,created_at,started_at,finished_at,failures,crashes,errors,result,progress,
            log,deadline,first_run_at,cancelled_by,placement,fence,admitted_to,admitted_at,watched}')
            THEN format('"%s" cannot be set', u.name)
        WHEN u.name IS NOT NULL THEN format('"%s" is unknown', u.name)
        WHEN job ->> 'type' IS NULL THEN 'type is missing'
        WHEN jsonb_typeof(job -> 'type') <> 'string' THEN format('type is %s, must be a text', left((job -> 'type')::text, 64))
        WHEN jsonb_typeof(job -> 'keys') NOT IN ('string', 'null')
            THEN format('keys is %s, must be a text of words, for example "tenant:42 stripe*3"', left((job -> 'keys')::text, 64))
        WHEN jsonb_typeof(job -> 'unique_key') NOT IN ('string', 'null')
            THEN format('unique_key is %s, must be a text', left((job -> 'unique_key')::text, 64))
        WHEN jsonb_typeof(job -> 'traceparent') NOT IN ('string', 'null')
            THEN format('traceparent is %s, must be a text', left((job -> 'traceparent')::text, 64))
        WHEN job ->> 'unique_key' LIKE '% / %'
            THEN format('unique_key is %s, must not contain " / ", which follows the owner', left((job -> 'unique_key')::text, 64))
        WHEN jsonb_typeof(job -> 'backoff') NOT IN ('string', 'null')
            THEN format('backoff is %s, must be a text, for example "exponential:1s,2,1h,0.2"', left((job -> 'backoff')::text, 64))
        WHEN jsonb_typeof(job -> 'run_at') NOT IN ('string', 'null')
            THEN format('run_at is %s, must be a text, for example "2026-01-31T08:00:00Z"', left((job -> 'run_at')::text, 64))
        WHEN (job -> 'priority')::text !~ '^(-?[0-9]{1,4}|null)$'
            THEN format('priority is %s, must be a whole number from 0 to 10', left((job -> 'priority')::text, 64))
        WHEN (job -> 'max_attempts')::text !~ '^(-?[0-9]{1,5}|null)$' OR (job ->> 'max_attempts')::int > 32767
            THEN format('max_attempts is %s, must be a whole number from 1 to 32767', left((job -> 'max_attempts')::text, 64))
        WHEN (job -> 'timeout_ms')::text !~ '^(-?[0-9]{1,10}|null)$' OR (job ->> 'timeout_ms')::bigint > 2147483647
            THEN format('timeout_ms is %s, must be a whole number from 1 to 2147483647', left((job -> 'timeout_ms')::text, 64))
        WHEN (job -> 'expected_ms')::text !~ '^(-?[0-9]{1,10}|null)$' OR (job ->> 'expected_ms')::bigint > 2147483647
            THEN format('expected_ms is %s, must be a whole number from 1 to 2147483647', left((job -> 'expected_ms')::text, 64))
    END
    FROM (SELECT min(k) AS name FROM jsonb_object_keys(CASE WHEN jsonb_typeof(job) = 'object'
        THEN job - further - '{type,payload,priority,run_at,max_attempts,timeout_ms,expected_ms,keys,traceparent,backoff}'::text[]
        ELSE '{}' END) k) u
$$;

-- Inserts jobs that are JSON objects. Job jobs[i] gets ids[i], statuses[i] and watched[i], and all get the parent. With checked, the caller
-- has checked the parent, and check_parent does not. Their unique keys get the owner. An earlier run_at becomes the present. The payload is
-- read from the object itself, because in a record the payload null would be as absent. Jobs without a trace context get that in the
-- setting dispatcherd.traceparent, which dispatchers set from the header of a call or from the parent. open_batch, insert_member,
-- insert_flow and insert_nodes call it, and dispatchers for children (claim/spawn.go).
CREATE FUNCTION dispatcherd.insert_jobs(jobs jsonb, ids bigint[], statuses dispatcherd.status[], watched boolean[], parent bigint,
    checked boolean DEFAULT false, owner text DEFAULT NULL) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO dispatcherd.jobs (id, status, type, payload, priority, run_at, first_run_at, max_attempts, timeout_ms, expected_ms, keys,
        unique_key, parent, watched, backoff, traceparent)
    SELECT ids[r.place], statuses[r.place], r.type, coalesce(r.job -> 'payload', '{}'), coalesce(r.priority, 0), d.due,
        CASE WHEN checked THEN d.due END, r.max_attempts, r.timeout_ms, r.expected_ms, r.keys,
        coalesce(owner || ' / ', '') || r.unique_key, parent, watched[r.place], r.backoff,
        coalesce(r.traceparent, nullif(current_setting('dispatcherd.traceparent', true), ''))
    FROM ROWS
        FROM (jsonb_to_recordset(jobs) AS (type text, priority smallint, run_at timestamptz, max_attempts smallint,
        timeout_ms int, expected_ms int, keys text, unique_key text, traceparent text, backoff text),
        jsonb_array_elements(jobs))
        WITH ORDINALITY AS r (type, priority, run_at, max_attempts, timeout_ms, expected_ms, keys, unique_key, traceparent, backoff, job,
            place)
            CROSS JOIN LATERAL (SELECT greatest(r.run_at, clock_timestamp()) AS due) d;
$$;

-- Opens a batch and returns its id. job is the callback, which runs after the members if run_when applies; it gets the id of the batch.
-- With a parent, the callback is a member of that batch. Producers call it.
CREATE FUNCTION dispatcherd.open_batch(job jsonb DEFAULT NULL, run_when text DEFAULT 'done', name text DEFAULT NULL,
    parent bigint DEFAULT NULL, caller dispatcherd.caller DEFAULT current_user) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    batch   bigint := nextval('dispatcherd.job_ids');
    problem text := dispatcherd.job_problem(job, '{}');
BEGIN
    IF job IS NOT NULL AND problem IS NOT NULL THEN
        RAISE check_violation USING CONSTRAINT = 'job_has_known_members', MESSAGE = 'the callback: ' || problem;
    ELSIF jsonb_typeof(job -> 'payload') <> 'object' THEN
        RAISE check_violation USING CONSTRAINT = 'payload_is_an_object',
            MESSAGE = 'the callback: payload must be a JSON object, because it gets the member "batch"';
    ELSIF job IS NULL AND parent IS NOT NULL THEN
        RAISE check_violation USING CONSTRAINT = 'parent_needs_a_callback', MESSAGE = 'a member of a batch needs a callback, to be a job';
    ELSIF run_when NOT IN ('done', 'ended', 'failed') THEN
        RAISE check_violation USING CONSTRAINT = 'run_when_is_done_ended_or_failed',
            MESSAGE = format('run_when is "%s", must be done, ended or failed', run_when);
    END IF;
    INSERT INTO dispatcherd.batches (id, kind, name, callback, run_when, owner) VALUES (batch, 'batch', name, job IS NOT NULL, run_when,
        dispatcherd.owner(caller, jsonb_build_array(job || jsonb_build_object('parent', parent))));
    PERFORM dispatcherd.insert_jobs(jsonb_build_array(job), ARRAY[batch], '{waiting}', '{true}', parent)
        WHERE job IS NOT NULL AND (parent IS NULL OR dispatcherd.owns_batch(parent, caller));
    RETURN batch;
END $$;

-- Inserts a member into an open batch and returns its id. Producers call it.
CREATE FUNCTION dispatcherd.insert_member(batch bigint, job jsonb, caller dispatcherd.caller DEFAULT current_user) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    id      bigint := nextval('dispatcherd.job_ids');
    problem text := dispatcherd.job_problem(job, '{unique_key}');
BEGIN
    IF problem IS NOT NULL THEN
        RAISE check_violation USING CONSTRAINT = 'job_has_known_members', MESSAGE = 'the member: ' || problem;
    END IF;
    PERFORM dispatcherd.insert_jobs(jsonb_build_array(job), ARRAY[id], '{pending}', NULL, batch,
        owner => dispatcherd.owner(caller, jsonb_build_array(job || '{"parent": 1}'))) WHERE dispatcherd.owns_batch(batch, caller);
    RETURN id;
END $$;

-- Seals a batch: it gets no further members, and its callback runs when all have ended. fired: no member is open, so it
-- follows at once. It does not lock a batch that is sealed. It counts members after it has waited for a lock, so each of its statements
-- needs a new snapshot. Producers call it.
CREATE FUNCTION dispatcherd.seal_batch(batch bigint, caller dispatcherd.caller DEFAULT current_user, OUT open int, OUT done int,
    OUT failed int, OUT cancelled int, OUT fired boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    what record;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE active_sql_transaction USING CONSTRAINT = 'isolation_is_read_committed',
            HINT = 'Begin it with BEGIN ISOLATION LEVEL READ COMMITTED.', MESSAGE =
            'seal_batch needs the isolation level read committed; this transaction has ' || current_setting('transaction_isolation');
    END IF;
    PERFORM dispatcherd.owns_batch(batch, caller);
    PERFORM FROM dispatcherd.batches b WHERE b.id = batch AND b.sealed_at IS NULL FOR UPDATE; -- waits for transactions that insert members
    SELECT b.kind, b.cancelled_by INTO what FROM dispatcherd.batches b WHERE b.id = batch AND b.kind <> 'children';
    IF NOT FOUND THEN
        RAISE no_data_found USING CONSTRAINT = 'batch_exists', MESSAGE = format('no batch %s', batch);
    ELSIF what.kind = 'flow' THEN
        RAISE wrong_object_type USING CONSTRAINT = 'flow_is_not_sealed',
            MESSAGE = format('%s is a flow, which is inserted with all of its nodes: only batches are sealed', batch);
    ELSIF what.cancelled_by IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING CONSTRAINT = 'batch_is_open', MESSAGE = format('batch %s is cancelled', batch);
    END IF;
    UPDATE dispatcherd.batches b SET sealed_at = clock_timestamp(), open = dispatcherd.open_members(batch)
        WHERE b.id = batch AND b.sealed_at IS NULL;
    IF FOUND THEN
        INSERT INTO dispatcherd.ends (target) VALUES (batch);
        PERFORM dispatcherd.notify_ends();
    END IF;
    SELECT b.open, b.done, b.failed, b.cancelled, b.open = 0 FROM dispatcherd.batches b WHERE b.id = batch
        INTO open, done, failed, cancelled, fired;
END $$;

-- Inserts a job, unless a pending or running job has the unique key, or the key is reserved. With for_time, it reserves the key for that
-- time in the table uniques. id is the job that has the key: the inserted one, if inserted is true. The key is one of the owner; NULL = the
-- dispatchers. It is reserved until an instant; NULL = it is free when the job has ended. Producers call it.
CREATE FUNCTION dispatcherd.insert_unique(job jsonb, unique_key text, for_time interval DEFAULT NULL,
    caller dispatcherd.caller DEFAULT current_user, OUT id bigint, OUT inserted boolean, OUT owner text, OUT until timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_variable
DECLARE
    fresh   bigint := nextval('dispatcherd.job_ids');
    problem text := dispatcherd.job_problem(job, '{}');
BEGIN
    IF problem IS NOT NULL THEN
        RAISE check_violation USING CONSTRAINT = 'job_has_known_members', MESSAGE = 'the job: ' || problem;
    ELSIF octet_length(unique_key) NOT BETWEEN 1 AND 512 OR unique_key IS NULL OR unique_key LIKE '% / %' THEN
        RAISE check_violation USING CONSTRAINT = 'unique_key_is_1_to_512_bytes',
            MESSAGE = format('unique key "%s" must have 1 to 512 bytes and not contain " / ", which follows the owner', unique_key);
    ELSIF for_time <= '0' OR for_time > '36525 days' THEN -- a later instant may have no representation in JSON
        RAISE check_violation USING CONSTRAINT = 'for_time_is_up_to_100_years',
            MESSAGE = format('for_time is %s, must be > 0 and at most 100 years (36525 days), or NULL', for_time);
    END IF;
    owner := dispatcherd.owner(caller, jsonb_build_array(job || '{"unique_key": "k"}'));
    unique_key := coalesce(owner || ' / ', '') || unique_key;
    inserted := false;
    FOR round IN 1..10 LOOP -- the job that has the key may end between two statements
        -- a serializable transaction does not read the page of the index into which it then writes: others would conflict with it
        SELECT u.job_id, u.until INTO id, until FROM dispatcherd.uniques u WHERE u.key = unique_key AND u.until > clock_timestamp()
            AND (round > 1 OR for_time IS NULL OR current_setting('transaction_isolation') <> 'serializable');
        EXIT WHEN FOUND;
        IF for_time > '0' THEN -- the second of two transactions waits here
            INSERT INTO dispatcherd.uniques AS u (key, job_id, until) VALUES (unique_key, fresh, clock_timestamp() + for_time)
                ON CONFLICT (key) DO UPDATE SET job_id = EXCLUDED.job_id, until = EXCLUDED.until WHERE u.until <= clock_timestamp()
                RETURNING u.until INTO until;
            CONTINUE WHEN NOT FOUND;
        END IF;
        INSERT INTO dispatcherd.jobs (id, unique_key, type, payload, priority, run_at, max_attempts, timeout_ms, expected_ms, keys,
            traceparent, backoff) SELECT fresh, unique_key, r.type, coalesce(job -> 'payload', '{}'), coalesce(r.priority, 0),
            greatest(r.run_at, clock_timestamp()), r.max_attempts, r.timeout_ms, r.expected_ms, r.keys, r.traceparent, r.backoff
        FROM jsonb_to_record(job) AS r (type text, priority smallint, run_at timestamptz, max_attempts smallint, timeout_ms int,
            expected_ms int, keys text, traceparent text, backoff text) ON CONFLICT DO NOTHING;
        inserted := FOUND;
        id := fresh;
        EXIT WHEN inserted;
        SELECT j.id INTO id FROM dispatcherd.jobs_live j WHERE j.unique_key = insert_unique.unique_key;
        UPDATE dispatcherd.uniques u SET job_id = insert_unique.id WHERE id IS NOT NULL AND u.job_id = fresh AND u.key = unique_key;
        EXIT WHEN id IS NOT NULL;
        DELETE FROM dispatcherd.uniques u WHERE u.job_id = fresh AND u.key = unique_key;
    END LOOP;
    IF id IS NULL THEN
        RAISE serialization_failure USING MESSAGE = 'the unique key changed its job all the time; try again';
    END IF;
END $$;

-- Inserts a flow and returns its id and those of its nodes. It locks no row of other jobs: dispatchers link the jobs outside the flow on
-- which nodes depend (see edges). Producers call it.
CREATE FUNCTION dispatcherd.insert_flow(flow jsonb, caller dispatcherd.caller DEFAULT current_user) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_variable
DECLARE
    batch  bigint := nextval('dispatcherd.job_ids');
    nodes  jsonb := flow -> 'nodes';
    places jsonb; -- by name
    ids    bigint[];
    bad    record;
BEGIN
    SELECT p.* INTO bad FROM dispatcherd.flow_problem(flow) p;
    PERFORM dispatcherd.reject_flow(bad.node, bad.rule, bad.why) WHERE bad.rule IS NOT NULL;
    ids := ARRAY (SELECT nextval('dispatcherd.job_ids') FROM generate_series(1, jsonb_array_length(nodes)));
    places := (SELECT jsonb_object_agg(n.node ->> 'name', n.place) FROM jsonb_array_elements(nodes) WITH ORDINALITY AS n (node, place));
    INSERT INTO dispatcherd.batches (id, kind, name, callback, run_when, owner)
        VALUES (batch, 'flow', flow ->> 'name', flow ? 'callback', coalesce(flow -> 'callback' ->> 'run_when', 'done'),
            dispatcherd.owner(caller, nodes || coalesce(flow -> 'callback', '[]')));
    INSERT INTO dispatcherd.nodes AS d (id, flow, place, name, depends_on, run_when, takes_results, open, ready_at)
    SELECT ids[n.place], batch, n.place, n.node ->> 'name', a.ids, coalesce(n.node ->> 'run_when', 'done'),
        coalesce((n.node ->> 'takes_results')::boolean, false), cardinality(a.ids), CASE WHEN a.ids = '{}' THEN clock_timestamp() END
    FROM jsonb_array_elements(nodes) WITH ORDINALITY AS n (node, place) CROSS JOIN LATERAL (
        SELECT ARRAY (SELECT DISTINCT CASE WHEN jsonb_typeof(e) = 'string' THEN ids[(places ->> (e #>> '{}'))::int]
            WHEN e::bigint BETWEEN ids[1] AND ids[cardinality(ids)] THEN 0 ELSE e::bigint END
            FROM jsonb_array_elements(n.node -> 'after') AS e) AS ids) a;
    INSERT INTO dispatcherd.edges (before, flow, after, linked)
    SELECT x.id, batch, array_agg(d.id ORDER BY d.id), CASE WHEN x.id NOT BETWEEN ids[1] AND ids[cardinality(ids)] THEN false END
    FROM dispatcherd.nodes d CROSS JOIN unnest(d.depends_on) AS x (id) WHERE d.flow = batch GROUP BY x.id;
    SELECT d.name, e.before, e.missing INTO bad
    FROM (SELECT g.before, g.after, (SELECT j.id FROM dispatcherd.jobs j WHERE j.id = g.before LIMIT 1) IS NULL AS missing
        FROM dispatcherd.edges g WHERE g.flow = batch AND NOT g.linked) e
    CROSS JOIN unnest(e.after) AS a (id) JOIN dispatcherd.nodes d ON d.id = a.id
    WHERE e.missing OR d.takes_results AND NOT coalesce(has_column_privilege(caller, 'dispatcherd.jobs', 'result', 'SELECT'), false)
    ORDER BY d.place LIMIT 1;
    PERFORM dispatcherd.reject_flow(bad.name, 'results_of_other_jobs_may_be_read',
        'takes_results needs the right to read the results of jobs outside the flow: '
        'leave it out, or insert the flow over the API or as an operator') WHERE NOT bad.missing;
    PERFORM dispatcherd.reject_flow(bad.name, 'node_depends_on_existing_jobs',
        coalesce((SELECT format('%s is a %s without a callback, so it is no job', b.id, b.kind)
        FROM dispatcherd.batches b WHERE b.id = bad.before AND NOT b.callback AND b.kind <> 'children'),
            format('job %s does not exist', bad.before))) WHERE bad.missing;
    PERFORM dispatcherd.insert_nodes(batch, nodes, ids);
    BEGIN
        PERFORM dispatcherd.insert_jobs('[]' || flow['callback'], ARRAY[batch], '{waiting}', '{true}', NULL) WHERE flow ? 'callback';
    EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
        PERFORM dispatcherd.reject_flow(NULL, 'callback_is_a_job', 'the callback: ' || SQLERRM);
    END;
    UPDATE dispatcherd.batches SET sealed_at = clock_timestamp(), open = cardinality(ids) WHERE id = batch;
    INSERT INTO dispatcherd.ends (target) SELECT batch WHERE EXISTS (SELECT FROM dispatcherd.edges e WHERE e.flow = batch AND NOT e.linked);
    PERFORM dispatcherd.notify_ends() WHERE FOUND;
    RETURN jsonb_build_object('id', batch, 'nodes', (SELECT jsonb_object_agg(d.name, d.id) FROM dispatcherd.nodes d WHERE d.flow = batch));
END $$;

-- Returns the first rule that the document of a flow breaks, as far as the document shows it, the node (NULL = the flow itself), and a
-- sentence. The nodes are looked at only if their number and that of the dependencies are within bounds. insert_flow calls it.
CREATE FUNCTION dispatcherd.flow_problem(flow jsonb, OUT node text, OUT rule text, OUT why text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
WITH whole AS MATERIALIZED (
    SELECT CASE
        WHEN jsonb_typeof(flow) IS DISTINCT FROM 'object' OR flow - '{name,callback,nodes}'::text[] <> '{}' THEN ARRAY[
            'flow_has_known_members', 'it must be a JSON object with the members nodes, name and callback only']
        WHEN jsonb_typeof(flow -> 'nodes') IS DISTINCT FROM 'array' THEN ARRAY[
            'flow_has_1_to_10000_nodes', 'nodes must be an array of 1 to 10000 nodes']
        WHEN jsonb_array_length(flow -> 'nodes') NOT BETWEEN 1 AND 10000 THEN ARRAY[
            'flow_has_1_to_10000_nodes',
            format('nodes must be an array of 1 to 10000 nodes, and has %s', jsonb_array_length(flow -> 'nodes'))]
        WHEN (SELECT sum(jsonb_array_length(n -> 'after')) FROM jsonb_array_elements(flow -> 'nodes') n
            WHERE jsonb_typeof(n -> 'after') = 'array') > 100000 THEN ARRAY[
            'flow_has_at_most_100000_edges', 'the nodes have more than 100000 dependencies together: insert a node between many and many']
        WHEN jsonb_typeof(flow -> 'name') NOT IN ('string', 'null') OR octet_length(flow ->> 'name') NOT BETWEEN 1 AND 128 THEN ARRAY[
            'name_is_1_to_128_bytes', format('name is %s, must be a text of 1 to 128 bytes', left((flow -> 'name')::text, 64))]
        WHEN flow ? 'callback' AND dispatcherd.job_problem(flow -> 'callback', '{run_when}') IS NOT NULL THEN ARRAY[
            'flow_has_known_members', 'the callback: ' || dispatcherd.job_problem(flow -> 'callback', '{run_when}')]
        WHEN flow -> 'callback' ->> 'run_when' NOT IN ('done', 'ended', 'failed') THEN ARRAY['run_when_is_done_ended_or_failed',
            format('run_when of the callback is "%s", must be done, ended or failed', flow -> 'callback' ->> 'run_when')]
        WHEN jsonb_typeof(flow -> 'callback' -> 'payload') <> 'object' THEN ARRAY[
            'payload_is_an_object', 'the payload of the callback must be a JSON object, because it gets the member "batch"']
    END AS problem
), item AS MATERIALIZED (
    SELECT n.node, n.place, n.node ->> 'name' AS name,
        CASE WHEN jsonb_typeof(n.node -> 'after') = 'array' THEN n.node -> 'after' END AS after,
        dispatcherd.job_problem(n.node, '{name,after,run_when,takes_results}') AS problem
    FROM jsonb_array_elements(CASE WHEN (SELECT problem FROM whole) IS NULL THEN flow -> 'nodes' ELSE '[]' END)
        WITH ORDINALITY AS n (node, place)
), places AS MATERIALIZED (
    SELECT jsonb_object_agg(coalesce(name, ''), place) AS of FROM item
), checked AS (
    SELECT 0 AS place, NULL AS name, problem FROM whole
    UNION ALL
    SELECT i.place, coalesce(i.name, i.place::text), CASE
        WHEN i.problem IS NOT NULL THEN ARRAY['node_has_known_members', i.problem]
        WHEN NOT node ? 'name' THEN ARRAY['node_name_is_1_to_128_bytes', 'name is missing']
        WHEN jsonb_typeof(node -> 'name') <> 'string' OR octet_length(i.name) NOT BETWEEN 1 AND 128 THEN ARRAY[
            'node_name_is_1_to_128_bytes', format('name is %s, must be a text of 1 to 128 bytes', left((node -> 'name')::text, 64))]
        WHEN i.name ~ '^[0-9]+$' THEN ARRAY['node_name_is_no_number', 'name must not be a number, because numbers are ids of jobs']
        WHEN (p.of ->> i.name)::int <> i.place THEN ARRAY['node_name_is_unique', 'another node has the same name']
        WHEN coalesce(node ->> 'run_when', 'done') NOT IN ('done', 'ended', 'failed') THEN ARRAY[
            'run_when_is_done_ended_or_failed', format('run_when is "%s", must be done, ended or failed', node ->> 'run_when')]
        WHEN jsonb_typeof(node -> 'after') <> 'array' OR jsonb_path_exists(i.after, '$[*] ? (@.type() != "string" && @.type() != "number"
            || @.type() == "number" && (@ < 1 || @ > 9223372036854775807 || @.floor() != @))') THEN ARRAY[
            'node_depends_on_known_nodes', 'after must be an array of names of nodes and ids of jobs']
        WHEN node ->> 'run_when' = 'failed' AND coalesce(jsonb_array_length(i.after), 0) = 0 THEN ARRAY[
            'failed_needs_dependencies', 'run_when "failed" needs at least one dependency in after']
        WHEN jsonb_typeof(node -> 'takes_results') <> 'boolean' THEN ARRAY['node_has_known_members', 'takes_results must be true or false']
        WHEN node -> 'takes_results' = 'true' AND jsonb_array_length(i.after) > 100 THEN ARRAY['takes_at_most_100_results',
            format('it takes the results of %s dependencies, at most 100 are possible', jsonb_array_length(i.after))]
        WHEN node -> 'takes_results' = 'true' AND jsonb_typeof(node -> 'payload') <> 'object' THEN ARRAY[
            'payload_is_an_object', 'payload must be a JSON object, because it gets the member "inputs"']
        ELSE (SELECT CASE
                WHEN p.of ->> (e #>> '{}') IS NULL THEN ARRAY[
                    'node_depends_on_known_nodes', format('after names "%s", which is no node of the flow', e #>> '{}')]
                WHEN e #>> '{}' = i.name THEN ARRAY['node_depends_on_earlier_nodes', 'it depends on itself']
                ELSE ARRAY['node_depends_on_earlier_nodes', format(
                    'after names "%s", which is a later node: dependencies must come first, so no cycle is possible', e #>> '{}')]
            END FROM jsonb_array_elements(i.after) e
            WHERE jsonb_typeof(e) = 'string' AND ((p.of ->> (e #>> '{}'))::int < i.place) IS NOT TRUE LIMIT 1)
    END
    FROM item i CROSS JOIN places p
)
SELECT name, problem[1], problem[2] FROM checked WHERE problem IS NOT NULL ORDER BY place LIMIT 1
$$;

-- insert_flow and insert_nodes call it: raises the error of a node, or of the flow itself if node is NULL.
CREATE FUNCTION dispatcherd.reject_flow(node text, rule text, why text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE check_violation USING CONSTRAINT = rule, SCHEMA = 'dispatcherd', TABLE = 'nodes', COLUMN = coalesce(node, ''),
        MESSAGE = CASE WHEN node IS NULL THEN 'flow: ' || why ELSE format('flow: node "%s": %s', node, why) END;
END $$;

-- insert_flow calls it: inserts the jobs of nodes. If one is refused, it inserts them one by one, so that the error names the node.
CREATE FUNCTION dispatcherd.insert_nodes(batch bigint, nodes jsonb, ids bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    statuses dispatcherd.status[] := (
        SELECT array_agg(CASE open WHEN 0 THEN 'pending' ELSE 'waiting' END ORDER BY place) FROM dispatcherd.nodes WHERE flow = batch);
    rule     text;
BEGIN
    BEGIN
        PERFORM dispatcherd.insert_jobs(nodes, ids, statuses, array_fill(false, ARRAY[cardinality(ids)]), batch);
    EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
        FOR i IN 1..cardinality(ids) LOOP
            BEGIN
                PERFORM dispatcherd.insert_jobs(jsonb_build_array(nodes -> (i - 1)), ids[i:i], statuses[i:i], NULL, batch);
            EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
                GET STACKED DIAGNOSTICS rule = CONSTRAINT_NAME;
                PERFORM dispatcherd.reject_flow(nodes -> (i - 1) ->> 'name', coalesce(nullif(rule, ''), 'node_is_a_job'), SQLERRM);
            END;
        END LOOP;
        RAISE;
    END;
END $$;

-- Tells dispatchers that batches or flows have messages. The functions of producers call it.
CREATE FUNCTION dispatcherd.notify_ends() RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_notify('dispatcherd', 'ends') WHERE dispatcherd.may_notify()
$$;
