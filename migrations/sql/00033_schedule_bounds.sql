-- A tick examines a bounded number of the runs of its schedule. Before, a schedule with overlap = allow_all whose
-- runs did not end delayed the ticks of all schedules. The table rejects instants of ticks that a dispatcher cannot
-- read, and keys of startup-worker schedules, whose runs do not wait for permits. Heartbeats see the number of the
-- edits also change after their transactions have ended.

-- +goose Up

UPDATE dispatcherd.schedules SET keys = NULL WHERE kind = 'startup-worker' AND keys IS NOT NULL;
ALTER TABLE dispatcherd.schedules ADD CONSTRAINT startup_worker_has_no_keys CHECK (kind <> 'startup-worker' OR keys IS NULL);
ALTER TABLE dispatcherd.ticks
    ADD CONSTRAINT planned_at_is_between_1970_and_2200 CHECK (planned_at >= '1970-01-01 00:00:00+00' AND planned_at < '2200-01-01 00:00:00+00') NOT VALID,
    ADD CONSTRAINT run_at_is_between_1970_and_2200 CHECK (run_at >= '1970-01-01 00:00:00+00' AND run_at < '2200-01-01 00:00:00+00') NOT VALID;

-- Deletes runs that have ended: of each schedule some of the first ones, and further ones while all of these have
-- ended. So an open run is found, and many open runs do not make it slow.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.forget_runs(schedules bigint[]) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    most constant int := 100;
    rest bigint[] := schedules;
BEGIN
    FOR i IN 1..100 LOOP
        WITH ended AS MATERIALIZED (
            SELECT s.id, r.job_id FROM unnest(rest) AS s (id) CROSS JOIN LATERAL (
                SELECT o.job_id FROM dispatcherd.schedule_runs o WHERE o.schedule_id = s.id ORDER BY o.job_id LIMIT most) r
            WHERE NOT EXISTS (SELECT FROM dispatcherd.jobs_live j WHERE j.id BETWEEN r.job_id AND r.job_id)
        ), gone AS (
            DELETE FROM dispatcherd.schedule_runs r USING ended e WHERE r.schedule_id = e.id AND r.job_id = e.job_id
        )
        SELECT array_agg(f.id) INTO rest FROM (SELECT e.id FROM ended e GROUP BY e.id HAVING count(*) = most) f;
        EXIT WHEN rest IS NULL;
    END LOOP;
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION dispatcherd.forget_runs FROM PUBLIC;

-- Changes the number of the edits again after the controller has read them. A dispatcher without notifications reads
-- the schedules again when a heartbeat sees another number, which may be before the transaction of the edit has ended.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.number_read_edits() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM read_edits) THEN
        PERFORM nextval('dispatcherd.schedule_edit_ids');
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION dispatcherd.number_read_edits FROM PUBLIC;
CREATE TRIGGER number_read_edits AFTER DELETE ON dispatcherd.schedule_edits REFERENCING OLD TABLE AS read_edits
    FOR EACH STATEMENT EXECUTE FUNCTION dispatcherd.number_read_edits();

