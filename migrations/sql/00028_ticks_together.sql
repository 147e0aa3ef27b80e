-- Of several ticks of one statement with overlap = cancel_other, the last one replaces the others. The runs and
-- queued ticks of a schedule are counted once for each statement, and a tick with the same occasion is found by the primary key.
-- Before, each tick read all ticks of its schedule. A pending job that is cancelled keeps the
-- log of its last attempt.

-- +goose Up

-- +goose StatementBegin
DO $$
DECLARE
    ticks text := pg_get_functiondef('dispatcherd.make_ticks'::regproc);
    cancel text := pg_get_functiondef('dispatcherd.cancel_pending'::regproc);
    edit text[];
BEGIN
    FOREACH edit SLICE 1 IN ARRAY ARRAY[
        ['), fresh AS (', '), busy AS MATERIALIZED (
        SELECT s.id, (SELECT count(*) FROM dispatcherd.schedule_runs r WHERE r.schedule_id = s.id) AS runs,
            (SELECT count(*) FROM (SELECT FROM dispatcherd.ticks q WHERE q.schedule_id = s.id AND q.outcome = ''queued'' LIMIT most) bounded) AS queued
        FROM (SELECT DISTINCT unnest(schedules) AS id) s
    ), fresh AS ('],
        [' - 1
            + (SELECT count(*) FROM dispatcherd.schedule_runs r WHERE r.schedule_id = s.id) AS open,
            (SELECT count(*) FROM (SELECT FROM dispatcherd.ticks q WHERE q.schedule_id = s.id AND q.outcome = ''queued'' LIMIT most) bounded) AS queued
        FROM item i JOIN dispatcherd.schedules s ON s.id = i.schedule', ' - 1 + b.runs AS open, b.runs, b.queued,
            lead(i.place) OVER (PARTITION BY s.id, i.missed > 0 ORDER BY i.place) IS NOT NULL AS replaced
        FROM item i JOIN dispatcherd.schedules s ON s.id = i.schedule JOIN busy b ON b.id = i.schedule'],
        ['NOT EXISTS (SELECT FROM dispatcherd.ticks t WHERE t.schedule_id = s.id AND t.occasion = i.occasion)',
            -- The order makes the planner use the primary key, also without statistics.
            '(SELECT t.occasion FROM dispatcherd.ticks t WHERE t.schedule_id = s.id AND t.occasion >= i.occasion
                ORDER BY t.schedule_id, t.occasion LIMIT 1) IS DISTINCT FROM i.occasion'],
        ['WHEN f.missed > 0 THEN ''missed''', 'WHEN f.missed > 0 THEN ''missed''
            WHEN f.overlap = ''cancel_other'' THEN CASE WHEN f.replaced THEN ''skipped'' WHEN f.runs + f.queued = 0 THEN ''run'' ELSE ''queued'' END'],
        ['WHEN d.outcome = ''skipped'' THEN format', 'WHEN d.outcome = ''skipped'' AND d.overlap = ''cancel_other'' THEN ''a later run replaced it (cancel_other)''
            WHEN d.outcome = ''skipped'' THEN format']
    ] LOOP
        ASSERT strpos(ticks, edit[1]) > 0, edit[1];
        ticks := replace(ticks, edit[1], edit[2]);
    END LOOP;
    EXECUTE ticks;
    FOREACH edit SLICE 1 IN ARRAY ARRAY[['cancelled_by, errors)', 'cancelled_by, log, errors)'], ['session_user END,', 'session_user END, log,']] LOOP
        ASSERT strpos(cancel, edit[1]) > 0, edit[1];
        cancel := replace(cancel, edit[1], edit[2]);
    END LOOP;
    EXECUTE cancel;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose StatementBegin
DO $$
DECLARE
    ticks text := pg_get_functiondef('dispatcherd.make_ticks'::regproc);
    cancel text := pg_get_functiondef('dispatcherd.cancel_pending'::regproc);
    edit text[];
BEGIN
    FOREACH edit SLICE 1 IN ARRAY ARRAY[
        ['), fresh AS (', '), busy AS MATERIALIZED (
        SELECT s.id, (SELECT count(*) FROM dispatcherd.schedule_runs r WHERE r.schedule_id = s.id) AS runs,
            (SELECT count(*) FROM (SELECT FROM dispatcherd.ticks q WHERE q.schedule_id = s.id AND q.outcome = ''queued'' LIMIT most) bounded) AS queued
        FROM (SELECT DISTINCT unnest(schedules) AS id) s
    ), fresh AS ('],
        [' - 1
            + (SELECT count(*) FROM dispatcherd.schedule_runs r WHERE r.schedule_id = s.id) AS open,
            (SELECT count(*) FROM (SELECT FROM dispatcherd.ticks q WHERE q.schedule_id = s.id AND q.outcome = ''queued'' LIMIT most) bounded) AS queued
        FROM item i JOIN dispatcherd.schedules s ON s.id = i.schedule', ' - 1 + b.runs AS open, b.runs, b.queued,
            lead(i.place) OVER (PARTITION BY s.id, i.missed > 0 ORDER BY i.place) IS NOT NULL AS replaced
        FROM item i JOIN dispatcherd.schedules s ON s.id = i.schedule JOIN busy b ON b.id = i.schedule'],
        ['NOT EXISTS (SELECT FROM dispatcherd.ticks t WHERE t.schedule_id = s.id AND t.occasion = i.occasion)',
            -- The order makes the planner use the primary key, also without statistics.
            '(SELECT t.occasion FROM dispatcherd.ticks t WHERE t.schedule_id = s.id AND t.occasion >= i.occasion
                ORDER BY t.schedule_id, t.occasion LIMIT 1) IS DISTINCT FROM i.occasion'],
        ['WHEN f.missed > 0 THEN ''missed''', 'WHEN f.missed > 0 THEN ''missed''
            WHEN f.overlap = ''cancel_other'' THEN CASE WHEN f.replaced THEN ''skipped'' WHEN f.runs + f.queued = 0 THEN ''run'' ELSE ''queued'' END'],
        ['WHEN d.outcome = ''skipped'' THEN format', 'WHEN d.outcome = ''skipped'' AND d.overlap = ''cancel_other'' THEN ''a later run replaced it (cancel_other)''
            WHEN d.outcome = ''skipped'' THEN format']
    ] LOOP
        ASSERT strpos(ticks, edit[2]) > 0, edit[2];
        ticks := replace(ticks, edit[2], edit[1]);
    END LOOP;
    EXECUTE ticks;
    FOREACH edit SLICE 1 IN ARRAY ARRAY[['cancelled_by, errors)', 'cancelled_by, log, errors)'], ['session_user END,', 'session_user END, log,']] LOOP
        ASSERT strpos(cancel, edit[2]) > 0, edit[2];
        cancel := replace(cancel, edit[2], edit[1]);
    END LOOP;
    EXECUTE cancel;
END $$;
-- +goose StatementEnd
