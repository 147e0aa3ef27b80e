-- What producers and operators call: batches, flows, unique jobs, children, cancel, retry, repair; and retention.

-- +goose Up

-- What is wrong with the members of a job, as SQL can say it without the table; NULL = nothing.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.job_problem(job jsonb, further text[]) RETURNS text LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    unknown text;
BEGIN
    IF jsonb_typeof(job) IS DISTINCT FROM 'object' THEN
        RETURN 'a job must be a JSON object';
    END IF;
    unknown := (SELECT min(k) FROM jsonb_object_keys(job - further - '{type,payload,priority,run_at,max_attempts,timeout_ms,keys}'::text[]) k);
    RETURN CASE
        WHEN unknown IS NOT NULL THEN format('"%s" is unknown', unknown)
        WHEN job ->> 'type' IS NULL THEN 'type is missing'
        WHEN jsonb_typeof(job -> 'type') <> 'string' THEN format('type is %s, must be a text', left((job -> 'type')::text, 64))
        WHEN jsonb_typeof(job -> 'keys') NOT IN ('string', 'null') THEN format('keys is %s, must be a text of words, for example "tenant:42 stripe*3"', left((job -> 'keys')::text, 64))
        WHEN jsonb_typeof(job -> 'unique_key') NOT IN ('string', 'null') THEN format('unique_key is %s, must be a text', left((job -> 'unique_key')::text, 64))
        WHEN jsonb_typeof(job -> 'run_at') NOT IN ('string', 'null') THEN format('run_at is %s, must be a text, for example "2026-01-31T08:00:00Z"', left((job -> 'run_at')::text, 64))
        WHEN (job -> 'priority')::text !~ '^(-?[0-9]{1,4}|null)$' THEN format('priority is %s, must be a whole number from 0 to 10', left((job -> 'priority')::text, 64))
        WHEN (job -> 'max_attempts')::text !~ '^(-?[0-9]{1,5}|null)$' OR (job ->> 'max_attempts')::int > 32767
            THEN format('max_attempts is %s, must be a whole number from 1 to 32767', left((job -> 'max_attempts')::text, 64))
        WHEN (job -> 'timeout_ms')::text !~ '^(-?[0-9]{1,10}|null)$' OR (job ->> 'timeout_ms')::bigint > 2147483647
            THEN format('timeout_ms is %s, must be a whole number from 1 to 2147483647', left((job -> 'timeout_ms')::text, 64))
    END;
END $$;
-- +goose StatementEnd

