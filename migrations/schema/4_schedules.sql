-- Schedules insert jobs. An occasion is an instant of the plan of a schedule, a start of the cluster or a worker, or a request to run.
-- Each occasion has one tick, a row that says what became of it, and at most one job, its run. docs/how-to/schedules.md explains schedules.
-- The controller plans the occasions in Go (internal/schedule); the functions here make ticks and insert their jobs.

CREATE TABLE dispatcherd.schedules (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name          text        NOT NULL CONSTRAINT schedule_name_is_unique UNIQUE
        CONSTRAINT name_is_1_to_128_letters_digits_dots_underscores_hyphens CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$'),
    kind          text        NOT NULL DEFAULT 'cron'
        CONSTRAINT kind_is_cron_interval_startup_or_startup_worker CHECK (kind IN ('cron', 'interval', 'startup', 'startup-worker')),
    spec          text        CONSTRAINT spec_is_1_to_256_bytes CHECK (octet_length(spec) BETWEEN 1 AND 256),
    every         interval    CONSTRAINT every_is_1_second_to_3660_days CHECK (every BETWEEN '1 second' AND '3660 days'),
    time_zone     text        NOT NULL DEFAULT 'UTC'
        CONSTRAINT time_zone_is_known CHECK (timezone(time_zone, timestamptz 'epoch') IS NOT NULL),
    jitter        interval    NOT NULL DEFAULT '0' CONSTRAINT jitter_is_0_to_1_day CHECK (jitter BETWEEN '0' AND '1 day'),
    starts_at     timestamptz CONSTRAINT starts_at_is_between_1970_and_2200
        CHECK (starts_at >= '1970-01-01 00:00:00+00' AND starts_at < '2200-01-01 00:00:00+00'),
    ends_at       timestamptz CONSTRAINT ends_at_is_between_1970_and_2200
        CHECK (ends_at >= '1970-01-01 00:00:00+00' AND ends_at < '2200-01-01 00:00:00+00'),
    once          text        CONSTRAINT once_is_start_version_or_ever CHECK (once IN ('start', 'version', 'ever')),
    type          dispatcherd.job_type NOT NULL,
    payload       dispatcherd.payload  NOT NULL DEFAULT '{}',
    priority      dispatcherd.priority NOT NULL DEFAULT 0,
    max_attempts  dispatcherd.tries    NOT NULL DEFAULT 5,
    timeout_ms    dispatcherd.timeout_ms,
    overlap       text        NOT NULL DEFAULT 'skip' CONSTRAINT overlap_is_skip_queue_one_queue_all_cancel_other_or_allow_all
        CHECK (overlap IN ('skip', 'queue_one', 'queue_all', 'cancel_other', 'allow_all')),
    catch_up      interval    NOT NULL DEFAULT '1 hour' CONSTRAINT catch_up_is_0_to_366_days CHECK (catch_up BETWEEN '0' AND '366 days'),
    catch_up_most int         NOT NULL DEFAULT 1 CONSTRAINT catch_up_most_is_0_to_10000 CHECK (catch_up_most BETWEEN 0 AND 10000),
    paused        boolean     NOT NULL DEFAULT false,
    error         text,
    version       bigint      NOT NULL DEFAULT 1,
    since         timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_at    timestamptz NOT NULL DEFAULT now(),
    keys          dispatcherd.keys,
    expected_ms   dispatcherd.expected_ms,
    CONSTRAINT only_cron_has_spec CHECK ((kind = 'cron') = (spec IS NOT NULL)),
    CONSTRAINT only_interval_has_every CHECK ((kind = 'interval') = (every IS NOT NULL)),
    CONSTRAINT only_startup_has_once CHECK ((kind = 'startup') = (once IS NOT NULL)),
    CONSTRAINT ends_at_is_after_starts_at CHECK (ends_at > starts_at),
    CONSTRAINT startup_worker_has_no_keys CHECK (kind <> 'startup-worker' OR keys IS NULL) -- its runs do not wait for permits
);
CREATE INDEX schedules_worker ON dispatcherd.schedules (type) WHERE kind = 'startup-worker';
COMMENT ON TABLE dispatcherd.schedules IS 'Insert, update and delete rows here; docs/how-to/schedules.md explains them.';
COMMENT ON COLUMN dispatcherd.schedules.error IS 'Why the schedule does not run; NULL = it runs. Set by the controller.';
COMMENT ON COLUMN dispatcherd.schedules.version IS 'Number of the edit; a trigger sets it.';
COMMENT ON COLUMN dispatcherd.schedules.since IS
    'No earlier occasion is planned: the last edit of the plan, or the last resumption. A trigger sets it.';

