-- The expected duration of a job, which decides its lane. docs/storage.md gives the reasons. Migration 42 creates the indexes, and
-- migration 43 lets producers insert it.

-- +goose Up

-- The class of an expected duration in milliseconds, 0 to 7: each has two octaves, the first one ends before 2^14 and the last one begins
-- with 2^26. It is the same as ClassOf of the programs. It has no SET, so that it is inlined.
CREATE FUNCTION dispatcherd.duration_class(ms bigint) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
    'SELECT pg_catalog.width_bucket(ms, ''{16384,65536,262144,1048576,4194304,16777216,67108864}''::pg_catalog.int8[])::pg_catalog.int2';

ALTER TABLE dispatcherd.jobs ADD COLUMN expected_ms int;
COMMENT ON COLUMN dispatcherd.jobs.expected_ms IS 'How long an attempt probably takes, in milliseconds; it decides the lane and never changes. NULL = unknown.';
ALTER TABLE dispatcherd.jobs_live ADD CONSTRAINT expected_ms_is_1_to_2147483647 CHECK (expected_ms > 0) NOT VALID;
ALTER TABLE dispatcherd.jobs_waiting ADD CONSTRAINT expected_ms_is_1_to_2147483647 CHECK (expected_ms > 0) NOT VALID;
ALTER TABLE dispatcherd.schedules ADD COLUMN expected_ms int CONSTRAINT expected_ms_is_1_to_2147483647 CHECK (expected_ms > 0);