-- Inserts jobs that are JSON objects: job jobs[i] gets ids[i], statuses[i] and watched[i], and all get the parent, which checked says need not
-- be checked. No run_at is in the past.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.insert_jobs(jobs jsonb, ids bigint[], statuses dispatcherd.status[], watched boolean[], parent bigint, checked boolean DEFAULT false) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    INSERT INTO dispatcherd.jobs (id, status, type, payload, priority, run_at, first_run_at, max_attempts, timeout_ms, keys, unique_key, parent, watched)
    SELECT ids[r.place], statuses[r.place], r.type, coalesce(r.payload, '{}'), coalesce(r.priority, 0), d.due, CASE WHEN checked THEN d.due END, coalesce(r.max_attempts, 5),
        r.timeout_ms, r.keys, r.unique_key, parent, watched[r.place]
    FROM ROWS FROM (jsonb_to_recordset(jobs) AS (type text, payload jsonb, priority smallint, run_at timestamptz, max_attempts smallint, timeout_ms int, keys text, unique_key text))
        WITH ORDINALITY AS r (type, payload, priority, run_at, max_attempts, timeout_ms, keys, unique_key, place) CROSS JOIN LATERAL (SELECT greatest(r.run_at, clock_timestamp()) AS due) d;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION dispatcherd.open_batch(job jsonb DEFAULT NULL, run_when text DEFAULT 'done', name text DEFAULT NULL, parent bigint DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    batch   bigint := nextval('dispatcherd.job_ids');
    problem text := dispatcherd.job_problem(job, '{}');
BEGIN
    IF job IS NOT NULL AND problem IS NOT NULL THEN
        RAISE check_violation USING CONSTRAINT = 'job_has_known_members', MESSAGE = 'the callback: ' || problem;
    ELSIF jsonb_typeof(job -> 'payload') <> 'object' THEN
        RAISE check_violation USING CONSTRAINT = 'payload_is_an_object', MESSAGE = 'the callback: payload must be a JSON object, because it gets the member "batch"';
    ELSIF job IS NULL AND parent IS NOT NULL THEN
        RAISE check_violation USING CONSTRAINT = 'parent_needs_a_callback', MESSAGE = 'a batch without a callback cannot be the member of a batch';
    END IF;
    INSERT INTO dispatcherd.batches (id, kind, name, callback, run_when) VALUES (batch, 'batch', name, job IS NOT NULL, run_when);
    PERFORM dispatcherd.insert_jobs(jsonb_build_array(job), ARRAY[batch], '{waiting}', '{true}', parent) WHERE job IS NOT NULL;
    RETURN batch;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION dispatcherd.insert_member(batch bigint, job jsonb) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    id      bigint := nextval('dispatcherd.job_ids');
    problem text := dispatcherd.job_problem(job, '{unique_key}');
BEGIN
    IF problem IS NOT NULL THEN
        RAISE check_violation USING CONSTRAINT = 'job_has_known_members', MESSAGE = 'the member: ' || problem;
    ELSIF batch IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'batch is NULL, must be the id that open_batch returned';
    END IF;
    PERFORM dispatcherd.insert_jobs(jsonb_build_array(job), ARRAY[id], '{pending}', NULL, batch);
    RETURN id;
END $$;
-- +goose StatementEnd

-- Tells dispatchers that there is something to settle.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.notify_ends() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('dispatcherd_ends', '') WHERE dispatcherd.may_notify();
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION dispatcherd.seal_batch(batch bigint, OUT open int, OUT done int, OUT failed int, OUT cancelled int, OUT fired boolean) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    what record;
BEGIN
    PERFORM dispatcherd.require_read_committed('seal_batch');
    IF batch IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'batch is NULL, must be the id that open_batch returned';
    END IF;
    SELECT b.kind, b.cancelled_by INTO what FROM dispatcherd.batches b WHERE b.id = batch AND b.kind <> 'children' FOR UPDATE; -- waits for transactions that insert members
    IF NOT FOUND THEN
        RAISE no_data_found USING CONSTRAINT = 'batch_exists', MESSAGE = format('no batch %s', batch);
    ELSIF what.kind = 'flow' THEN
        RAISE wrong_object_type USING CONSTRAINT = 'flow_is_not_sealed', MESSAGE = format('%s is a flow, which is inserted with all of its nodes: only batches are sealed', batch);
    ELSIF what.cancelled_by IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING CONSTRAINT = 'batch_is_open', MESSAGE = format('batch %s is cancelled', batch);
    END IF;
    PERFORM dispatcherd.seal(ARRAY[batch]);
    PERFORM dispatcherd.notify_ends();
    SELECT b.open, b.done, b.failed, b.cancelled, b.ended_at IS NOT NULL INTO open, done, failed, cancelled, fired FROM dispatcherd.batches b WHERE b.id = batch;
END $$;
-- +goose StatementEnd

-- Cancels a job, batch or flow, and everything below it: of each level 10,000 jobs at once, and the others when dispatchers settle.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.cancel_tree(job bigint, by text DEFAULT NULL, OUT cancelled int, OUT running int) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    who   text := dispatcherd.canceller(by);
    batch boolean;
    below record;
BEGIN
    PERFORM dispatcherd.require_read_committed('cancel_tree');
    PERFORM FROM dispatcherd.batches b WHERE b.id = job FOR NO KEY UPDATE;
    batch := FOUND;
    IF NOT batch AND NOT EXISTS (SELECT FROM dispatcherd.jobs j WHERE j.id = job) THEN
        RAISE no_data_found USING CONSTRAINT = 'job_exists', MESSAGE = format('no job, batch or flow %s', job);
    END IF;
    cancelled := dispatcherd.end_idle(ARRAY[job], 'cancelled', who, NULL);
    running := (SELECT count(*) FROM dispatcherd.jobs_live j WHERE j.id = job AND j.status = 'running');
    PERFORM dispatcherd.cancel_runs(ARRAY[job], who) WHERE running > 0;
    IF batch THEN
        SELECT * INTO below FROM dispatcherd.cancel_members(ARRAY[job], who);
        cancelled := cancelled + below.cancelled;
        running := running + below.running;
    END IF;
    PERFORM dispatcherd.notify_ends();
END $$;
-- +goose StatementEnd

-- Inserts a job unless a pending or running job has the key, or a job has reserved it for a time. id is the job that has the key.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.insert_unique(job jsonb, unique_key text, for_time interval DEFAULT NULL, OUT id bigint, OUT inserted boolean) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_variable
DECLARE
    fresh   bigint := nextval('dispatcherd.job_ids');
    problem text := dispatcherd.job_problem(job, '{}');
BEGIN
    IF problem IS NOT NULL THEN
        RAISE check_violation USING CONSTRAINT = 'job_has_known_members', MESSAGE = 'the job: ' || problem;
    ELSIF octet_length(unique_key) NOT BETWEEN 1 AND 512 OR unique_key IS NULL THEN
        RAISE check_violation USING CONSTRAINT = 'unique_key_is_1_to_512_bytes', MESSAGE = 'the unique key must have 1 to 512 bytes';
    ELSIF for_time <= '0' THEN
        RAISE check_violation USING CONSTRAINT = 'for_time_is_positive', MESSAGE = format('for_time is %s, must be longer than 0, or NULL', for_time);
    END IF;
    inserted := false;
    FOR round IN 1..10 LOOP -- the job that has the key may end between two statements
        SELECT u.job_id INTO id FROM dispatcherd.uniques u WHERE u.key = unique_key AND u.until > clock_timestamp();
        EXIT WHEN FOUND;
        IF for_time > '0' THEN -- the second of two transactions waits here
            INSERT INTO dispatcherd.uniques AS u (key, job_id, until) VALUES (unique_key, fresh, clock_timestamp() + for_time)
                ON CONFLICT (key) DO UPDATE SET job_id = EXCLUDED.job_id, until = EXCLUDED.until WHERE u.until <= clock_timestamp();
            CONTINUE WHEN NOT FOUND;
        END IF;
        INSERT INTO dispatcherd.jobs (id, type, payload, priority, run_at, max_attempts, timeout_ms, keys, unique_key)
        SELECT fresh, r.type, coalesce(r.payload, '{}'), coalesce(r.priority, 0), greatest(r.run_at, clock_timestamp()), coalesce(r.max_attempts, 5), r.timeout_ms, r.keys, unique_key
        FROM jsonb_to_record(job) AS r (type text, payload jsonb, priority smallint, run_at timestamptz, max_attempts smallint, timeout_ms int, keys text)
        ON CONFLICT DO NOTHING;
        inserted := FOUND;
        IF inserted THEN
            id := fresh;
            EXIT;
        END IF;
        SELECT j.id INTO id FROM dispatcherd.jobs_live j WHERE j.unique_key = insert_unique.unique_key;
        IF FOUND THEN
            UPDATE dispatcherd.uniques u SET job_id = insert_unique.id WHERE u.key = insert_unique.unique_key AND for_time > '0';
            EXIT;
        END IF;
        DELETE FROM dispatcherd.uniques u WHERE u.job_id = fresh AND u.key = unique_key;
    END LOOP;
    IF id IS NULL THEN
        RAISE serialization_failure USING MESSAGE = 'the unique key changed its job all the time; try again';
    END IF;
END $$;
-- +goose StatementEnd

-- Inserts children of an attempt that runs. Its end waits for this transaction.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.insert_children(parent bigint, attempt int, jobs jsonb, detached boolean DEFAULT false) RETURNS bigint[] LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_variable
DECLARE
    n       int := CASE WHEN jsonb_typeof(jobs) = 'array' THEN jsonb_array_length(jobs) ELSE 0 END;
    ids     bigint[];
    problem text;
BEGIN
    IF n NOT BETWEEN 1 AND 1000 THEN
        RAISE check_violation USING CONSTRAINT = 'children_are_1_to_1000', MESSAGE = 'the children must be an array of 1 to 1000 jobs';
    END IF;
    SELECT format('child %s: %s', place, p) INTO problem FROM jsonb_array_elements(jobs) WITH ORDINALITY AS c (job, place), dispatcherd.job_problem(job, '{unique_key}') p
        WHERE p IS NOT NULL ORDER BY place LIMIT 1;
    IF FOUND THEN
        RAISE check_violation USING CONSTRAINT = 'job_has_known_members', MESSAGE = problem;
    END IF;
    PERFORM FROM dispatcherd.jobs_live j WHERE j.id = parent AND j.attempt = insert_children.attempt AND j.status = 'running' FOR NO KEY UPDATE;
    IF NOT FOUND OR EXISTS (SELECT FROM dispatcherd.cancels c WHERE c.job_id = parent) THEN
        RAISE object_not_in_prerequisite_state USING CONSTRAINT = 'parent_is_running', MESSAGE = format('attempt %s of job %s does not run, or is being cancelled', attempt, parent);
    END IF;
    IF NOT detached THEN
        IF EXISTS (SELECT FROM dispatcherd.batches b WHERE b.id = parent AND b.kind <> 'children') THEN
            RAISE object_not_in_prerequisite_state USING CONSTRAINT = 'callback_has_no_children', MESSAGE = format('job %s is the callback of a batch or flow: its children must be detached', parent);
        END IF;
        UPDATE dispatcherd.jobs_live j SET watched = true WHERE j.id = parent AND j.watched IS NULL;
        INSERT INTO dispatcherd.batches AS b (id, kind) VALUES (parent, 'children') -- a row that is cancelled is that of a run before a retry
            ON CONFLICT (id) DO UPDATE SET sealed_at = NULL, ended_at = NULL, open = NULL, cancelled_by = NULL WHERE b.sealed_at IS NOT NULL OR b.cancelled_by IS NOT NULL;
        IF EXISTS (SELECT FROM dispatcherd.cancels c WHERE c.job_id = parent) THEN -- the row was locked by a cancellation
            RAISE object_not_in_prerequisite_state USING CONSTRAINT = 'parent_is_running', MESSAGE = format('job %s is being cancelled', parent);
        END IF;
        IF n + (SELECT count(*) FROM (SELECT FROM dispatcherd.jobs_live j WHERE j.parent = insert_children.parent LIMIT 10000) c) > 10000 THEN
            RAISE program_limit_exceeded USING CONSTRAINT = 'children_are_at_most_10000', MESSAGE = format('job %s has more than 10000 open children', parent);
        END IF;
    END IF;
    ids := ARRAY (SELECT nextval('dispatcherd.job_ids') FROM generate_series(1, n));
    PERFORM dispatcherd.insert_jobs(jobs, ids, array_fill('pending'::dispatcherd.status, ARRAY[n]), NULL, CASE WHEN NOT detached THEN parent END, NOT detached);
    RETURN ids;
END $$;
-- +goose StatementEnd

-- What is wrong with a node, as the document alone says it: the rule and a sentence; NULL = nothing.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.node_problem(node jsonb, OUT rule text, OUT why text) LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    dependencies int := CASE WHEN jsonb_typeof(node -> 'after') = 'array' THEN jsonb_array_length(node -> 'after') ELSE 0 END;
BEGIN
    why := dispatcherd.job_problem(node, '{name,after,run_when,takes_results}');
    IF why IS NOT NULL THEN
        rule := 'node_has_known_members';
    ELSIF jsonb_typeof(node -> 'name') IS DISTINCT FROM 'string' OR octet_length(node ->> 'name') NOT BETWEEN 1 AND 128 THEN
        rule := 'node_name_is_1_to_128_bytes';
        why := CASE WHEN node ? 'name' THEN format('name is %s, must be a text of 1 to 128 bytes', left((node -> 'name')::text, 64)) ELSE 'name is missing' END;
    ELSIF node ->> 'name' ~ '^[0-9]+$' THEN
        rule := 'node_name_is_no_number';
        why := 'name must not be a number, because numbers are ids of jobs';
    ELSIF coalesce(node ->> 'run_when', 'done') NOT IN ('done', 'ended', 'failed') THEN
        rule := 'run_when_is_done_ended_or_failed';
        why := format('run_when is "%s", must be done, ended or failed', node ->> 'run_when');
    ELSIF jsonb_typeof(node -> 'after') <> 'array' OR jsonb_path_exists(node, '$.after[*] ? (@.type() != "string" && @.type() != "number" || @.type() == "number" && (@ < 1 || @ > 9223372036854775807 || @.floor() != @))') THEN
        rule := 'node_depends_on_known_nodes';
        why := 'after must be an array of names of nodes and ids of jobs';
    ELSIF node ->> 'run_when' = 'failed' AND dependencies = 0 THEN
        rule := 'failed_needs_dependencies';
        why := 'run_when "failed" needs at least one dependency in after';
    ELSIF jsonb_typeof(node -> 'takes_results') <> 'boolean' THEN
        rule := 'node_has_known_members';
        why := 'takes_results must be true or false';
    ELSIF node -> 'takes_results' = 'true' AND dependencies > 100 THEN
        rule := 'takes_at_most_100_results';
        why := format('it takes the results of %s dependencies, at most 100 are possible', dependencies);
    ELSIF node -> 'takes_results' = 'true' AND jsonb_typeof(node -> 'payload') <> 'object' THEN
        rule := 'payload_is_an_object';
        why := 'payload must be a JSON object, because it gets the member "inputs"';
    END IF;
END $$;
-- +goose StatementEnd

-- Rejects a flow because of a node, or because of the flow itself if the node is NULL.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.reject_flow(node text, rule text, why text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE check_violation USING CONSTRAINT = rule, SCHEMA = 'dispatcherd', TABLE = 'nodes', COLUMN = coalesce(node, ''),
        MESSAGE = CASE WHEN node IS NULL THEN 'flow: ' || why ELSE format('flow: node "%s": %s', node, why) END;
END $$;
-- +goose StatementEnd

-- Checks what a flow says about itself and each node alone.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.check_flow(flow jsonb) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bad record;
BEGIN
    IF jsonb_typeof(flow) IS DISTINCT FROM 'object' OR flow - '{name,callback,nodes}'::text[] <> '{}' THEN
        PERFORM dispatcherd.reject_flow(NULL, 'flow_has_known_members', 'it must be a JSON object with the members nodes, name and callback only');
    ELSIF jsonb_typeof(flow -> 'nodes') IS DISTINCT FROM 'array' OR jsonb_array_length(flow -> 'nodes') NOT BETWEEN 1 AND 10000 THEN
        PERFORM dispatcherd.reject_flow(NULL, 'flow_has_1_to_10000_nodes', 'nodes must be an array of 1 to 10000 nodes'
            || CASE WHEN jsonb_typeof(flow -> 'nodes') = 'array' THEN format(', and has %s', jsonb_array_length(flow -> 'nodes')) ELSE '' END);
    ELSIF jsonb_typeof(flow -> 'name') NOT IN ('string', 'null') OR octet_length(flow ->> 'name') NOT BETWEEN 1 AND 128 THEN
        PERFORM dispatcherd.reject_flow(NULL, 'name_is_1_to_128_bytes', format('name is %s, must be a text of 1 to 128 bytes', left((flow -> 'name')::text, 64)));
    ELSIF dispatcherd.job_problem(flow -> 'callback', '{run_when}') IS NOT NULL AND flow ? 'callback' THEN
        PERFORM dispatcherd.reject_flow(NULL, 'flow_has_known_members', 'the callback: ' || dispatcherd.job_problem(flow -> 'callback', '{run_when}'));
    ELSIF jsonb_typeof(flow -> 'callback' -> 'payload') <> 'object' THEN
        PERFORM dispatcherd.reject_flow(NULL, 'payload_is_an_object', 'the payload of the callback must be a JSON object, because it gets the member "batch"');
    END IF;
    SELECT coalesce(n.node ->> 'name', n.place::text) AS name, p.rule, p.why INTO bad
        FROM jsonb_array_elements(flow -> 'nodes') WITH ORDINALITY AS n (node, place), dispatcherd.node_problem(n.node) p WHERE p.rule IS NOT NULL ORDER BY n.place LIMIT 1;
    IF FOUND THEN
        PERFORM dispatcherd.reject_flow(bad.name, bad.rule, bad.why);
    END IF;
    SELECT n.node ->> 'name' AS name INTO bad FROM jsonb_array_elements(flow -> 'nodes') AS n (node) GROUP BY 1 HAVING count(*) > 1 LIMIT 1;
    IF FOUND THEN
        PERFORM dispatcherd.reject_flow(bad.name, 'node_name_is_unique', 'another node has the same name');
    END IF;
END $$;
-- +goose StatementEnd

-- Rejects a flow because of the first dependency of node at place that is no earlier node.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.reject_dependency(node jsonb, places jsonb, place int) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    e  jsonb;
    at int;
BEGIN
    FOR e IN SELECT jsonb_array_elements(node -> 'after') LOOP
        at := places ->> (e #>> '{}');
        IF jsonb_typeof(e) = 'number' THEN
            CONTINUE;
        ELSIF at IS NULL THEN
            PERFORM dispatcherd.reject_flow(node ->> 'name', 'node_depends_on_known_nodes', format('after names "%s", which is no node of the flow', e #>> '{}'));
        ELSIF at = place THEN
            PERFORM dispatcherd.reject_flow(node ->> 'name', 'node_depends_on_earlier_nodes', 'it depends on itself');
        ELSIF at > place THEN
            PERFORM dispatcherd.reject_flow(node ->> 'name', 'node_depends_on_earlier_nodes', format('after names "%s", which is a later node: dependencies must come first, so no cycle is possible', e #>> '{}'));
        END IF;
    END LOOP;
    PERFORM dispatcherd.reject_flow(node ->> 'name', 'node_depends_on_existing_jobs', 'after names the id of a job that does not exist');
END $$;
-- +goose StatementEnd

-- Inserts the jobs of nodes. If one is refused, the error names it.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.insert_nodes(batch bigint, nodes jsonb, ids bigint[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    statuses dispatcherd.status[];
    watched  boolean[];
BEGIN
    SELECT array_agg(CASE WHEN d.open = 0 THEN 'pending' ELSE 'waiting' END::dispatcherd.status ORDER BY d.place), array_agg((SELECT true FROM dispatcherd.edges g WHERE g.before = d.id AND g.flow = batch) ORDER BY d.place)
        INTO statuses, watched FROM dispatcherd.nodes d WHERE d.flow = batch;
    BEGIN
        PERFORM dispatcherd.insert_jobs(nodes, ids, statuses, watched, batch);
    EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
        FOR i IN 1..cardinality(ids) LOOP
            BEGIN
                PERFORM dispatcherd.insert_jobs(jsonb_build_array(nodes -> (i - 1)), ids[i:i], statuses[i:i], NULL, batch);
            EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
                DECLARE
                    rule text;
                BEGIN
                    GET STACKED DIAGNOSTICS rule = CONSTRAINT_NAME;
                    PERFORM dispatcherd.reject_flow(nodes -> (i - 1) ->> 'name', coalesce(nullif(rule, ''), 'node_is_a_job'), SQLERRM);
                END;
            END;
        END LOOP;
        RAISE;
    END;
END $$;
-- +goose StatementEnd

-- Inserts a flow. It locks no row of other jobs: dispatchers watch those on which its nodes depend.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.insert_flow(flow jsonb) RETURNS jsonb LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_variable
DECLARE
    batch  bigint := nextval('dispatcherd.job_ids');
    nodes  jsonb := flow -> 'nodes';
    places jsonb; -- by name
    ids    bigint[];
    bad    record;
BEGIN
    PERFORM dispatcherd.check_flow(flow);
    ids := ARRAY (SELECT nextval('dispatcherd.job_ids') FROM generate_series(1, jsonb_array_length(nodes)));
    places := (SELECT jsonb_object_agg(n.node ->> 'name', n.place) FROM jsonb_array_elements(nodes) WITH ORDINALITY AS n (node, place));
    INSERT INTO dispatcherd.batches (id, kind, name, callback, run_when) VALUES (batch, 'flow', flow ->> 'name', flow ? 'callback', coalesce(flow -> 'callback' ->> 'run_when', 'done'));
    INSERT INTO dispatcherd.nodes AS d (id, flow, place, name, depends_on, run_when, takes_results, open, ready_at)
    SELECT ids[n.place], batch, n.place, n.node ->> 'name', a.ids, coalesce(n.node ->> 'run_when', 'done'), coalesce((n.node ->> 'takes_results')::boolean, false), cardinality(a.ids),
        CASE WHEN a.ids = '{}' THEN clock_timestamp() END
    FROM jsonb_array_elements(nodes) WITH ORDINALITY AS n (node, place) CROSS JOIN LATERAL (
        SELECT ARRAY (SELECT DISTINCT CASE WHEN jsonb_typeof(e) = 'string' THEN coalesce(ids[(places ->> (e #>> '{}'))::int], 0) ELSE e::bigint END
            FROM jsonb_array_elements(n.node -> 'after') AS e) AS ids
    ) a;
    SELECT d.name, d.place, x.id INTO bad FROM dispatcherd.nodes d CROSS JOIN unnest(d.depends_on) AS x (id)
        WHERE d.flow = batch AND (x.id = 0 OR x.id BETWEEN d.id AND ids[cardinality(ids)]) ORDER BY d.place, x.id LIMIT 1;
    IF FOUND THEN
        PERFORM dispatcherd.reject_dependency(nodes -> (bad.place - 1), places, bad.place);
    END IF;
    INSERT INTO dispatcherd.edges (before, flow, after, linked)
    SELECT x.id, batch, array_agg(d.id ORDER BY d.id), (SELECT m.id FROM dispatcherd.nodes m WHERE m.id = x.id AND m.flow = batch) IS NOT NULL
    FROM dispatcherd.nodes d CROSS JOIN unnest(d.depends_on) AS x (id) WHERE d.flow = batch GROUP BY x.id;
    SELECT d.name, e.before INTO bad FROM dispatcherd.edges e JOIN dispatcherd.nodes d ON d.id = e.after[1]
        WHERE e.flow = batch AND NOT e.linked AND (SELECT j.id FROM dispatcherd.jobs j WHERE j.id = e.before LIMIT 1) IS NULL ORDER BY d.place LIMIT 1;
    IF FOUND THEN
        PERFORM dispatcherd.reject_flow(bad.name, 'node_depends_on_existing_jobs', coalesce((SELECT format('%s is a %s without a callback, so it is no job', b.id, b.kind)
            FROM dispatcherd.batches b WHERE b.id = bad.before AND NOT b.callback AND b.kind <> 'children'), format('job %s does not exist', bad.before)));
    END IF;
    PERFORM dispatcherd.insert_nodes(batch, nodes, ids);
    IF flow ? 'callback' THEN
        BEGIN
            PERFORM dispatcherd.insert_jobs(jsonb_build_array(flow -> 'callback'), ARRAY[batch], '{waiting}', '{true}', NULL);
        EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
            PERFORM dispatcherd.reject_flow(NULL, 'callback_is_a_job', 'the callback: ' || SQLERRM);
        END;
    END IF;
    UPDATE dispatcherd.batches SET sealed_at = clock_timestamp(), open = cardinality(ids) WHERE id = batch;
    PERFORM dispatcherd.notify_ends() WHERE EXISTS (SELECT FROM dispatcherd.edges e WHERE e.flow = batch AND NOT e.linked);
    RETURN jsonb_build_object('id', batch, 'nodes', (SELECT jsonb_object_agg(d.name, d.id) FROM dispatcherd.nodes d WHERE d.flow = batch));
END $$;
-- +goose StatementEnd

-- Makes ended jobs wait again. They belong to batch, or for NULL to their own batch unless it has ended.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.wait_again(ids bigint[], batch bigint DEFAULT NULL) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    WITH gone AS (
        DELETE FROM dispatcherd.jobs j WHERE j.id = ANY (ids) AND j.status IN ('failed', 'cancelled') RETURNING *
    ), settled AS (
        DELETE FROM dispatcherd.cancels WHERE job_id = ANY (ids)
    )
    INSERT INTO dispatcherd.jobs_waiting (id, status, first_run_at, created_at, attempt, timeout_ms, priority, max_attempts, type, payload, keys, parent, watched, errors)
    SELECT id, 'waiting', coalesce(first_run_at, run_at), created_at, attempt, timeout_ms, priority, max_attempts, type, payload, keys,
        coalesce(batch, CASE WHEN dispatcherd.counts(parent) THEN parent END), CASE WHEN dispatcherd.has_dependants(id) THEN true ELSE watched END, errors FROM gone;
END $$;
-- +goose StatementEnd

-- What the dependencies of a flow count in its nodes, from the rows: open, failed and cancelled ends. An end that is recorded only counts as open, and once
-- less for its status: its count adds that. So a dependency that is live again before its former end is counted is open twice.
CREATE FUNCTION dispatcherd.dependencies(flow bigint) RETURNS TABLE (id bigint, open int, failed int, cancelled int) LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = on AS $$
    SELECT a.id, CASE WHEN g.linked THEN coalesce(j.status IN ('waiting', 'pending', 'running'), false)::int + coalesce(e.n, 0) ELSE 1 END,
        CASE WHEN g.linked THEN coalesce(j.status = 'failed', false)::int - coalesce(e.failed, 0) ELSE 0 END,
        CASE WHEN g.linked THEN coalesce(j.status = 'cancelled', false)::int - coalesce(e.cancelled, 0) ELSE 0 END
    FROM (SELECT DISTINCT x.id FROM dispatcherd.nodes d CROSS JOIN unnest(d.depends_on) AS x (id) WHERE d.flow = dependencies.flow) a
    JOIN dispatcherd.edges g ON g.before BETWEEN a.id AND a.id AND g.flow = dependencies.flow
    LEFT JOIN dispatcherd.jobs j ON j.id BETWEEN a.id AND a.id
    LEFT JOIN (SELECT r.job_id, count(*)::int AS n, (count(*) FILTER (WHERE r.status = 'failed'))::int AS failed, (count(*) FILTER (WHERE r.status = 'cancelled'))::int AS cancelled
        FROM dispatcherd.ends r WHERE r.status <> 'waiting' AND r.watched GROUP BY r.job_id) e ON e.job_id = a.id
$$;

-- Retries the failed and cancelled jobs below a batch or flow, and its callback. Nodes wait again for the dependencies that run
-- again. It returns how many jobs it has retried.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.retry_tree(job bigint) RETURNS int LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = on AS $$
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
        bad := ARRAY (SELECT j.id FROM dispatcherd.nodes d JOIN dispatcherd.jobs j ON j.id BETWEEN d.id AND d.id AND j.status IN ('failed', 'cancelled') WHERE d.flow = job);
    ELSE
        bad := ARRAY (SELECT j.id FROM dispatcherd.jobs j WHERE j.parent = job AND j.status IN ('failed', 'cancelled') AND j.finished_at >= b.opened_at);
    END IF;
    PERFORM dispatcherd.lock_batches(bad || job);
    FOR round IN 1..100 LOOP
        uncounted := EXISTS (SELECT FROM dispatcherd.ends e WHERE e.status <> 'waiting' AND (e.parent = job OR e.job_id = job));
        EXIT WHEN NOT uncounted;
        PERFORM dispatcherd.settle(10000);
    END LOOP;
    IF uncounted THEN
        RAISE lock_not_available USING CONSTRAINT = 'ends_are_counted', MESSAGE = format('the ends of the jobs of %s %s are being counted; try again', b.kind, job);
    ELSIF EXISTS (SELECT FROM dispatcherd.jobs_live j WHERE j.id = job) THEN
        RAISE object_not_in_prerequisite_state USING CONSTRAINT = 'callback_has_ended',
            MESSAGE = format('the callback of %s %s is pending or running: retry after its end, or cancel it', b.kind, job);
    END IF;
    callback := ARRAY (SELECT j.id FROM dispatcherd.jobs j WHERE j.id = job AND j.status IN ('failed', 'cancelled'));
    IF bad || callback = '{}' THEN
        RETURN 0;
    END IF;
    UPDATE dispatcherd.batches SET ended_at = NULL, cancelled_by = NULL WHERE id = job;
    PERFORM dispatcherd.count_retries(ARRAY[j.id::bigint], ARRAY[j.parent], ARRAY[j.status]) FROM dispatcherd.jobs j WHERE j.id = ANY (callback);
    PERFORM dispatcherd.wait_again(callback);
    n := CASE b.kind WHEN 'flow' THEN dispatcherd.retry_nodes(job, bad) ELSE dispatcherd.retry_jobs(bad) END;
    PERFORM dispatcherd.fire(ARRAY[job]) WHERE EXISTS (SELECT FROM dispatcherd.batches WHERE id = job AND open <= 0);
    PERFORM dispatcherd.notify_ends();
    RETURN n + cardinality(callback);
END $$;
-- +goose StatementEnd

-- Retries those of nodes bad of a flow that have failed or were cancelled. The caller has locked the flow, and those that depend on the nodes. Nodes that were
-- retried alone after the end of the flow belong to it again. So the counters of the flow come from the rows; what was deleted counts as done.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.retry_nodes(flow bigint, bad bigint[]) RETURNS int LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = on AS $$
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
    UPDATE dispatcherd.jobs_live j SET parent = flow FROM dispatcherd.nodes d WHERE d.flow = flow AND j.id BETWEEN d.id AND d.id AND j.parent IS NULL;
    UPDATE dispatcherd.batches b SET open = r.open, failed = r.failed, cancelled = r.cancelled, done = r.nodes - r.open - r.failed - r.cancelled,
        reason = CASE WHEN r.failed + r.cancelled > 0 THEN b.reason END
        FROM (SELECT count(*) AS nodes, count(*) FILTER (WHERE j.status IN ('waiting', 'pending', 'running')) + coalesce(min(e.n), 0) AS open,
                count(*) FILTER (WHERE j.status = 'failed') - coalesce(min(e.failed), 0) AS failed, count(*) FILTER (WHERE j.status = 'cancelled') - coalesce(min(e.cancelled), 0) AS cancelled
            FROM dispatcherd.nodes d LEFT JOIN dispatcherd.jobs j ON j.id BETWEEN d.id AND d.id CROSS JOIN (
                SELECT count(*) AS n, count(*) FILTER (WHERE x.status = 'failed') AS failed, count(*) FILTER (WHERE x.status = 'cancelled') AS cancelled
                FROM dispatcherd.ends x WHERE x.parent = flow AND x.status <> 'waiting') e
            WHERE d.flow = flow) r
        WHERE b.id = flow;
    UPDATE dispatcherd.nodes d SET ready_at = NULL, reason = x.reason, open = x.open, failed = x.failed, cancelled = x.cancelled, done = cardinality(d.depends_on) - x.open - x.failed - x.cancelled
        FROM (SELECT i.id, coalesce(sum(c.open), 0) AS open, coalesce(sum(c.failed), 0) AS failed, coalesce(sum(c.cancelled), 0) AS cancelled,
                min('dependency ' || c.id || CASE WHEN c.failed > 0 THEN ' failed' ELSE ' was cancelled' END) FILTER (WHERE c.failed + c.cancelled > 0) AS reason
            FROM unnest(again) AS i (id) JOIN dispatcherd.nodes n ON n.id BETWEEN i.id AND i.id LEFT JOIN LATERAL unnest(n.depends_on) AS a (id) ON true
            LEFT JOIN (SELECT * FROM dispatcherd.dependencies(flow)) c ON c.id = a.id GROUP BY i.id) x
        WHERE d.id BETWEEN x.id AND x.id;
    ready := ARRAY (SELECT d.id FROM dispatcherd.nodes d WHERE d.flow = flow AND d.ready_at IS NULL AND d.open <= 0);
    PERFORM dispatcherd.release_nodes(ready) WHERE ready <> '{}';
    RETURN cardinality(again);
END $$;
-- +goose StatementEnd

-- Counts the open members and dependencies of a batch, which the caller has locked, from the rows, and returns how many counters were wrong.
-- What was deleted without an end counts as cancelled.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.repair_batch(batch bigint) RETURNS int LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = on AS $$
#variable_conflict use_variable
DECLARE
    nodes bigint[];
    now   int;
    wrong boolean;
BEGIN
    WITH dependency AS MATERIALIZED (
        SELECT s.id, s.open FROM dispatcherd.dependencies(batch) s
    ), counted AS (
        SELECT d.id, coalesce(sum(s.open), 0) AS open FROM dispatcherd.nodes d LEFT JOIN LATERAL unnest(d.depends_on) AS a (id) ON true LEFT JOIN dependency s ON s.id = a.id
        WHERE d.flow = batch AND d.ready_at IS NULL GROUP BY d.id
    ), changed AS (
        UPDATE dispatcherd.nodes d SET open = c.open, cancelled = greatest(cardinality(d.depends_on) - c.open - d.done - d.failed, 0), reason = coalesce(d.reason, CASE WHEN c.open < d.open THEN 'a dependency was deleted' END)
        FROM counted c WHERE d.id = c.id AND d.open <> c.open RETURNING d.id
    )
    SELECT coalesce(array_agg(c.id), '{}') INTO nodes FROM changed c;
    now := (SELECT count(*) FROM dispatcherd.jobs_live j WHERE j.parent = batch) + (SELECT count(*) FROM dispatcherd.jobs_waiting w WHERE w.parent = batch)
        + (SELECT count(*) FROM dispatcherd.ends e WHERE e.parent = batch AND e.status <> 'waiting');
    UPDATE dispatcherd.batches b SET open = now, cancelled = b.cancelled + greatest(b.open - now, 0), reason = coalesce(b.reason, CASE WHEN now < b.open THEN 'a member was deleted' END) WHERE b.id = batch AND b.open <> now;
    wrong := FOUND;
    INSERT INTO dispatcherd.ends SELECT batch, batch, 'waiting' WHERE nodes <> '{}' OR now = 0;
    RETURN cardinality(nodes) + wrong::int;
END $$;
-- +goose StatementEnd

-- Repairs the counters of a batch or flow that has not ended, or of all of them for NULL, and returns how many were wrong. It skips those that
-- other transactions have locked.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.repair_flows(job bigint DEFAULT NULL) RETURNS int LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    b     record;
    total int := 0;
BEGIN
    PERFORM dispatcherd.require_read_committed('repair_flows');
    IF job IS NOT NULL AND NOT EXISTS (SELECT FROM dispatcherd.batches WHERE id = job) THEN
        RAISE no_data_found USING CONSTRAINT = 'batch_exists', MESSAGE = format('no batch or flow %s', job);
    END IF;
    FOR b IN SELECT id FROM dispatcherd.batches WHERE ended_at IS NULL AND sealed_at IS NOT NULL AND (job IS NULL OR id = job) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED LOOP
        total := total + dispatcherd.repair_batch(b.id);
    END LOOP;
    PERFORM dispatcherd.notify_ends() WHERE total > 0;
    RETURN total;
END $$;
-- +goose StatementEnd

-- Repairs the counters of the first batch or flow with an id above previous that has not ended and is not locked: next; NULL = there is none.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.repair_next(previous bigint, OUT next bigint, OUT wrong int) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    next := (SELECT id FROM dispatcherd.batches WHERE ended_at IS NULL AND sealed_at IS NOT NULL AND id > previous ORDER BY id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED);
    wrong := CASE WHEN next IS NULL THEN 0 ELSE dispatcherd.repair_batch(next) END;
END $$;
-- +goose StatementEnd

-- Deletes batches and flows that ended more than keep ago, and expired unique keys, in portions: up to 100 of them, and flows until they have 10,000 nodes. more
-- says that there is more to delete.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.expire_flows(keep interval, OUT more boolean) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
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
    DELETE FROM dispatcherd.edges g USING (SELECT DISTINCT d.flow, a.id FROM dispatcherd.nodes d CROSS JOIN unnest(d.depends_on) AS a (id) WHERE d.flow = ANY (old)) e
        WHERE g.before BETWEEN e.id AND e.id AND g.flow = e.flow;
    DELETE FROM dispatcherd.nodes WHERE flow = ANY (old);
    DELETE FROM dispatcherd.batches WHERE id = ANY (old);
    DELETE FROM dispatcherd.uniques WHERE key = ANY (keys);
    more := found = 100 OR found > cardinality(old) OR cardinality(keys) = 10000;
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION dispatcherd.job_problem, dispatcherd.insert_jobs, dispatcherd.open_batch, dispatcherd.insert_member, dispatcherd.notify_ends, dispatcherd.seal_batch,
    dispatcherd.cancel_tree, dispatcherd.insert_unique, dispatcherd.insert_children, dispatcherd.node_problem, dispatcherd.reject_flow, dispatcherd.check_flow,
    dispatcherd.reject_dependency, dispatcherd.insert_nodes, dispatcherd.insert_flow, dispatcherd.wait_again, dispatcherd.dependencies, dispatcherd.retry_tree, dispatcherd.retry_nodes,
    dispatcherd.repair_batch, dispatcherd.repair_flows, dispatcherd.repair_next, dispatcherd.expire_flows FROM PUBLIC;

-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_dispatcher') THEN
        GRANT EXECUTE ON FUNCTION dispatcherd.job_problem, dispatcherd.insert_jobs, dispatcherd.open_batch, dispatcherd.insert_member, dispatcherd.notify_ends, dispatcherd.seal_batch,
            dispatcherd.cancel_tree, dispatcherd.insert_unique, dispatcherd.insert_children, dispatcherd.node_problem, dispatcherd.reject_flow, dispatcherd.check_flow,
            dispatcherd.reject_dependency, dispatcherd.insert_nodes, dispatcherd.insert_flow, dispatcherd.wait_again, dispatcherd.dependencies, dispatcherd.retry_tree, dispatcherd.retry_nodes,
            dispatcherd.repair_batch, dispatcherd.repair_flows, dispatcherd.repair_next, dispatcherd.expire_flows TO dispatcherd_dispatcher;
    END IF;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 30::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 30::bigint';

DROP FUNCTION dispatcherd.job_problem, dispatcherd.insert_jobs, dispatcherd.open_batch, dispatcherd.insert_member, dispatcherd.notify_ends, dispatcherd.seal_batch,
    dispatcherd.cancel_tree, dispatcherd.insert_unique, dispatcherd.insert_children, dispatcherd.node_problem, dispatcherd.reject_flow, dispatcherd.check_flow,
    dispatcherd.reject_dependency, dispatcherd.insert_nodes, dispatcherd.insert_flow, dispatcherd.wait_again, dispatcherd.dependencies, dispatcherd.retry_tree, dispatcherd.retry_nodes,
    dispatcherd.repair_batch, dispatcherd.repair_flows, dispatcherd.repair_next, dispatcherd.expire_flows;