CREATE TABLE dispatcherd.ticks (
    schedule_id bigint      NOT NULL,
    occasion    text        NOT NULL CONSTRAINT occasion_is_1_to_256_bytes CHECK (octet_length(occasion) BETWEEN 1 AND 256),
    outcome     text        NOT NULL
        CONSTRAINT outcome_is_run_queued_skipped_or_missed CHECK (outcome IN ('run', 'queued', 'skipped', 'missed')),
    made_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    planned_at  timestamptz CONSTRAINT planned_at_is_between_1970_and_2200
        CHECK (planned_at >= '1970-01-01 00:00:00+00' AND planned_at < '2200-01-01 00:00:00+00'),
    run_at      timestamptz CONSTRAINT run_at_is_between_1970_and_2200
        CHECK (run_at >= '1970-01-01 00:00:00+00' AND run_at < '2200-01-01 00:00:00+00'),
    job_id      bigint,
    missed      int,
    reason      text,
    renewed_at  timestamptz,
    PRIMARY KEY (schedule_id, occasion)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE INDEX ticks_planned ON dispatcherd.ticks (schedule_id, planned_at) WHERE planned_at IS NOT NULL;
CREATE INDEX ticks_of_schedule ON dispatcherd.ticks (schedule_id, made_at);
CREATE INDEX ticks_made ON dispatcherd.ticks (made_at);
CREATE INDEX ticks_queued ON dispatcherd.ticks (schedule_id, run_at) WHERE outcome = 'queued';
COMMENT ON TABLE dispatcherd.ticks IS 'One row for each occasion of a schedule: what became of it.';
COMMENT ON COLUMN dispatcherd.ticks.planned_at IS
    'Instant of the plan; the largest one of a cron schedule is its high-water mark. NULL = not planned: run now, backfill, startup.';
COMMENT ON COLUMN dispatcherd.ticks.run_at IS 'run_at of the job.';
COMMENT ON COLUMN dispatcherd.ticks.missed IS
    'Of a missed tick: the number of occasions that it stands for, of which it names the last.';
COMMENT ON COLUMN dispatcherd.ticks.reason IS 'Why a tick is skipped. A queued tick that has a reason cancels the open runs.';
COMMENT ON COLUMN dispatcherd.ticks.renewed_at IS
    'Of a startup-worker schedule: when the worker was last seen connected. Retention counts from then.';

-- The runs of schedules that may not have ended. Before make_ticks and start_queued count the runs of a schedule, they delete those that
-- have ended (forget_runs). So no statement that ends jobs has to know of schedules.
CREATE TABLE dispatcherd.schedule_runs (
    schedule_id bigint NOT NULL,
    job_id      bigint NOT NULL,
    PRIMARY KEY (schedule_id, job_id)
);

-- The schedules that the controller must read again, because they were edited or have a new queued tick, one row for each. The controller
-- deletes a row after it has read the schedule, unless its number seq has changed meanwhile.
CREATE SEQUENCE dispatcherd.schedule_edit_ids AS bigint;
CREATE TABLE dispatcherd.schedule_edits (
    schedule_id bigint PRIMARY KEY,
    seq         bigint NOT NULL DEFAULT nextval('dispatcherd.schedule_edit_ids')
);

-- Trigger on inserts and updates of schedules: sets version, since and error, which users must not set.
CREATE FUNCTION dispatcherd.number_schedule() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        NEW.version := 1; NEW.since := clock_timestamp(); NEW.error := NULL;
        RETURN NEW;
    END IF;
    NEW.version := OLD.version; NEW.since := OLD.since;
    IF to_jsonb(NEW) - 'error' = to_jsonb(OLD) - 'error' THEN
        RETURN NEW; -- not an edit
    END IF;
    NEW.version := OLD.version + 1; NEW.error := NULL;
    IF (NEW.kind, NEW.spec, NEW.every, NEW.time_zone, NEW.starts_at, NEW.ends_at, NEW.once)
        IS DISTINCT FROM (OLD.kind, OLD.spec, OLD.every, OLD.time_zone, OLD.starts_at, OLD.ends_at, OLD.once) OR OLD.paused
            AND NOT NEW.paused THEN
        NEW.since := clock_timestamp();
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER number_schedule BEFORE INSERT OR UPDATE ON dispatcherd.schedules
    FOR EACH ROW EXECUTE FUNCTION dispatcherd.number_schedule();

-- Trigger on every statement that edits schedules: records the edited schedules and notifies the controller once. It is in SQL because
-- users edit the table with any program. An update that changes only error, which the controller makes, is no edit.
CREATE FUNCTION dispatcherd.record_edits() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        INSERT INTO dispatcherd.schedule_edits AS e (schedule_id)
        SELECT n.id FROM edited n JOIN before b ON b.id = n.id WHERE n.version <> b.version ORDER BY n.id
        ON CONFLICT (schedule_id) DO UPDATE SET seq = EXCLUDED.seq;
    ELSE
        INSERT INTO dispatcherd.schedule_edits AS e (schedule_id) SELECT n.id FROM edited n ORDER BY n.id
        ON CONFLICT (schedule_id) DO UPDATE SET seq = EXCLUDED.seq;
    END IF;
    IF FOUND AND dispatcherd.may_notify() THEN
        PERFORM pg_notify('dispatcherd', 'edits');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER record_inserts AFTER INSERT ON dispatcherd.schedules REFERENCING NEW TABLE AS edited
    FOR EACH STATEMENT EXECUTE FUNCTION dispatcherd.record_edits();
CREATE TRIGGER record_updates AFTER UPDATE ON dispatcherd.schedules REFERENCING OLD TABLE AS before NEW TABLE AS edited
    FOR EACH STATEMENT EXECUTE FUNCTION dispatcherd.record_edits();
CREATE TRIGGER record_deletes AFTER DELETE ON dispatcherd.schedules REFERENCING OLD TABLE AS edited
    FOR EACH STATEMENT EXECUTE FUNCTION dispatcherd.record_edits();

-- Trigger on the deletion of edits: takes another number from the sequence of edits. Each dispatcher reads the types of startup-worker
-- schedules again when a heartbeat shows another last number of the sequence. The number of an edit is visible before its transaction has
-- ended, so this read may come too early. The controller deletes the edit after its commit, and then all dispatchers read again.
CREATE FUNCTION dispatcherd.number_read_edits() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM read_edits) THEN
        PERFORM nextval('dispatcherd.schedule_edit_ids');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER number_read_edits AFTER DELETE ON dispatcherd.schedule_edits REFERENCING OLD TABLE AS read_edits
    FOR EACH STATEMENT EXECUTE FUNCTION dispatcherd.number_read_edits();