-- +goose StatementBegin
DO $$
DECLARE
    ticks text := pg_get_functiondef('dispatcherd.make_ticks'::regproc);
    queue text := pg_get_functiondef('dispatcherd.start_queued'::regproc);
    edit text[];
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_dispatcher') THEN
        GRANT EXECUTE ON FUNCTION dispatcherd.forget_runs TO dispatcherd_dispatcher;
    END IF;
    FOREACH edit SLICE 1 IN ARRAY ARRAY[
        ['DELETE FROM dispatcherd.schedule_runs r WHERE r.schedule_id = ANY (locked)
        AND NOT EXISTS (SELECT FROM dispatcherd.jobs_live j WHERE j.id BETWEEN r.job_id AND r.job_id);', 'PERFORM dispatcherd.forget_runs(locked);'],
        ['(SELECT count(*) FROM dispatcherd.schedule_runs r WHERE r.schedule_id = s.id) AS runs',
            '(SELECT count(*) FROM (SELECT FROM dispatcherd.schedule_runs r WHERE r.schedule_id = s.id LIMIT 1000) bounded) AS runs'],
        ['JOIN dispatcherd.schedule_runs r ON r.schedule_id = p.id
    )', 'CROSS JOIN LATERAL (
            SELECT o.job_id FROM dispatcherd.schedule_runs o WHERE o.schedule_id = p.id ORDER BY o.job_id LIMIT 1000) r
    )']
    ] LOOP
        ASSERT strpos(ticks, edit[1]) > 0, edit[1];
        ticks := replace(ticks, edit[1], edit[2]);
    END LOOP;
    EXECUTE ticks;
    FOREACH edit SLICE 1 IN ARRAY ARRAY[
        ['DELETE FROM dispatcherd.schedule_runs r WHERE r.schedule_id = ANY (locked)
        AND NOT EXISTS (SELECT FROM dispatcherd.jobs_live j WHERE j.id BETWEEN r.job_id AND r.job_id);', 'PERFORM dispatcherd.forget_runs(locked);'],
        ['FROM dispatcherd.schedule_runs r
        WHERE r.schedule_id = ANY (locked) AND NOT EXISTS (SELECT FROM dispatcherd.cancels c WHERE c.job_id = r.job_id) AND
            (SELECT q.reason FROM dispatcherd.ticks q WHERE q.schedule_id = r.schedule_id AND q.outcome = ''queued'' ORDER BY q.run_at, q.occasion LIMIT 1) IS NOT NULL
', 'FROM unnest(locked) AS s (id) CROSS JOIN LATERAL (
            SELECT q.reason FROM dispatcherd.ticks q WHERE q.schedule_id = s.id AND q.outcome = ''queued'' ORDER BY q.run_at, q.occasion LIMIT 1
        ) h CROSS JOIN LATERAL (
            SELECT o.job_id FROM dispatcherd.schedule_runs o WHERE o.schedule_id = s.id
                AND NOT EXISTS (SELECT FROM dispatcherd.cancels c WHERE c.job_id = o.job_id) ORDER BY o.job_id LIMIT 1000
        ) r WHERE h.reason IS NOT NULL
']
    ] LOOP
        ASSERT strpos(queue, edit[1]) > 0, edit[1];
        queue := replace(queue, edit[1], edit[2]);
    END LOOP;
    EXECUTE queue;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 30::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 30::bigint';

-- +goose StatementBegin
DO $$
DECLARE
    ticks text := pg_get_functiondef('dispatcherd.make_ticks'::regproc);
    queue text := pg_get_functiondef('dispatcherd.start_queued'::regproc);
    edit text[];
BEGIN
    FOREACH edit SLICE 1 IN ARRAY ARRAY[
        ['DELETE FROM dispatcherd.schedule_runs r WHERE r.schedule_id = ANY (locked)
        AND NOT EXISTS (SELECT FROM dispatcherd.jobs_live j WHERE j.id BETWEEN r.job_id AND r.job_id);', 'PERFORM dispatcherd.forget_runs(locked);'],
        ['(SELECT count(*) FROM dispatcherd.schedule_runs r WHERE r.schedule_id = s.id) AS runs',
            '(SELECT count(*) FROM (SELECT FROM dispatcherd.schedule_runs r WHERE r.schedule_id = s.id LIMIT 1000) bounded) AS runs'],
        ['JOIN dispatcherd.schedule_runs r ON r.schedule_id = p.id
    )', 'CROSS JOIN LATERAL (
            SELECT o.job_id FROM dispatcherd.schedule_runs o WHERE o.schedule_id = p.id ORDER BY o.job_id LIMIT 1000) r
    )']
    ] LOOP
        ASSERT strpos(ticks, edit[2]) > 0, edit[2];
        ticks := replace(ticks, edit[2], edit[1]);
    END LOOP;
    EXECUTE ticks;
    FOREACH edit SLICE 1 IN ARRAY ARRAY[
        ['DELETE FROM dispatcherd.schedule_runs r WHERE r.schedule_id = ANY (locked)
        AND NOT EXISTS (SELECT FROM dispatcherd.jobs_live j WHERE j.id BETWEEN r.job_id AND r.job_id);', 'PERFORM dispatcherd.forget_runs(locked);'],
        ['FROM dispatcherd.schedule_runs r
        WHERE r.schedule_id = ANY (locked) AND NOT EXISTS (SELECT FROM dispatcherd.cancels c WHERE c.job_id = r.job_id) AND
            (SELECT q.reason FROM dispatcherd.ticks q WHERE q.schedule_id = r.schedule_id AND q.outcome = ''queued'' ORDER BY q.run_at, q.occasion LIMIT 1) IS NOT NULL
', 'FROM unnest(locked) AS s (id) CROSS JOIN LATERAL (
            SELECT q.reason FROM dispatcherd.ticks q WHERE q.schedule_id = s.id AND q.outcome = ''queued'' ORDER BY q.run_at, q.occasion LIMIT 1
        ) h CROSS JOIN LATERAL (
            SELECT o.job_id FROM dispatcherd.schedule_runs o WHERE o.schedule_id = s.id
                AND NOT EXISTS (SELECT FROM dispatcherd.cancels c WHERE c.job_id = o.job_id) ORDER BY o.job_id LIMIT 1000
        ) r WHERE h.reason IS NOT NULL
']
    ] LOOP
        ASSERT strpos(queue, edit[2]) > 0, edit[2];
        queue := replace(queue, edit[2], edit[1]);
    END LOOP;
    EXECUTE queue;
END $$;
-- +goose StatementEnd

DROP TRIGGER number_read_edits ON dispatcherd.schedule_edits;
DROP FUNCTION dispatcherd.forget_runs, dispatcherd.number_read_edits;
ALTER TABLE dispatcherd.ticks DROP CONSTRAINT planned_at_is_between_1970_and_2200, DROP CONSTRAINT run_at_is_between_1970_and_2200;
ALTER TABLE dispatcherd.schedules DROP CONSTRAINT startup_worker_has_no_keys;
