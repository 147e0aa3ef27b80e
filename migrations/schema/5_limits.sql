-- Limits of keys. A job may have keys (jobs.keys), and a limit says how many jobs with the same key may run at once, or start within a
-- time. A job with keys waits until the controller admits it: the controller writes jobs.fence, and from then on the row of the job is its
-- permit of all of its keys. docs/how-to/limits.md explains keys and limits. The controller is in Go (internal/limits).
CREATE TABLE dispatcherd.limits (
    key      text     PRIMARY KEY
        CONSTRAINT key_is_1_to_128_characters_or_a_prefix_and_an_asterisk CHECK (key COLLATE "C" ~ '^[^\x01-\x20*\x7f]{1,128}\*?$|^\*$'),
    capacity int      DEFAULT 1 CONSTRAINT capacity_is_0_to_1000000000 CHECK (capacity BETWEEN 0 AND 1000000000),
    rate     int      CONSTRAINT rate_is_1_to_1000000000 CHECK (rate BETWEEN 1 AND 1000000000),
    per      interval CONSTRAINT per_is_10_milliseconds_to_366_days CHECK (per BETWEEN '10 ms' AND '366 days'),
    scope    text     NOT NULL DEFAULT 'cluster' CONSTRAINT scope_is_cluster_or_dispatcher CHECK (scope IN ('cluster', 'dispatcher')),
    on_retry text     NOT NULL DEFAULT 'pass' CONSTRAINT on_retry_is_pass_or_wait CHECK (on_retry IN ('pass', 'wait')),
    CONSTRAINT rate_needs_per CHECK ((rate IS NULL) = (per IS NULL)),
    -- As the controller and the programs count it: a comparison of intervals takes a year for 360 days.
    CONSTRAINT per_is_10_milliseconds_to_31622400_seconds CHECK (extract(epoch FROM per) BETWEEN 0.01 AND 31622400)
);
COMMENT ON TABLE dispatcherd.limits IS
    'Insert, update and delete rows here; docs/how-to/limits.md explains them. A key without a row admits one job at a time.';
COMMENT ON COLUMN dispatcherd.limits.key IS
    'A key, or a prefix and *: each key with the prefix has a limit of its own. The key itself applies before a prefix, and a longer '
    'prefix before a shorter one.';
COMMENT ON COLUMN dispatcherd.limits.capacity IS 'Cost of the jobs that run at once; 0 = paused; NULL = any.';
COMMENT ON COLUMN dispatcherd.limits.rate IS 'Cost of the jobs that start within any window of length per; NULL = any.';
COMMENT ON COLUMN dispatcherd.limits.on_retry IS 'wait: while a job waits for its retry, no other job of the key starts.';

-- Trigger on every statement that edits limits: records the edited limits and notifies the controller. Users edit limits by SQL. An update
-- calls it twice, with the former keys and with the new ones.
CREATE FUNCTION dispatcherd.record_limit_edits() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        INSERT INTO dispatcherd.operations (kind) VALUES ('limits_edited');
    ELSE
        INSERT INTO dispatcherd.operations (kind, name) SELECT 'limits_edited', e.key FROM edited e;
    END IF;
    IF FOUND AND dispatcherd.may_notify() THEN
        PERFORM pg_notify('dispatcherd', 'keys');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER record_inserts AFTER INSERT ON dispatcherd.limits REFERENCING NEW TABLE AS edited
    FOR EACH STATEMENT EXECUTE FUNCTION dispatcherd.record_limit_edits();
CREATE TRIGGER record_updates AFTER UPDATE ON dispatcherd.limits REFERENCING NEW TABLE AS edited
    FOR EACH STATEMENT EXECUTE FUNCTION dispatcherd.record_limit_edits();
CREATE TRIGGER record_former AFTER UPDATE ON dispatcherd.limits REFERENCING OLD TABLE AS edited
    FOR EACH STATEMENT EXECUTE FUNCTION dispatcherd.record_limit_edits();
CREATE TRIGGER record_deletes AFTER DELETE ON dispatcherd.limits REFERENCING OLD TABLE AS edited
    FOR EACH STATEMENT EXECUTE FUNCTION dispatcherd.record_limit_edits();
CREATE TRIGGER record_truncate AFTER TRUNCATE ON dispatcherd.limits
    FOR EACH STATEMENT EXECUTE FUNCTION dispatcherd.record_limit_edits();

-- Which costs of keys with a rate were admitted, and when they started, so that the next controller counts them, too. Only the controller
-- reads and writes the table. dispatcher is 0 for limits of the whole cluster. part = infinity contains the cost that is admitted and has
-- not started. The other parts contain the cost that has started in a 64th of the window of the rate; part is the end of that time, and
-- last is when the last of it started: a window that becomes shorter counts from then.
CREATE TABLE dispatcherd.key_starts (
    key        text        NOT NULL,
    dispatcher int         NOT NULL,
    part       timestamptz NOT NULL,
    cost       bigint      NOT NULL,
    expires    timestamptz NOT NULL,
    last       timestamptz NOT NULL DEFAULT 'infinity',
    PRIMARY KEY (key, dispatcher, part)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX key_starts_expires ON dispatcherd.key_starts (expires);