-- Makes ticks, and the jobs of those that run. The controller calls it for the occasions that it has planned, and operators call it for
-- "schedule run" and backfills. It decides under the locks of the schedules, which order all ticks of a schedule. The arrays have one
-- element per tick, and the ticks of one schedule are in their order:
--   versions   the version of the schedule that was planned; the tick is made only if it is still the same. NULL = any version
--   planned    the planned instant; NULL = the occasion has none
--   due        run_at of the job
--   missed     for a tick that stands for missed occasions, their number; otherwise 0
--   policies   the overlap policy; NULL = that of the schedule
-- With forced, a paused schedule runs, too. The result has one row per tick: its place in the arrays from 1, its outcome, and its job. The
-- outcome is that of the tick or, if none was made, exists (the occasion has a tick, or is not after the high-water mark), changed (the
-- schedule has another version, is paused or was deleted) or locked (by another session). Of several ticks of one call with the policy
-- cancel_other, the last one counts and the others are skipped. In SQL, because operators call it, and because it moves rows set-wise.
CREATE FUNCTION dispatcherd.make_ticks(schedules bigint[], occasions text[], versions bigint[], planned timestamptz[], due timestamptz[],
    missed int[], policies text[], forced boolean) RETURNS TABLE(place bigint, outcome text, job bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    locked bigint[] := ARRAY (SELECT s.id FROM dispatcherd.schedules s WHERE s.id = ANY (schedules) ORDER BY s.id
        FOR NO KEY UPDATE SKIP LOCKED);
    most   int := 10000; -- queued ticks of one schedule
BEGIN
    PERFORM dispatcherd.forget_runs(locked);
    -- No join of two arrays: the planner expects few rows and would compare each with each.
    RETURN QUERY WITH item AS MATERIALIZED (
        SELECT i.*, i.schedule = ANY (locked) AND row_number() OVER (PARTITION BY i.schedule, i.occasion ORDER BY i.place) = 1 AS first
        FROM unnest(schedules, occasions, versions, planned, due, missed, policies) WITH ORDINALITY
            AS i (schedule, occasion, version, planned, due, missed, overlap, place)
    ), busy AS MATERIALIZED (
        SELECT s.id,
            (SELECT count(*) FROM (SELECT FROM dispatcherd.schedule_runs r WHERE r.schedule_id = s.id LIMIT 1000) bounded) AS runs,
            (SELECT count(*) FROM (SELECT FROM dispatcherd.ticks q WHERE q.schedule_id = s.id
                AND q.outcome = 'queued' LIMIT most) bounded) AS queued
        FROM (SELECT DISTINCT unnest(schedules) AS id) s
    ), fresh AS (
        SELECT i.place, i.occasion, i.planned, i.due, i.missed, coalesce(i.overlap, s.overlap) AS overlap, s.id,
            row_number() OVER (PARTITION BY s.id, i.missed > 0 ORDER BY i.place) - 1 + b.runs AS open, b.runs, b.queued,
            lead(i.place) OVER (PARTITION BY s.id, i.missed > 0 ORDER BY i.place) IS NOT NULL AS replaced
        FROM item i JOIN dispatcherd.schedules s ON s.id = i.schedule JOIN busy b ON b.id = i.schedule
        WHERE i.first AND (i.version IS NULL OR s.version = i.version) AND (NOT s.paused OR forced)
            AND (SELECT t.occasion FROM dispatcherd.ticks t WHERE t.schedule_id = s.id AND t.occasion >= i.occasion
                ORDER BY t.schedule_id, t.occasion LIMIT 1) IS DISTINCT FROM i.occasion
            AND (i.planned IS NULL OR s.kind <> 'cron' OR i.planned > coalesce(
                (SELECT max(t.planned_at) FROM dispatcherd.ticks t WHERE t.schedule_id = s.id AND t.planned_at IS NOT NULL), '-infinity'))
    ), judged AS (
        SELECT f.*, CASE WHEN f.missed > 0 THEN 'missed'
            WHEN f.overlap = 'cancel_other' THEN CASE WHEN f.replaced THEN 'skipped' WHEN f.runs + f.queued = 0 THEN 'run'
                ELSE 'queued' END
            WHEN f.overlap = 'allow_all' OR f.open + f.queued = 0 THEN 'run'
            WHEN f.overlap = 'skip' OR f.overlap = 'queue_one' AND f.open + f.queued > 1 OR f.open + f.queued >= most THEN 'skipped'
            ELSE 'queued' END AS outcome
        FROM fresh f
    ), decided AS MATERIALIZED (
        SELECT j.*, CASE WHEN j.outcome = 'run' THEN nextval('dispatcherd.job_ids') END AS job FROM judged j
    ), tick AS (
        INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome, planned_at, run_at, job_id, missed, reason)
        SELECT d.id, d.occasion, d.outcome, d.planned, greatest(d.due, now()), d.job, nullif(d.missed, 0),
            CASE WHEN d.outcome = 'skipped' AND d.overlap = 'cancel_other' THEN 'a later run replaced it (cancel_other)'
            WHEN d.outcome = 'queued' AND d.overlap = 'cancel_other' THEN 'it waits for the end of the run that it cancels (cancel_other)'
            WHEN d.outcome = 'skipped' THEN format('runs not ended: %s, waiting: %s (%s)', least(d.open, most), d.queued, d.overlap) END
        FROM decided d ORDER BY d.place ON CONFLICT DO NOTHING RETURNING schedule_id, job_id, run_at
    ), job AS (
        INSERT INTO dispatcherd.jobs (id, type, payload, priority, max_attempts, timeout_ms, expected_ms, keys, run_at)
        SELECT t.job_id, s.type, s.payload, s.priority, s.max_attempts, s.timeout_ms, s.expected_ms, s.keys, t.run_at
        FROM tick t JOIN dispatcherd.schedules s ON s.id = t.schedule_id WHERE t.job_id IS NOT NULL ORDER BY t.job_id
    ), run AS (
        INSERT INTO dispatcherd.schedule_runs SELECT t.schedule_id, t.job_id FROM tick t WHERE t.job_id IS NOT NULL
    ), replaced AS MATERIALIZED (
        SELECT DISTINCT d.id FROM decided d WHERE d.overlap = 'cancel_other' AND d.outcome = 'queued'
    ), superseded AS (
        UPDATE dispatcherd.ticks q SET outcome = 'skipped', reason = 'a later run replaced it (cancel_other)'
        FROM replaced r WHERE q.schedule_id = r.id AND q.outcome = 'queued'
    ), notified AS (
        SELECT dispatcherd.cancel_runs(array_agg(r.job_id ORDER BY random())) FROM replaced p CROSS JOIN LATERAL (
            SELECT o.job_id FROM dispatcherd.schedule_runs o WHERE o.schedule_id = p.id ORDER BY o.job_id LIMIT 1000) r
    ), waits AS (
        INSERT INTO dispatcherd.schedule_edits AS e (schedule_id)
        SELECT DISTINCT d.id FROM decided d WHERE d.outcome = 'queued' AND versions[1] IS NULL
        ON CONFLICT (schedule_id) DO UPDATE SET seq = EXCLUDED.seq RETURNING 1
    ), announced AS (
        SELECT pg_notify('dispatcherd', 'edits') FROM (SELECT FROM waits LIMIT 1) w WHERE dispatcherd.may_notify()
    ), answer AS (
        SELECT d.place, d.outcome, NULL AS refusal, d.job FROM decided d
        UNION ALL
        SELECT i.place, NULL, CASE WHEN s.id IS NULL OR s.version <> i.version OR s.paused AND NOT forced THEN 'changed'
            WHEN i.schedule = ANY (locked) THEN 'exists' ELSE 'locked' END, NULL
        FROM item i LEFT JOIN dispatcherd.schedules s ON s.id = i.schedule
    )
    SELECT a.place, coalesce(max(a.outcome), max(a.refusal)), max(a.job) FROM answer a
    WHERE (SELECT count(*) FROM notified) + (SELECT count(*) FROM announced) >= 0 GROUP BY a.place;
