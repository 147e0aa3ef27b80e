-- Keys of jobs, and limits of keys. A job with keys waits until the controller admits it: the
-- controller writes its fence, and the row is the permit. docs/storage.md gives the reasons. Migration
-- 31 creates the indexes, and migration 32 lets producers insert keys.

-- +goose Up

ALTER TABLE dispatcherd.jobs ADD COLUMN keys text, ADD COLUMN fence bigint, ADD COLUMN admitted_to int;
COMMENT ON COLUMN dispatcherd.jobs.keys IS 'Up to four words KEY, KEY*COST or KEY*all: the job runs only while it has a permit of each key; see the table limits.';
COMMENT ON COLUMN dispatcherd.jobs.fence IS 'Of a job with keys. Positive: it has its permits; it grows with each admission of a key. Negative: it is pending again, and the controller has not read this yet. NULL: it waits.';
COMMENT ON COLUMN dispatcherd.jobs.admitted_to IS 'The only dispatcher that may run the admitted job, because of a limit per dispatcher; NULL = any.';

-- Raises an error that names the first word that breaks a rule.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.reject_keys(keys text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    word text;
BEGIN
    IF octet_length(keys) > 1000 OR cardinality(string_to_array(keys, ' ')) > 4 THEN
        RAISE check_violation USING CONSTRAINT = 'keys_are_1_to_4_words', TABLE = 'jobs', SCHEMA = 'dispatcherd', COLUMN = 'keys',
            MESSAGE = format('keys have %s words and %s bytes', cardinality(string_to_array(keys, ' ')), octet_length(keys)),
            HINT = 'Use at most 4 words and 1000 bytes, for example ''tenant:42 stripe*3''.';
    END IF;
    FOREACH word IN ARRAY regexp_split_to_array(keys, ' ') LOOP -- an empty text is one word
        CONTINUE WHEN word COLLATE "C" ~ '^[^\x01-\x20*\x7f]{1,128}(\*([1-9][0-9]{0,5}|1000000|all))?$';
        RAISE check_violation USING CONSTRAINT = 'keys_are_1_to_4_words', TABLE = 'jobs', SCHEMA = 'dispatcherd', COLUMN = 'keys',
            MESSAGE = format('keys: the word "%s" is not KEY, KEY*COST or KEY*all', word),
            HINT = 'KEY has 1 to 128 characters without blanks, control characters and *, COST is 1 to 1000000, and one blank separates words, for example ''tenant:42 stripe*3''.';
    END LOOP;
    RETURN true;
END $$;
-- +goose StatementEnd

ALTER TABLE dispatcherd.jobs ALTER COLUMN keys SET STORAGE PLAIN; -- never in the TOAST table

-- The constraints are cheap for jobs without keys. The second one stops daemons of former versions, too: no
-- job with keys runs without its permits.
ALTER TABLE dispatcherd.jobs_live
    ADD CONSTRAINT keys_are_1_to_4_words CHECK (keys IS NULL OR fence IS NOT NULL OR octet_length(keys) <= 1000
        AND keys COLLATE "C" ~ '^[^\x01-\x20*\x7f]{1,128}(\*([1-9][0-9]{0,5}|1000000|all))?( [^\x01-\x20*\x7f]{1,128}(\*([1-9][0-9]{0,5}|1000000|all))?){0,3}$'
        OR dispatcherd.reject_keys(keys)) NOT VALID,
    ADD CONSTRAINT job_with_keys_runs_with_permits CHECK (keys IS NULL OR status = 'pending' OR coalesce(fence, 0) > 0) NOT VALID;

ALTER TABLE dispatcherd.schedules ADD COLUMN keys text CONSTRAINT keys_are_1_to_4_words CHECK (keys IS NULL OR dispatcherd.reject_keys(keys));

CREATE TABLE dispatcherd.limits (
    key      text PRIMARY KEY CONSTRAINT key_is_1_to_128_characters_or_a_prefix_and_an_asterisk CHECK (key COLLATE "C" ~ '^[^\x01-\x20*\x7f]{1,128}\*?$|^\*$'),
    capacity int DEFAULT 1 CONSTRAINT capacity_is_0_to_1000000000 CHECK (capacity BETWEEN 0 AND 1000000000),
    rate     int CONSTRAINT rate_is_1_to_1000000000 CHECK (rate BETWEEN 1 AND 1000000000),
    per      interval CONSTRAINT per_is_10_milliseconds_to_366_days CHECK (per BETWEEN '10 ms' AND '366 days'),
    scope    text NOT NULL DEFAULT 'cluster' CONSTRAINT scope_is_cluster_or_dispatcher CHECK (scope IN ('cluster', 'dispatcher')),
    on_retry text NOT NULL DEFAULT 'pass' CONSTRAINT on_retry_is_pass_or_wait CHECK (on_retry IN ('pass', 'wait')),
    CONSTRAINT rate_needs_per CHECK ((rate IS NULL) = (per IS NULL))
);
COMMENT ON TABLE dispatcherd.limits IS 'Insert, update and delete rows here; docs/limits.md explains them. A key without a row admits one job at a time.';
COMMENT ON COLUMN dispatcherd.limits.key IS 'A key, or a prefix and *: each key with the prefix has a limit of its own. The key itself applies before a prefix, and a longer prefix before a shorter one.';
COMMENT ON COLUMN dispatcherd.limits.capacity IS 'Cost of the jobs that run at once; 0 = paused; NULL = any.';
COMMENT ON COLUMN dispatcherd.limits.rate IS 'Cost of the jobs that start within any window of length per; NULL = any.';
COMMENT ON COLUMN dispatcherd.limits.on_retry IS 'wait: while a job waits for its retry, no other job of the key starts.';

-- One row per statement that edited limits, until the controller has read it.
CREATE TABLE dispatcherd.limit_edits (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.record_limit_edit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO dispatcherd.limit_edits DEFAULT VALUES;
    IF dispatcherd.may_notify() THEN
        PERFORM pg_notify('dispatcherd_keys', '');
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER record_limit_edit AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON dispatcherd.limits FOR EACH STATEMENT EXECUTE FUNCTION dispatcherd.record_limit_edit();

-- What was admitted to keys with a rate, so that the next controller forgets no start. The dispatcher
-- is 0 for limits of the cluster, part the end of a 64th of the window, or infinity for what has not started.
CREATE TABLE dispatcherd.key_starts (
    key        text        NOT NULL,
    dispatcher int         NOT NULL,
    part       timestamptz NOT NULL,
    cost       bigint      NOT NULL,
    expires    timestamptz NOT NULL,
    PRIMARY KEY (key, dispatcher, part)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX key_starts_expires ON dispatcherd.key_starts (expires);

ALTER TABLE dispatcherd.controller ADD COLUMN admissions bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN dispatcherd.controller.admissions IS 'Number of the reads of all permits. Admissions of an earlier number change nothing.';
ALTER TABLE dispatcherd.dispatchers ADD COLUMN program int;
COMMENT ON COLUMN dispatcherd.dispatchers.program IS 'Schema version of the program; NULL = below 30.';

-- As before, and functions copy the keys. A job with keys is not announced, because no dispatcher may claim it yet.
-- +goose StatementBegin
DO $$
DECLARE
    edit       text[];
    definition text;
BEGIN
    FOREACH edit SLICE 1 IN ARRAY ARRAY[
        ['notify_dispatchers', 'j.id = last AND j.status', 'j.id = last AND j.keys IS NULL AND j.status'],
        ['cancel_pending', 'payload, finished_at,', 'payload, keys, fence, finished_at,'],
        ['cancel_pending', '::dispatcherd.payload END, now()', '::dispatcherd.payload END, keys, fence, now()'],
        ['retry_jobs', 'type, payload, errors', 'type, payload, keys, errors'],
        ['make_ticks', 'max_attempts, timeout_ms, run_at)', 'max_attempts, timeout_ms, keys, run_at)'],
        ['make_ticks', 's.timeout_ms, t.run_at', 's.timeout_ms, s.keys, t.run_at'],
        ['start_queued', 'max_attempts, timeout_ms, run_at)', 'max_attempts, timeout_ms, keys, run_at)'],
        ['start_queued', 's.timeout_ms, t.run_at', 's.timeout_ms, s.keys, t.run_at']
    ] LOOP
        definition := pg_get_functiondef(('dispatcherd.' || edit[1])::regproc);
        ASSERT strpos(definition, edit[2]) > 0, edit[2];
        EXECUTE replace(definition, edit[2], edit[3]);
    END LOOP;
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION dispatcherd.record_limit_edit, dispatcherd.reject_keys FROM PUBLIC;
-- +goose StatementBegin
DO $$
DECLARE
    r text;
BEGIN
    FOR r IN SELECT rolname FROM pg_roles WHERE rolname IN ('dispatcherd_producer', 'dispatcherd_operator', 'dispatcherd_dispatcher') LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION dispatcherd.reject_keys TO %I', r);
        CONTINUE WHEN r = 'dispatcherd_producer';
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON dispatcherd.limits TO %I', r);
        EXECUTE format('GRANT INSERT (keys), UPDATE (keys) ON dispatcherd.schedules TO %I', r);
        CONTINUE WHEN r <> 'dispatcherd_dispatcher';
        EXECUTE format('GRANT SELECT, DELETE ON dispatcherd.limit_edits TO %I', r);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON dispatcherd.key_starts TO %I', r);
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_reader') THEN
        GRANT SELECT ON dispatcherd.limits TO dispatcherd_reader;
        GRANT SELECT (keys) ON dispatcherd.schedules TO dispatcherd_reader;
        GRANT SELECT (keys, fence, admitted_to) ON dispatcherd.jobs, dispatcherd.jobs_live TO dispatcherd_reader;
    END IF;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose StatementBegin
DO $$
DECLARE
    edit       text[];
    definition text;
BEGIN
    FOREACH edit SLICE 1 IN ARRAY ARRAY[
        ['notify_dispatchers', 'j.id = last AND j.status', 'j.id = last AND j.keys IS NULL AND j.status'],
        ['cancel_pending', 'payload, finished_at,', 'payload, keys, fence, finished_at,'],
        ['cancel_pending', '::dispatcherd.payload END, now()', '::dispatcherd.payload END, keys, fence, now()'],
        ['retry_jobs', 'type, payload, errors', 'type, payload, keys, errors'],
        ['make_ticks', 'max_attempts, timeout_ms, run_at)', 'max_attempts, timeout_ms, keys, run_at)'],
        ['make_ticks', 's.timeout_ms, t.run_at', 's.timeout_ms, s.keys, t.run_at'],
        ['start_queued', 'max_attempts, timeout_ms, run_at)', 'max_attempts, timeout_ms, keys, run_at)'],
        ['start_queued', 's.timeout_ms, t.run_at', 's.timeout_ms, s.keys, t.run_at']
    ] LOOP
        definition := pg_get_functiondef(('dispatcherd.' || edit[1])::regproc);
        ASSERT strpos(definition, edit[3]) > 0, edit[3];
        EXECUTE replace(definition, edit[3], edit[2]);
    END LOOP;
END $$;
-- +goose StatementEnd
ALTER TABLE dispatcherd.dispatchers DROP COLUMN program;
ALTER TABLE dispatcherd.controller DROP COLUMN admissions;
DROP TABLE dispatcherd.key_starts, dispatcherd.limits, dispatcherd.limit_edits;
DROP FUNCTION dispatcherd.record_limit_edit;
ALTER TABLE dispatcherd.schedules DROP COLUMN keys;
ALTER TABLE dispatcherd.jobs_live DROP CONSTRAINT keys_are_1_to_4_words, DROP CONSTRAINT job_with_keys_runs_with_permits;
DROP FUNCTION dispatcherd.reject_keys;
ALTER TABLE dispatcherd.jobs DROP COLUMN admitted_to, DROP COLUMN fence, DROP COLUMN keys;
