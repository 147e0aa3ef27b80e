-- Schedules insert jobs. An occasion is an instant of the plan of a schedule, a start of the cluster or a worker, or a request to run.
-- Each occasion has one tick, a row that says what became of it, and at most one job, its run. docs/how-to/schedules.md explains schedules.
-- Go plans the occasions, decides what becomes of them, and writes ticks and jobs (internal/schedule).

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
    -- The form of a cron expression, with the numbers and names of each field. Only Go can tell that it never matches, as 30 February, or
    -- that a range decreases; the column error says so then. "<values>" stands for a field: a list of values, ranges and steps.
    CONSTRAINT spec_is_a_cron_expression CHECK (spec COLLATE "C" ~* replace(replace(
        '^\s*(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|(<[0-5]?\d>\s+)?<[0-5]?\d>\s+<1?\d|2[0-3]>\s+'
        '<([1-9]|[12]\d|3[01])w?|lw?>\s+<[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec>\s+'
        '<([0-7]|sun|mon|tue|wed|thu|fri|sat)(#[1-5]|l)?>)\s*$',
        '<', '((\*|0*('), '>', ')(-\w+)?)(/\d+)?(,(?=\S)|(?=\s|$)))+')),
    CONSTRAINT only_interval_has_every CHECK ((kind = 'interval') = (every IS NOT NULL)),
    CONSTRAINT only_startup_has_once CHECK ((kind = 'startup') = (once IS NOT NULL)),
    CONSTRAINT ends_at_is_after_starts_at CHECK (ends_at > starts_at),
    CONSTRAINT startup_worker_has_no_keys CHECK (kind <> 'startup-worker' OR keys IS NULL) -- its runs do not wait for permits
);
CREATE INDEX schedules_worker ON dispatcherd.schedules (type) WHERE kind = 'startup-worker';
CREATE INDEX schedules_refused ON dispatcherd.schedules (name) WHERE error IS NOT NULL;
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
CREATE INDEX ticks_job ON dispatcherd.ticks (job_id) WHERE job_id IS NOT NULL; -- for retries
CREATE INDEX ticks_queued ON dispatcherd.ticks (schedule_id, run_at, occasion) WHERE outcome = 'queued';
COMMENT ON TABLE dispatcherd.ticks IS 'One row for each occasion of a schedule: what became of it.';
COMMENT ON COLUMN dispatcherd.ticks.planned_at IS
    'Instant of the plan; the largest one of a cron schedule is its high-water mark. NULL = not planned: run now, backfill, startup.';
COMMENT ON COLUMN dispatcherd.ticks.run_at IS 'run_at of the job.';
COMMENT ON COLUMN dispatcherd.ticks.missed IS
    'Of a missed tick: the number of occasions that it stands for, of which it names the last.';
COMMENT ON COLUMN dispatcherd.ticks.reason IS 'Why a tick is skipped. A queued tick that has a reason cancels the open runs.';
COMMENT ON COLUMN dispatcherd.ticks.renewed_at IS
    'Of a startup-worker schedule: when the worker was last seen connected. Retention counts from then.';

-- The runs of schedules that may not have ended. Before the runs of a schedule are counted for a tick, those that have ended are deleted.
-- So no statement that ends jobs has to know of schedules. A retry inserts the run again (claim/retry.go).
CREATE TABLE dispatcherd.schedule_runs (
    schedule_id bigint NOT NULL,
    job_id      bigint NOT NULL,
    PRIMARY KEY (schedule_id, job_id)
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
        INSERT INTO dispatcherd.operations (kind, target)
        SELECT 'schedule_edited', n.id FROM edited n JOIN before b ON b.id = n.id WHERE n.version <> b.version ORDER BY n.id
        ON CONFLICT (kind, target) WHERE kind IN ('schedule_edited', 'limits_edited') DO UPDATE SET id = DEFAULT;
    ELSE
        INSERT INTO dispatcherd.operations (kind, target) SELECT 'schedule_edited', n.id FROM edited n ORDER BY n.id
        ON CONFLICT (kind, target) WHERE kind IN ('schedule_edited', 'limits_edited') DO UPDATE SET id = DEFAULT;
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
