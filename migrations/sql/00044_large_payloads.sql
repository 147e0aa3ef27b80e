-- Bounds the bytes that one step of a settlement moves. A step that moved more would reach the time limit of its statement, and be
-- repeated for ever. cancel_tree also cancels a job that is released meanwhile. Waiting nodes of a cancelled flow are cancelled. A
-- flow passes on results of jobs outside it only for roles that may read results.

-- +goose Up

-- The first of jobs, by id, whose payloads have about 4 MB together.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.fitting(jobs bigint[]) RETURNS bigint[] LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
    SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM (
        SELECT id, sum(size) OVER (ORDER BY id) - size AS earlier FROM (
            SELECT id, pg_column_size(payload) AS size FROM dispatcherd.jobs_live WHERE id = ANY (jobs)
            UNION ALL SELECT id, pg_column_size(payload) FROM dispatcherd.jobs_waiting WHERE id = ANY (jobs)
        ) sized
    ) summed WHERE earlier < 4000000
$$;
-- +goose StatementEnd

-- Locked jobs that do not fit count as locked by another transaction: their batches and flows are checked again.
-- +goose StatementBegin
DO $$
DECLARE
    edit       text[];
    definition text;
BEGIN
    FOREACH edit SLICE 1 IN ARRAY ARRAY[
        ['proceed', 'free  bigint[] := ARRAY (SELECT id FROM dispatcherd.jobs_waiting WHERE id = ANY (ids) ORDER BY id FOR UPDATE SKIP LOCKED);',
            'free  bigint[] := dispatcherd.fitting(ARRAY (SELECT id FROM dispatcherd.jobs_waiting WHERE id = ANY (ids) ORDER BY id FOR UPDATE SKIP LOCKED));'],
        ['cancel_members', 'more := more OR cardinality(idle) = most;',
            'untold := dispatcherd.fitting(idle);
        more := more OR cardinality(idle) = most OR cardinality(untold) < cardinality(idle);
        idle := untold;'],
        ['settle', 'PERFORM dispatcherd.fire(complete);',
            'n := (SELECT count(*) FROM dispatcherd.jobs_waiting w WHERE w.id = ANY (complete));
            PERFORM dispatcherd.fire(complete);
            rest := rest OR (SELECT count(*) BETWEEN 1 AND n - 1 FROM dispatcherd.jobs_waiting w WHERE w.id = ANY (complete));'],
        ['release_nodes', 'RETURN FOUND AND cardinality(locked)', 'RETURN (FOUND OR locked <> ''{}'') AND cardinality(locked)'],
        ['release_nodes', 'dispatcherd.runs_when(run_when, failed + cancelled) AS run, coalesce(reason, ''no dependency failed'') AS reason, NULL::jsonb AS addition
        FROM dispatcherd.nodes WHERE id = ANY (ids) AND ready_at IS NULL LIMIT 500',
            'dispatcherd.runs_when(run_when, failed + cancelled) AND NOT stopped AS run,
            CASE WHEN stopped THEN ''the flow was cancelled'' ELSE coalesce(reason, ''no dependency failed'') END AS reason, NULL::jsonb AS addition
        FROM dispatcherd.nodes CROSS JOIN LATERAL (SELECT b.cancelled_by IS NOT NULL AS stopped FROM dispatcherd.batches b WHERE b.id = flow) f
        WHERE id = ANY (ids) AND ready_at IS NULL LIMIT 500'],
        ['cancel_tree', 'cancelled := dispatcherd.end_idle(ARRAY[job], ''cancelled'', who, NULL);
    running := (SELECT count(*) FROM dispatcherd.jobs_live j WHERE j.id = job AND j.status = ''running'');',
            'FOR round IN 1..10 LOOP -- another transaction may release or retry the job between two statements
        cancelled := dispatcherd.end_idle(ARRAY[job], ''cancelled'', who, NULL);
        running := (SELECT count(*) FROM dispatcherd.jobs_live j WHERE j.id = job AND j.status = ''running'');
        EXIT WHEN cancelled + running > 0 OR NOT EXISTS (SELECT FROM dispatcherd.jobs j WHERE j.id = job AND j.status IN (''waiting'', ''pending''));
    END LOOP;'],
        ['insert_flow', 'PERFORM dispatcherd.insert_nodes(batch, nodes, ids);',
            'SELECT d.name INTO bad FROM dispatcherd.nodes d WHERE d.flow = batch AND d.takes_results AND EXISTS (SELECT FROM unnest(d.depends_on) AS x (id) WHERE x.id <> ALL (ids))
        AND NOT has_column_privilege(session_user, ''dispatcherd.jobs'', ''result'', ''SELECT'') ORDER BY d.place LIMIT 1;
    IF FOUND THEN
        PERFORM dispatcherd.reject_flow(bad.name, ''results_of_other_jobs_may_be_read'', ''takes_results needs the right to read the results of jobs outside the flow: leave it out, or insert the flow over the API or as an operator'');
    END IF;
    PERFORM dispatcherd.insert_nodes(batch, nodes, ids);']
    ] LOOP
        definition := pg_get_functiondef(('dispatcherd.' || edit[1])::regproc);
        ASSERT strpos(definition, edit[2]) > 0, edit[2];
        EXECUTE replace(definition, edit[2], edit[3]);
    END LOOP;
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION dispatcherd.fitting FROM PUBLIC;
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_dispatcher') THEN
        GRANT EXECUTE ON FUNCTION dispatcherd.fitting TO dispatcherd_dispatcher;
    END IF;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 41::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 41::bigint';

-- +goose StatementBegin
DO $$
DECLARE
    edit       text[];
    definition text;
BEGIN
    FOREACH edit SLICE 1 IN ARRAY ARRAY[
        ['proceed', 'free  bigint[] := ARRAY (SELECT id FROM dispatcherd.jobs_waiting WHERE id = ANY (ids) ORDER BY id FOR UPDATE SKIP LOCKED);',
            'free  bigint[] := dispatcherd.fitting(ARRAY (SELECT id FROM dispatcherd.jobs_waiting WHERE id = ANY (ids) ORDER BY id FOR UPDATE SKIP LOCKED));'],
        ['cancel_members', 'more := more OR cardinality(idle) = most;',
            'untold := dispatcherd.fitting(idle);
        more := more OR cardinality(idle) = most OR cardinality(untold) < cardinality(idle);
        idle := untold;'],
        ['settle', 'PERFORM dispatcherd.fire(complete);',
            'n := (SELECT count(*) FROM dispatcherd.jobs_waiting w WHERE w.id = ANY (complete));
            PERFORM dispatcherd.fire(complete);
            rest := rest OR (SELECT count(*) BETWEEN 1 AND n - 1 FROM dispatcherd.jobs_waiting w WHERE w.id = ANY (complete));'],
        ['release_nodes', 'RETURN FOUND AND cardinality(locked)', 'RETURN (FOUND OR locked <> ''{}'') AND cardinality(locked)'],
        ['release_nodes', 'dispatcherd.runs_when(run_when, failed + cancelled) AS run, coalesce(reason, ''no dependency failed'') AS reason, NULL::jsonb AS addition
        FROM dispatcherd.nodes WHERE id = ANY (ids) AND ready_at IS NULL LIMIT 500',
            'dispatcherd.runs_when(run_when, failed + cancelled) AND NOT stopped AS run,
            CASE WHEN stopped THEN ''the flow was cancelled'' ELSE coalesce(reason, ''no dependency failed'') END AS reason, NULL::jsonb AS addition
        FROM dispatcherd.nodes CROSS JOIN LATERAL (SELECT b.cancelled_by IS NOT NULL AS stopped FROM dispatcherd.batches b WHERE b.id = flow) f
        WHERE id = ANY (ids) AND ready_at IS NULL LIMIT 500'],
        ['cancel_tree', 'cancelled := dispatcherd.end_idle(ARRAY[job], ''cancelled'', who, NULL);
    running := (SELECT count(*) FROM dispatcherd.jobs_live j WHERE j.id = job AND j.status = ''running'');',
            'FOR round IN 1..10 LOOP -- another transaction may release or retry the job between two statements
        cancelled := dispatcherd.end_idle(ARRAY[job], ''cancelled'', who, NULL);
        running := (SELECT count(*) FROM dispatcherd.jobs_live j WHERE j.id = job AND j.status = ''running'');
        EXIT WHEN cancelled + running > 0 OR NOT EXISTS (SELECT FROM dispatcherd.jobs j WHERE j.id = job AND j.status IN (''waiting'', ''pending''));
    END LOOP;'],
        ['insert_flow', 'PERFORM dispatcherd.insert_nodes(batch, nodes, ids);',
            'SELECT d.name INTO bad FROM dispatcherd.nodes d WHERE d.flow = batch AND d.takes_results AND EXISTS (SELECT FROM unnest(d.depends_on) AS x (id) WHERE x.id <> ALL (ids))
        AND NOT has_column_privilege(session_user, ''dispatcherd.jobs'', ''result'', ''SELECT'') ORDER BY d.place LIMIT 1;
    IF FOUND THEN
        PERFORM dispatcherd.reject_flow(bad.name, ''results_of_other_jobs_may_be_read'', ''takes_results needs the right to read the results of jobs outside the flow: leave it out, or insert the flow over the API or as an operator'');
    END IF;
    PERFORM dispatcherd.insert_nodes(batch, nodes, ids);']
    ] LOOP
        definition := pg_get_functiondef(('dispatcherd.' || edit[1])::regproc);
        ASSERT strpos(definition, edit[3]) > 0, edit[3];
        EXECUTE replace(definition, edit[3], edit[2]);
    END LOOP;
END $$;
-- +goose StatementEnd

DROP FUNCTION dispatcherd.fitting;