-- What dispatchers have learned of the durations of jobs, by name of the dispatcher; class -1 = without an expected duration.
CREATE TABLE dispatcherd.durations (
    dispatcher text        NOT NULL,
    type       text        NOT NULL,
    class      smallint    NOT NULL,
    n          bigint      NOT NULL,
    s          bigint      NOT NULL,
    learned_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (dispatcher, type, class)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE dispatcherd.durations IS 'How long jobs take: n attempts, and the sum s of the logarithms of their durations, both decayed. Losing them loses only what was learned.';

-- As before, and functions copy and check expected_ms. A notification names the class after the priority, if there is one. Daemons of
-- former versions then read all lanes.
-- +goose StatementBegin
DO $$
DECLARE
    edit       text[];
    definition text;
BEGIN
    FOREACH edit SLICE 1 IN ARRAY ARRAY[
        ['notify_dispatchers', 'j.priority::int', 'concat_ws(''/'', j.priority::int, dispatcherd.duration_class(j.expected_ms))'],
        ['release_waiting', ', keys, parent,', ', keys, expected_ms, parent,'],
        ['release_waiting', 'run_at, type, keys', 'run_at, type, keys, expected_ms'],
        ['release_waiting', ' priority::int', ' concat_ws(''/'', priority::int, dispatcherd.duration_class(expected_ms))'],
        ['end_idle', 'keys, fence, parent', 'keys, expected_ms, fence, parent'],
        ['retry_jobs', 'payload, keys,', 'payload, keys, expected_ms,'],
        ['wait_again', 'payload, keys,', 'payload, keys, expected_ms,'],
        ['insert_jobs', 'timeout_ms int, keys', 'timeout_ms int, expected_ms int, keys'],
        ['insert_jobs', 'timeout_ms, keys, unique_key', 'timeout_ms, expected_ms, keys, unique_key'],
        ['insert_jobs', 'r.timeout_ms, r.keys', 'r.timeout_ms, r.expected_ms, r.keys'],
        ['insert_unique', 'timeout_ms int, keys', 'timeout_ms int, expected_ms int, keys'],
        ['insert_unique', 'timeout_ms, keys, unique_key', 'timeout_ms, expected_ms, keys, unique_key'],
        ['insert_unique', 'r.timeout_ms, r.keys', 'r.timeout_ms, r.expected_ms, r.keys'],
        ['job_problem', 'timeout_ms,keys}', 'timeout_ms,expected_ms,keys}'],
        ['job_problem', '(job -> ''timeout_ms'')::text, 64))', '(job -> ''timeout_ms'')::text, 64))
        WHEN (job -> ''expected_ms'')::text !~ ''^(-?[0-9]{1,10}|null)$'' OR (job ->> ''expected_ms'')::bigint > 2147483647
            THEN format(''expected_ms is %s, must be a whole number from 1 to 2147483647'', left((job -> ''expected_ms'')::text, 64))'],
        ['make_ticks', 'timeout_ms, keys, run_at)', 'timeout_ms, expected_ms, keys, run_at)'],
        ['make_ticks', 's.timeout_ms, s.keys', 's.timeout_ms, s.expected_ms, s.keys'],
        ['start_queued', 'timeout_ms, keys, run_at)', 'timeout_ms, expected_ms, keys, run_at)'],
        ['start_queued', 's.timeout_ms, s.keys', 's.timeout_ms, s.expected_ms, s.keys']
    ] LOOP
        definition := pg_get_functiondef(('dispatcherd.' || edit[1])::regproc);
        ASSERT strpos(definition, edit[2]) > 0, edit[2];
        EXECUTE replace(definition, edit[2], edit[3]);
    END LOOP;
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION dispatcherd.duration_class FROM PUBLIC;
-- +goose StatementBegin
DO $$
DECLARE
    r text;
BEGIN
    FOR r IN SELECT rolname FROM pg_roles WHERE rolname IN ('dispatcherd_producer', 'dispatcherd_reader', 'dispatcherd_operator', 'dispatcherd_dispatcher') LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION dispatcherd.duration_class TO %I', r);
        CONTINUE WHEN r = 'dispatcherd_producer';
        EXECUTE format('GRANT SELECT ON dispatcherd.durations TO %I', r);
        CONTINUE WHEN r = 'dispatcherd_reader';
        EXECUTE format('GRANT INSERT (expected_ms), UPDATE (expected_ms) ON dispatcherd.schedules TO %I', r);
        CONTINUE WHEN r <> 'dispatcherd_dispatcher';
        GRANT INSERT, UPDATE, DELETE ON dispatcherd.durations TO dispatcherd_dispatcher;
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_reader') THEN
        GRANT SELECT (expected_ms) ON dispatcherd.jobs, dispatcherd.jobs_live, dispatcherd.schedules TO dispatcherd_reader;
    END IF;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 37::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 37::bigint';

-- +goose StatementBegin
DO $$
DECLARE
    edit       text[];
    definition text;
BEGIN
    FOREACH edit SLICE 1 IN ARRAY ARRAY[
        ['notify_dispatchers', 'j.priority::int', 'concat_ws(''/'', j.priority::int, dispatcherd.duration_class(j.expected_ms))'],
        ['release_waiting', ', keys, parent,', ', keys, expected_ms, parent,'],
        ['release_waiting', 'run_at, type, keys', 'run_at, type, keys, expected_ms'],
        ['release_waiting', ' priority::int', ' concat_ws(''/'', priority::int, dispatcherd.duration_class(expected_ms))'],
        ['end_idle', 'keys, fence, parent', 'keys, expected_ms, fence, parent'],
        ['retry_jobs', 'payload, keys,', 'payload, keys, expected_ms,'],
        ['wait_again', 'payload, keys,', 'payload, keys, expected_ms,'],
        ['insert_jobs', 'timeout_ms int, keys', 'timeout_ms int, expected_ms int, keys'],
        ['insert_jobs', 'timeout_ms, keys, unique_key', 'timeout_ms, expected_ms, keys, unique_key'],
        ['insert_jobs', 'r.timeout_ms, r.keys', 'r.timeout_ms, r.expected_ms, r.keys'],
        ['insert_unique', 'timeout_ms int, keys', 'timeout_ms int, expected_ms int, keys'],
        ['insert_unique', 'timeout_ms, keys, unique_key', 'timeout_ms, expected_ms, keys, unique_key'],
        ['insert_unique', 'r.timeout_ms, r.keys', 'r.timeout_ms, r.expected_ms, r.keys'],
        ['job_problem', 'timeout_ms,keys}', 'timeout_ms,expected_ms,keys}'],
        ['job_problem', '(job -> ''timeout_ms'')::text, 64))', '(job -> ''timeout_ms'')::text, 64))
        WHEN (job -> ''expected_ms'')::text !~ ''^(-?[0-9]{1,10}|null)$'' OR (job ->> ''expected_ms'')::bigint > 2147483647
            THEN format(''expected_ms is %s, must be a whole number from 1 to 2147483647'', left((job -> ''expected_ms'')::text, 64))'],
        ['make_ticks', 'timeout_ms, keys, run_at)', 'timeout_ms, expected_ms, keys, run_at)'],
        ['make_ticks', 's.timeout_ms, s.keys', 's.timeout_ms, s.expected_ms, s.keys'],
        ['start_queued', 'timeout_ms, keys, run_at)', 'timeout_ms, expected_ms, keys, run_at)'],
        ['start_queued', 's.timeout_ms, s.keys', 's.timeout_ms, s.expected_ms, s.keys']
    ] LOOP
        definition := pg_get_functiondef(('dispatcherd.' || edit[1])::regproc);
        ASSERT strpos(definition, edit[3]) > 0, edit[3];
        EXECUTE replace(definition, edit[3], edit[2]);
    END LOOP;
END $$;
-- +goose StatementEnd
DROP TABLE dispatcherd.durations;
ALTER TABLE dispatcherd.schedules DROP COLUMN expected_ms;
ALTER TABLE dispatcherd.jobs_waiting DROP CONSTRAINT expected_ms_is_1_to_2147483647;
ALTER TABLE dispatcherd.jobs_live DROP CONSTRAINT expected_ms_is_1_to_2147483647;
ALTER TABLE dispatcherd.jobs DROP COLUMN expected_ms;
DROP FUNCTION dispatcherd.duration_class;