END $$;

-- Starts the first queued tick of each schedule that has no open run and is not paused. The controller calls it. It returns the schedules,
-- the jobs that it has inserted, and whether further ticks are queued. If the next queued tick has a reason, it asks to cancel the runs.
CREATE FUNCTION dispatcherd.start_queued(schedules bigint[]) RETURNS TABLE(schedule bigint, job bigint, waiting boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    locked bigint[] := ARRAY (SELECT s.id FROM dispatcherd.schedules s WHERE s.id = ANY (schedules) ORDER BY s.id
        FOR NO KEY UPDATE SKIP LOCKED);
BEGIN
    PERFORM dispatcherd.forget_runs(locked);
    RETURN QUERY WITH head AS MATERIALIZED (
        SELECT s.id, q.occasion FROM dispatcherd.schedules s
        CROSS JOIN LATERAL (SELECT t.occasion FROM dispatcherd.ticks t WHERE t.schedule_id = s.id AND t.outcome = 'queued'
            ORDER BY t.run_at, t.occasion LIMIT 1) q
        WHERE s.id = ANY (locked) AND NOT s.paused AND NOT EXISTS (SELECT FROM dispatcherd.schedule_runs r WHERE r.schedule_id = s.id)
    ), tick AS (
        UPDATE dispatcherd.ticks t SET outcome = 'run', reason = NULL, job_id = nextval('dispatcherd.job_ids')
        FROM head h WHERE t.schedule_id = h.id AND t.occasion = h.occasion RETURNING t.schedule_id, t.job_id, t.run_at
    ), job AS (
        INSERT INTO dispatcherd.jobs (id, type, payload, priority, max_attempts, timeout_ms, expected_ms, keys, run_at)
        SELECT t.job_id, s.type, s.payload, s.priority, s.max_attempts, s.timeout_ms, s.expected_ms, s.keys, t.run_at
        FROM tick t JOIN dispatcherd.schedules s ON s.id = t.schedule_id ORDER BY t.job_id
    ), run AS (
        INSERT INTO dispatcherd.schedule_runs SELECT t.schedule_id, t.job_id FROM tick t
    ), cancelled AS (
        SELECT dispatcherd.cancel_runs(array_agg(r.job_id ORDER BY random())) FROM unnest(locked) AS s (id) CROSS JOIN LATERAL (
            SELECT q.reason FROM dispatcherd.ticks q WHERE q.schedule_id = s.id AND q.outcome = 'queued'
                ORDER BY q.run_at, q.occasion LIMIT 1
        ) h CROSS JOIN LATERAL (
            SELECT o.job_id FROM dispatcherd.schedule_runs o WHERE o.schedule_id = s.id
                AND NOT EXISTS (SELECT FROM dispatcherd.cancels c WHERE c.job_id = o.job_id) ORDER BY o.job_id LIMIT 1000
        ) r WHERE h.reason IS NOT NULL
    )
    SELECT a.id, max(a.job), max(a.queued) > count(a.job) FROM (
        SELECT t.schedule_id AS id, t.job_id AS job, 0 AS queued FROM tick t
        UNION ALL
        SELECT i.id, NULL,
            (SELECT count(*) FROM (SELECT FROM dispatcherd.ticks q WHERE q.schedule_id = i.id AND q.outcome = 'queued' LIMIT 2) bounded)
        FROM unnest(schedules) AS i (id)
    ) a WHERE (SELECT count(*) FROM cancelled) >= 0 GROUP BY a.id;
END $$;

-- Deletes rows of schedule_runs whose jobs have ended. Of each schedule it checks the first 100 rows, and the next 100 only while all of
-- these have ended. So an open run is always found, and many of them do not make it slow. make_ticks and start_queued call it.
CREATE FUNCTION dispatcherd.forget_runs(schedules bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
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

-- Asks the dispatchers that run jobs to cancel them, by rows in cancels; by is recorded as cancelled_by. make_ticks and start_queued
-- (overlap = cancel_other), cancel_tree and cancel_members call it. It waits at most 1 ms for a row that another transaction is inserting,
-- and leaves out the job, which is being cancelled anyway. After 20 of them it stops, because each takes a few milliseconds.
CREATE FUNCTION dispatcherd.cancel_runs(jobs bigint[], by text DEFAULT 'schedule') RETURNS void
LANGUAGE plpgsql STRICT SET search_path = pg_catalog, pg_temp SET lock_timeout = '1ms' AS $$
DECLARE
    run    bigint;
    locked int := 0;
BEGIN
    BEGIN
        INSERT INTO dispatcherd.cancels (job_id, requested_by) SELECT unnest(jobs), by ON CONFLICT DO NOTHING;
    EXCEPTION WHEN lock_not_available THEN
        FOREACH run IN ARRAY jobs LOOP
            BEGIN
                INSERT INTO dispatcherd.cancels (job_id, requested_by) VALUES (run, by) ON CONFLICT DO NOTHING;
            EXCEPTION WHEN lock_not_available THEN
                locked := locked + 1;
                EXIT WHEN locked = 20;
            END;
        END LOOP;
    END;
    IF dispatcherd.may_notify() THEN
        PERFORM pg_notify('dispatcherd', 'cancel ' || c.job_id) FROM dispatcherd.cancels c WHERE c.job_id = ANY (jobs);
    END IF;
END $$;
