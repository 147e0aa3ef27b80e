-- Jobs: the types of their columns, the table and its partitions, and what happens when one is inserted, cancelled or retried.
-- docs/explanation/storage.md describes the tables and indexes for database administrators.

CREATE TYPE dispatcherd.status AS ENUM ('waiting', 'pending', 'running', 'done', 'failed', 'cancelled');

-- Values are checked by domains and not by table constraints, because Postgres checks a domain only when a value is made, and a table
-- constraint again at every UPDATE and at every move of a row to another partition.
CREATE DOMAIN dispatcherd.job_id AS bigint
    CONSTRAINT id_is_positive CHECK (VALUE > 0);
CREATE DOMAIN dispatcherd.due_time AS timestamptz
    CONSTRAINT run_at_is_between_1970_and_2200 CHECK (VALUE >= '1970-01-01 00:00:00+00' AND VALUE < '2200-01-01 00:00:00+00');
CREATE DOMAIN dispatcherd.priority AS smallint
    CONSTRAINT priority_is_0_to_10 CHECK (VALUE BETWEEN 0 AND 10);
CREATE DOMAIN dispatcherd.attempt AS int
    CONSTRAINT attempt_is_not_negative CHECK (VALUE >= 0);
CREATE DOMAIN dispatcherd.tries AS smallint
    CONSTRAINT max_attempts_is_at_least_1 CHECK (VALUE >= 1);
CREATE DOMAIN dispatcherd.count AS smallint
    CONSTRAINT count_is_not_negative CHECK (VALUE >= 0);
CREATE DOMAIN dispatcherd.timeout_ms AS int
    CONSTRAINT timeout_ms_is_positive CHECK (VALUE > 0);

-- A type contains no invisible character. The list is that of CheckType in Go; a test compares the two. In a database with another encoding
-- than UTF8 the numbers denote other characters, so there only control characters are rejected.
CREATE DOMAIN dispatcherd.job_type AS text
    CONSTRAINT type_is_1_to_128_bytes CHECK (octet_length(VALUE) BETWEEN 1 AND 128);
DO $$
BEGIN
    IF getdatabaseencoding() = 'UTF8' THEN
        ALTER DOMAIN dispatcherd.job_type ADD CONSTRAINT type_has_no_invisible_character CHECK (VALUE !~ ('['
            '\u0001-\u001f\u007f-\u009f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u115f-\u1160\u17b4-\u17b5'
            '\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd'
            '\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]'));
    ELSE
        ALTER DOMAIN dispatcherd.job_type ADD CONSTRAINT type_has_no_control_character CHECK (VALUE !~ '[[:cntrl:]]');
    END IF;
END $$;

-- Returns the length in bytes of all numbers of a payload, written as text. Only the domain payload calls it. That domain also bounds the
-- text of a payload, because workers receive text: jsonb stores 1e131071 in 12 bytes and writes it with 131,072 digits. A number of more
-- than 1,024 digits before or after the point counts as 8 MiB + 1, so a payload that contains one is rejected. Such a number is never
-- converted to text here, because the text of a payload of many of them could have a gigabyte. The numbers are read from one array, because
-- in Postgres 15 the set that jsonb_path_query returns takes quadratic time in their count.
CREATE FUNCTION dispatcherd.numbers_length(payload jsonb) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN (
    SELECT sum(CASE WHEN scale(n::numeric) > 1024 OR abs(n::numeric) >= 1e1024 THEN 8388609 ELSE octet_length(n::text) END)
    FROM jsonb_array_elements(jsonb_path_query_array(payload, 'strict $.** ? (@.type() == "number")')) n
);

-- A payload has at most 1,000,000 bytes as jsonb, before compression, and at most 8 MiB (jsontext.MaxText) as text. #> '{}' returns the
-- value itself, uncompressed. The branches of the CASE keep the check cheap:
-- - Up to 900 bytes there is nothing to test. A number takes at least 16 bytes of jsonb and has at most 147,458 characters, so the text of
--   such a payload is always shorter than 8 MiB.
-- - Up to 4,096 bytes the text is written and measured. It has at most 38 MB.
-- - Above that, the numbers are measured first, and the text is written only if they are short enough. The other values have at most 6 MB
--   as text. The search for numbers doubles the time of such a payload.
CREATE DOMAIN dispatcherd.payload AS jsonb
    CONSTRAINT payload_is_at_most_1_megabyte_and_8_as_text CHECK (
        CASE
            WHEN pg_column_size(VALUE #> '{}'::text[]) <= 900 THEN true
            WHEN pg_column_size(VALUE #> '{}'::text[]) > 1000000 THEN false
            WHEN pg_column_size(VALUE #> '{}'::text[]) > 4096 AND dispatcherd.numbers_length(VALUE) > 8388608 THEN false
            ELSE octet_length(VALUE::text) <= 8388608
        END);

-- The default of jobs.run_at: a job is due from the moment of its insertion. now() and statement_timestamp() would be too early, because a
-- transaction or statement may begin long before it inserts a row. The function is declared STABLE although it is not: if a default is
-- VOLATILE, COPY inserts rows one at a time. Postgres evaluates a STABLE default for each row, too.
CREATE FUNCTION dispatcherd.insertion_time() RETURNS timestamptz
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN pg_catalog.clock_timestamp();
END $$;

-- Returns the class of an expected duration in milliseconds. Class 0 ends before 2^14 ms (16 seconds), each further class reaches four
-- times as far, and class 7, the last one, begins with 2^26 ms (19 hours). The index jobs_live_expected, the statements that fetch jobs,
-- and the notifications of new jobs use it. ClassOf in Go computes the same; a test compares the two. It has no SET, so that it is inlined.
CREATE FUNCTION dispatcherd.duration_class(ms bigint) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT pg_catalog.width_bucket(ms, '{16384,65536,262144,1048576,4194304,16777216,67108864}'::pg_catalog.int8[])::pg_catalog.int2
$$;

-- Raises an error that names the first word of keys that breaks a rule. If no word does, it returns true. Only the domain keys calls it,
-- for values that break its other conditions, so that the error names the word. The pattern is an E'' literal, so it means the same if the
-- role or the database sets standard_conforming_strings = off.
CREATE FUNCTION dispatcherd.check_keys(keys text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    word  text;
    words int := cardinality(string_to_array(keys, ' '));
BEGIN
    IF octet_length(keys) > 1000 OR words > 4 THEN
        RAISE check_violation USING CONSTRAINT = 'keys_are_1_to_4_words', TABLE = 'jobs', SCHEMA = 'dispatcherd', COLUMN = 'keys',
            MESSAGE = format('keys have %s words and %s bytes', words, octet_length(keys)),
            HINT = 'Use at most 4 words and 1000 bytes, for example ''tenant:42 stripe*3''.';
    END IF;
    FOREACH word IN ARRAY regexp_split_to_array(keys, ' ') LOOP -- an empty text is one word
        CONTINUE WHEN word COLLATE "C" ~ E'^[^\\x01-\\x20*\\x7f]{1,128}(\\*([1-9][0-9]{0,5}|1000000|all))?$';
        RAISE check_violation USING CONSTRAINT = 'keys_are_1_to_4_words', TABLE = 'jobs', SCHEMA = 'dispatcherd', COLUMN = 'keys',
            MESSAGE = format('keys: the word "%s" is not KEY, KEY*COST or KEY*all', word),
            HINT = 'KEY has 1 to 128 characters without blanks, control characters and *, COST is 1 to 1000000, and one blank '
                'separates words, for example ''tenant:42 stripe*3''.';
    END LOOP;
    RETURN true;
END $$;

-- The role that calls a function which runs with the rights of its owner, where current_user is that owner. Such a function has a last
-- parameter of this type with the default current_user. Postgres computes the default and checks the domain before it enters the function,
-- so a caller cannot name another role. NULL can get past a domain, so the functions take it for a role without rights. No role may create
-- tables or functions with the type (8_roles.sql), which could keep such a value until the role has lost its rights.
CREATE DOMAIN dispatcherd.caller AS name
    CONSTRAINT caller_is_the_current_user CHECK (VALUE IS NOT DISTINCT FROM current_user);

-- Returns the owner of the batches and unique keys that caller inserts: the role in the setting dispatcherd.owner, which must be the caller
-- or a group of it, and without the setting the caller. NULL = the dispatchers: all roles that may update jobs_live. It raises an error if
-- the caller may not set a column that one of jobs sets; defaults need no right. The name of an owner of unique keys has no " / ", so that
-- the key follows the first one. If jobs is NULL, nothing is checked. With key, it returns the owner with which the key begins, and raises
-- an error if there is none to which the caller belongs. Dispatchers may write any key. The functions for producers call it, statements
-- that insert unique keys, and the domain unique_key.
CREATE FUNCTION dispatcherd.owner(caller name DEFAULT current_user, jobs jsonb DEFAULT '[]', key text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    trusted boolean := coalesce(has_table_privilege(caller, 'dispatcherd.jobs_live', 'UPDATE'), false);
    setting text := nullif(current_setting('dispatcherd.owner', true), '');
    owner   text := CASE WHEN key IS NULL THEN coalesce(setting, CASE WHEN NOT trusted THEN caller END)
        WHEN NOT trusted AND position(' / ' IN key) > 0 THEN split_part(key, ' / ', 1) END;
    denied  text := (SELECT string_agg(c, ', ') FROM unnest('{type, payload, priority, run_at, max_attempts, timeout_ms, expected_ms, keys,
        parent, unique_key, traceparent, backoff}'::text[]) c WHERE NOT has_column_privilege(caller, 'dispatcherd.jobs', c, 'INSERT')
        AND EXISTS (SELECT FROM jsonb_array_elements(jobs) j WHERE j ? c AND (c = 'payload' OR j -> c <> 'null')
            AND NOT '{"payload": {}, "priority": 0}' @> jsonb_build_object(c, j -> c)));
BEGIN
    IF denied IS NOT NULL THEN
        RAISE insufficient_privilege USING MESSAGE = format('permission denied: %s needs INSERT (%s) on dispatcherd.jobs', caller, denied);
    ELSIF jobs IS NOT NULL AND (owner IS NOT NULL OR NOT trusted) AND NOT EXISTS (
        SELECT FROM pg_roles r WHERE r.rolname = owner AND pg_has_role(caller, r.oid, 'MEMBER')
            AND (split_part(owner || ' / ', ' / ', 1) = owner OR NOT jobs @? '$[*].unique_key ? (@ != null)')) THEN
        RAISE insufficient_privilege USING CONSTRAINT = 'owner_is_the_role_or_its_group', MESSAGE = format(
            '%s: the owner must be role %s or a group of it%s', coalesce('unique_key "' || key || '"', 'dispatcherd.owner = ' || setting,
            'unique_key'), caller, CASE WHEN owner LIKE '% /%' THEN ', without " / " in the name' END),
            HINT = format(CASE WHEN key IS NULL AND setting IS NOT NULL THEN 'GRANT %2$I TO %1$I, or RESET dispatcherd.owner.'
                ELSE 'The table has unique keys as OWNER / KEY, for example "%1$s / invoice 7".' END, caller, setting);
    END IF;
    RETURN owner;
END $$;

-- The next three are domains for the reason given above: a constraint of jobs_live would be checked again by each claim and by the end of
-- each job. The domain keys allows NULL explicitly, because Postgres also checks a domain when it inserts a NULL.
CREATE DOMAIN dispatcherd.keys AS text
    CONSTRAINT keys_are_1_to_4_words CHECK (VALUE IS NULL OR octet_length(VALUE) <= 1000
        AND VALUE COLLATE "C" ~ ('^[^\x01-\x20*\x7f]{1,128}(\*([1-9][0-9]{0,5}|1000000|all))?'
            '( [^\x01-\x20*\x7f]{1,128}(\*([1-9][0-9]{0,5}|1000000|all))?){0,3}$')
        OR dispatcherd.check_keys(VALUE));
-- A unique key is stored behind its owner, as "OWNER / KEY". An owner, which is the name of a role, has at most 63 bytes.
CREATE DOMAIN dispatcherd.unique_key AS text
    CONSTRAINT unique_key_is_1_to_512_bytes CHECK (octet_length(split_part(VALUE, ' / ', -1)) BETWEEN 1 AND 512)
    CONSTRAINT unique_key_has_at_most_one_owner CHECK (octet_length(VALUE) <= 512 + 3 + 63 AND VALUE NOT LIKE '% / % / %')
    CONSTRAINT unique_key_begins_with_its_owner CHECK (VALUE IS NULL OR dispatcherd.owner(key => VALUE) IS DISTINCT FROM '');
CREATE DOMAIN dispatcherd.expected_ms AS int
    CONSTRAINT expected_ms_is_1_to_2147483647 CHECK (VALUE > 0);
-- How long a job waits after a failure: the form of ParsePolicy in Go; a test compares the two.
CREATE DOMAIN dispatcherd.backoff AS text
    CONSTRAINT backoff_is_exponential_fixed_or_list CHECK (VALUE COLLATE "C" ~ regexp_replace(
        '^(exponential:D(,([1-9](\.[0-9]{1,2})?|10)(,D(,(0(\.[0-9]{1,2})?|1))?)?)?|fixed:D|list:D(,D){0,31})$',
        'D', '([1-9][0-9]{0,6}ms|[1-9][0-9]{0,3}s|[1-9][0-9]{0,2}m|([1-9]|1[0-9]|2[0-4])h)', 'g'));
-- The form of version 00 of the W3C recommendation Trace Context. CheckTraceparent in Go has the same rule; a test compares the two.
CREATE DOMAIN dispatcherd.traceparent AS text
    CONSTRAINT traceparent_is_w3c_trace_context CHECK (
        VALUE COLLATE "C" ~ '^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$');

-- The ids of jobs, batches and flows. They come from a sequence of its own, because batches and flows are in another table, and because
-- identity columns do not reach partitions before Postgres 17.
CREATE SEQUENCE dispatcherd.job_ids AS bigint;

-- The first five columns are never NULL and have a fixed width, so Postgres finds them in every row at the same offset.
CREATE TABLE dispatcherd.jobs (
    id           dispatcherd.job_id   NOT NULL DEFAULT nextval('dispatcherd.job_ids'),
    run_at       dispatcherd.due_time NOT NULL DEFAULT dispatcherd.insertion_time(),
    created_at   timestamptz          NOT NULL DEFAULT now(),
    attempt      dispatcherd.attempt  NOT NULL DEFAULT 0,
    status       dispatcherd.status   NOT NULL DEFAULT 'pending',
    dispatcher   int,
    timeout_ms   dispatcherd.timeout_ms,
    priority     dispatcherd.priority NOT NULL DEFAULT 0,
    max_attempts dispatcherd.tries,
    failures     dispatcherd.count    NOT NULL DEFAULT 0,
    crashes      dispatcherd.count    NOT NULL DEFAULT 0,
    type         dispatcherd.job_type NOT NULL,
    payload      dispatcherd.payload  NOT NULL DEFAULT '{}',
    token        bigint,
    started_at   timestamptz,
    finished_at  timestamptz,
    result       json,
    errors       jsonb,
    progress     json,
    deadline     timestamptz,
    first_run_at timestamptz,
    cancelled_by text,
    placement    json,
    log          json,
    keys         dispatcherd.keys,
    fence        bigint,
    admitted_to  int,
    admitted_at  timestamptz,
    parent       bigint,
    unique_key   dispatcherd.unique_key,
    watched      boolean,
    expected_ms  dispatcherd.expected_ms,
    traceparent  dispatcherd.traceparent,
    backoff      dispatcherd.backoff
) PARTITION BY LIST (status);
ALTER TABLE dispatcherd.jobs
    ALTER COLUMN keys SET STORAGE PLAIN, -- never compressed or moved to the TOAST table
    ALTER COLUMN unique_key SET STORAGE PLAIN;

COMMENT ON TABLE dispatcherd.jobs IS
    'All jobs. Producers: INSERT or COPY (type, payload [, priority, run_at, max_attempts, timeout_ms, expected_ms, keys, parent, '
    'unique_key, traceparent, backoff]).';
COMMENT ON COLUMN dispatcherd.jobs.id IS
    'Assigned from the sequence job_ids. No index keeps ids unique over all statuses, but only dispatchers and the owner can set one.';
COMMENT ON COLUMN dispatcherd.jobs.run_at IS 'Not run before; the age that counts in the score starts here.';
COMMENT ON COLUMN dispatcherd.jobs.attempt IS 'Fencing number of the latest execution; 0 = none yet; only grows.';
COMMENT ON COLUMN dispatcherd.jobs.dispatcher IS
    'The dispatcher that runs it, or that ran it last once it has ended; NULL while it is pending.';
COMMENT ON COLUMN dispatcherd.jobs.timeout_ms IS 'Limit of one attempt in milliseconds; NULL = the limit of its type.';
COMMENT ON COLUMN dispatcherd.jobs.max_attempts IS 'Failures after which the job is failed for good. NULL = the number of its type, or 5.';
COMMENT ON COLUMN dispatcherd.jobs.backoff IS 'How long it waits after a failure. NULL = as its type says, or else its dispatcher.';
COMMENT ON COLUMN dispatcherd.jobs.failures IS 'Attempts that the worker ended with a failure.';
COMMENT ON COLUMN dispatcherd.jobs.crashes IS
    'Attempts that ended with the death of worker or dispatcher. They do not count as failures.';
COMMENT ON COLUMN dispatcherd.jobs.token IS 'Number of the claim that took it, which is a row of the table claims.';
COMMENT ON COLUMN dispatcherd.jobs.errors IS 'The last ten bad ends: [{"attempt", "at", "outcome", "error"}].';
COMMENT ON COLUMN dispatcherd.jobs.deadline IS
    'Of a durable request: no attempt starts later. The end of the job removes it, so an ended or retried job has none.';
COMMENT ON COLUMN dispatcherd.jobs.first_run_at IS 'run_at of the first attempt; NULL = run_at.';
COMMENT ON COLUMN dispatcherd.jobs.cancelled_by IS 'The role, or the caller of the API, that cancelled the job.';
COMMENT ON COLUMN dispatcherd.jobs.placement IS
    'Of the last attempt of an ended job: worker, slot, times, score, main reason of the wait.';
COMMENT ON COLUMN dispatcherd.jobs.log IS 'A string: the end of the log of the last attempt that ended; written by workers.';
COMMENT ON COLUMN dispatcherd.jobs.keys IS
    'Up to four words KEY, KEY*COST or KEY*all: the job runs only while it has a permit of each key; see the table limits.';
COMMENT ON COLUMN dispatcherd.jobs.fence IS
    'Of a job with keys. Positive: it holds its permits; a later decision to admit writes a larger number. Negative: it has given '
    'them back, is pending again, and the controller has not read this yet. NULL: it waits for permits.';
COMMENT ON COLUMN dispatcherd.jobs.admitted_to IS
    'The only dispatcher that may run the admitted job, because of a limit per dispatcher; NULL = any.';
COMMENT ON COLUMN dispatcherd.jobs.admitted_at IS 'When the job got its permits the last time; NULL = it needs none, or had none yet.';
COMMENT ON COLUMN dispatcherd.jobs.parent IS
    'The batch or flow of a member, or the job whose child it is. Producers may only name an open batch.';
COMMENT ON COLUMN dispatcherd.jobs.unique_key IS
    '"OWNER / KEY"; without an owner it belongs to the dispatchers. At most one pending or running job has the same key.';
COMMENT ON COLUMN dispatcherd.jobs.watched IS
    'True: a batch, a flow or children of the job depend on its end, so the end is recorded in the table ends. Otherwise NULL.';
COMMENT ON COLUMN dispatcherd.jobs.expected_ms IS
    'How long an attempt probably takes, in milliseconds; it decides the lane and never changes. NULL = unknown.';
COMMENT ON COLUMN dispatcherd.jobs.traceparent IS
    'The W3C trace context of the producer, which workers get. No decision depends on it. NULL = none.';

-- What "dispatcherd job list" shows. No program reads the view: it is for operators with psql while no dispatcher runs. The role
-- dispatcherd_reader may not read it, because an error may contain parts of a payload. A job whose max_attempts is NULL has the number of
-- its type, or 5.
CREATE VIEW dispatcherd.job_list AS
    SELECT id, type, status, priority, run_at, finished_at, attempt, failures, max_attempts, errors -> -1 ->> 'error' AS last_error, keys,
        fence
    FROM dispatcherd.jobs;

-- Pending and running jobs: the only table on the path of every job. A claim makes pending jobs running. No index contains a column that a
-- claim changes, and no predicate of an index tests one. So a claim is a HOT update: Postgres writes the new version of the row into the
-- same page, and no index entry. This needs room in the page for a second version of each row, hence the fillfactor.
--
-- Vacuum starts when 5,000 rows and a fifth of all rows are dead, and not earlier, because every vacuum reads all indexes to their ends.
-- Vacuum because of insertions is off: it marks pages as visible to all, and the rows do not live long enough for that. Truncation is off:
-- its lock stops all jobs.
CREATE TABLE dispatcherd.jobs_live PARTITION OF dispatcherd.jobs (
    CONSTRAINT jobs_live_id PRIMARY KEY (id),
    CONSTRAINT running_has_a_dispatcher CHECK ((status = 'running') = (dispatcher IS NOT NULL)),
    CONSTRAINT job_with_keys_runs_with_permits CHECK (keys IS NULL OR status = 'pending' OR coalesce(fence, 0) > 0)
) FOR VALUES IN ('pending', 'running') WITH (
    fillfactor = 45,
    autovacuum_vacuum_scale_factor = 0.2,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_threshold = -1,
    autovacuum_analyze_scale_factor = 0.2,
    autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.2,
    toast.autovacuum_vacuum_threshold = 5000,
    toast.autovacuum_vacuum_insert_threshold = -1,
    toast.autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = false
);

-- A lane is the list of the jobs of one type, one priority and one class of expected duration, in the order of run_at. Dispatchers fetch
-- the first pending jobs of each lane. jobs_live_lanes contains the jobs without an expected duration, jobs_live_expected those with one.
-- Both contain only jobs that may run: jobs without keys, and jobs that hold the permits of their keys (fence > 0; see 5_limits.sql). They
-- also contain running jobs, which a fetch skips: a predicate on status would make every claim write an index entry.
--
-- This and the other indexes contain id + 0 instead of id. Otherwise Postgres might plan a search for an id in one of them while the table
-- is empty, and a session would keep this slow plan when the table is full.
CREATE INDEX jobs_live_lanes ON dispatcherd.jobs_live (type, priority, run_at, (id + 0))
    WHERE (keys IS NULL OR fence > 0) AND expected_ms IS NULL;
CREATE INDEX jobs_live_expected
    ON dispatcherd.jobs_live (type, priority, dispatcherd.duration_class(expected_ms), run_at, (id + 0))
    WHERE (keys IS NULL OR fence > 0) AND expected_ms IS NOT NULL;
-- Two indexes for the controller, which gives permits to jobs with keys (5_limits.sql). In jobs_live_keyed it finds the next jobs that wait
-- for permits, by keys, type and priority. In jobs_live_permits it finds the jobs that hold permits (fence > 0), those that have given them
-- back (fence < 0), and the new ones, which wait (fence IS NULL), in the order of their ids.
CREATE INDEX jobs_live_keyed ON dispatcherd.jobs_live (keys, type, priority, run_at, (id + 0))
    WHERE keys IS NOT NULL AND fence IS NULL;
CREATE INDEX jobs_live_permits ON dispatcherd.jobs_live (fence, (id + 0)) WHERE keys IS NOT NULL;
-- The members of a batch or flow, and the children of a job. Then the jobs with a unique key.
CREATE INDEX jobs_live_parent ON dispatcherd.jobs_live (parent, (id + 0)) WHERE parent IS NOT NULL;
CREATE UNIQUE INDEX jobs_live_unique_key ON dispatcherd.jobs_live (unique_key) WHERE unique_key IS NOT NULL;

-- No plan depends on the statistics, so ANALYZE reads a sample of 3,000 rows instead of 30,000. Columns of indexes that are
-- expressions have statistics of their own.
DO $$
DECLARE
    name name;
BEGIN
    FOR name IN SELECT attname FROM pg_attribute WHERE attrelid = 'dispatcherd.jobs_live'::regclass AND attnum > 0 LOOP
        EXECUTE format('ALTER TABLE dispatcherd.jobs_live ALTER COLUMN %I SET STATISTICS 10', name);
    END LOOP;
END $$;
ALTER INDEX dispatcherd.jobs_live_lanes ALTER COLUMN 4 SET STATISTICS 10;
ALTER INDEX dispatcherd.jobs_live_expected ALTER COLUMN 3 SET STATISTICS 10, ALTER COLUMN 5 SET STATISTICS 10;
ALTER INDEX dispatcherd.jobs_live_keyed ALTER COLUMN 5 SET STATISTICS 10;
ALTER INDEX dispatcherd.jobs_live_permits ALTER COLUMN 2 SET STATISTICS 10;
ALTER INDEX dispatcherd.jobs_live_parent ALTER COLUMN 2 SET STATISTICS 10;

-- Jobs that wait for other jobs: nodes of flows, and callbacks of batches and flows (6_flows.sql). When they may run, they move to
-- jobs_live.
CREATE TABLE dispatcherd.jobs_waiting PARTITION OF dispatcherd.jobs (
    CONSTRAINT jobs_waiting_id PRIMARY KEY (id),
    CONSTRAINT waiting_has_no_dispatcher CHECK (dispatcher IS NULL),
    CONSTRAINT waiting_has_no_unique_key CHECK (unique_key IS NULL)
) FOR VALUES IN ('waiting') WITH (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = false
);
CREATE INDEX jobs_waiting_parent ON dispatcherd.jobs_waiting (parent, (id + 0)) WHERE parent IS NOT NULL;

-- Ended jobs, partitioned by the day of their end, so that retention drops tables instead of deleting rows. Dispatchers
-- create and drop the partitions of ended jobs (2_retention.sql). A row for which no partition exists is stored in the
-- partition "rest". Retention deletes rows there, and finds them by the index on their end. A row without an end counts as the oldest.
CREATE TABLE dispatcherd.jobs_done      PARTITION OF dispatcherd.jobs FOR VALUES IN ('done')      PARTITION BY RANGE (finished_at);
CREATE TABLE dispatcherd.jobs_failed    PARTITION OF dispatcherd.jobs FOR VALUES IN ('failed')    PARTITION BY RANGE (finished_at);
CREATE TABLE dispatcherd.jobs_cancelled PARTITION OF dispatcherd.jobs FOR VALUES IN ('cancelled') PARTITION BY RANGE (finished_at);
CREATE INDEX jobs_done_id      ON dispatcherd.jobs_done (id);
CREATE INDEX jobs_failed_id    ON dispatcherd.jobs_failed (id);
CREATE INDEX jobs_cancelled_id ON dispatcherd.jobs_cancelled (id);
CREATE TABLE dispatcherd.jobs_done_rest      PARTITION OF dispatcherd.jobs_done DEFAULT;
CREATE TABLE dispatcherd.jobs_failed_rest    PARTITION OF dispatcherd.jobs_failed DEFAULT;
CREATE TABLE dispatcherd.jobs_cancelled_rest PARTITION OF dispatcherd.jobs_cancelled DEFAULT;
CREATE INDEX jobs_done_rest_end      ON dispatcherd.jobs_done_rest (coalesce(finished_at, '-infinity'));
CREATE INDEX jobs_failed_rest_end    ON dispatcherd.jobs_failed_rest (coalesce(finished_at, '-infinity'));
CREATE INDEX jobs_cancelled_rest_end ON dispatcherd.jobs_cancelled_rest (coalesce(finished_at, '-infinity'));
-- If a publication contains all tables, Postgres refuses to update or delete rows of a table that has neither a primary key nor a replica
-- identity. These tables have no unique index, so the complete row is their identity. This costs nothing unless wal_level is logical and
-- rows are updated or deleted. create_partition sets the same for the other partitions.
ALTER TABLE dispatcherd.jobs_done_rest      REPLICA IDENTITY FULL;
ALTER TABLE dispatcherd.jobs_failed_rest    REPLICA IDENTITY FULL;
ALTER TABLE dispatcherd.jobs_cancelled_rest REPLICA IDENTITY FULL;

-- Returns whether a transaction may send a notification. All functions and all statements of dispatchers that notify ask it. All databases
-- of a server share one queue of notifications, and if it is full, the commit of every transaction that has notified fails. So no program
-- notifies while the queue is more than half full; dispatchers then find jobs by polling. A session with dispatcherd.notify = off sends
-- none either: a transaction that has notified cannot be prepared for a two-phase commit.
CREATE FUNCTION dispatcherd.may_notify() RETURNS boolean
LANGUAGE sql VOLATILE PARALLEL RESTRICTED AS $$
    SELECT pg_catalog.pg_notification_queue_usage() OPERATOR(pg_catalog.<) 0.5
        AND coalesce(pg_catalog.current_setting('dispatcherd.notify', true), '') OPERATOR(pg_catalog.<>) 'off'
$$;

-- Trigger on inserts into jobs, once per statement: tells dispatchers that there are new jobs. It does nothing while no dispatcher
-- is armed (3_dispatchers.sql). It sends one notification per statement on the channel dispatcherd:
-- - The first statement of a transaction looks at the last row that it has inserted. If this row is due, has no keys, and seems to be the
--   only one that was inserted, the payload is "jobs id priority[/class] run_at type", with run_at in microseconds since 1970. A
--   dispatcher then claims the job without a search. Otherwise the payload is "jobs", and dispatchers search.
-- - Later statements send "jobs". The setting dispatcherd.rung tells them from the first one. Postgres sends equal notifications
--   of a transaction once, so each transaction sends at most two.
-- - Serializable transactions send "jobs" only. A read of jobs_live would conflict with the inserts of other such transactions into
--   the same page of the index, and Postgres would cancel some of them.
-- If the row that the first statement looks at has keys, the controller is notified, too, with the payload "keys". It finds other
-- new rows with keys at its next heartbeat. The row is found by the last value of the sequence, and not in a transition table, because COPY
-- inserts single rows if a trigger uses one.
--
-- A session keeps the plan that it made while the table was empty. With enable_seqscan = off this plan uses an index (plans_test.go). The
-- generic plan saves planning at every call (0.15 ms instead of 0.01). jit is off, because enable_seqscan = off gives the scan of
-- dispatchers, which has no index to use, a high cost, for which the server would compile the query.
CREATE FUNCTION dispatcherd.notify_dispatchers() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
DECLARE
    last_id   bigint;
    inserted  text;
    with_keys boolean;
BEGIN
    IF NOT (EXISTS (SELECT FROM dispatcherd.dispatchers WHERE armed) AND dispatcherd.may_notify()) THEN
        RETURN NULL;
    END IF;
    IF coalesce(current_setting('dispatcherd.rung', true), '') = '' -- the first statement of the transaction
        AND current_setting('transaction_isolation') <> 'serializable' THEN
        PERFORM set_config('dispatcherd.rung', 'yes', true);
        BEGIN
            last_id := currval('dispatcherd.job_ids');
            SELECT j.keys IS NOT NULL,
                CASE WHEN j.keys IS NULL AND j.run_at <= clock_timestamp() AND NOT EXISTS (
                        SELECT FROM dispatcherd.jobs_live o
                        WHERE o.id BETWEEN last_id - 16 AND last_id - 1 AND o.xmin = j.xmin)
                    THEN concat_ws(' ', j.id::bigint, concat_ws('/', j.priority::int, dispatcherd.duration_class(j.expected_ms)),
                        (extract(epoch FROM j.run_at::timestamptz) * 1000000)::bigint, j.type::text)
                END
            INTO with_keys, inserted
            FROM dispatcherd.jobs_live j
            WHERE j.id = last_id AND j.status = 'pending';
        EXCEPTION WHEN object_not_in_prerequisite_state THEN
            NULL; -- the ids were given, so this session has taken none from the sequence
        END;
    END IF;
    IF with_keys THEN
        PERFORM pg_notify('dispatcherd', 'keys');
    END IF;
    PERFORM pg_notify('dispatcherd', concat_ws(' ', 'jobs', inserted));
    RETURN NULL;
END $$;
CREATE TRIGGER notify_dispatchers AFTER INSERT ON dispatcherd.jobs
    FOR EACH STATEMENT EXECUTE FUNCTION dispatcherd.notify_dispatchers();

-- Trigger on inserts into jobs_live: sets an earlier run_at to the time of the insertion, so that no producer makes its jobs older than
-- they are. A BEFORE trigger would be shorter, but COPY would then insert single rows. The condition of the trigger is evaluated with the
-- rights of the role that inserts. A role that may set created_at, which is a dispatcher or the owner, may also set an early run_at. The
-- condition ignores one second, because clients set run_at by their own clocks, and because the correction writes a second version of the
-- row. enable_seqscan: as in notify_dispatchers.
CREATE FUNCTION dispatcherd.raise_early_run_at() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
    UPDATE dispatcherd.jobs_live SET run_at = clock_timestamp() WHERE id = NEW.id;
    RETURN NULL;
END $$;
CREATE TRIGGER raise_early_run_at AFTER INSERT ON dispatcherd.jobs_live FOR EACH ROW
    WHEN (NEW.run_at < clock_timestamp() - interval '1 second'
        AND NOT has_column_privilege('dispatcherd.jobs'::regclass, 'created_at', 'INSERT'))
    EXECUTE FUNCTION dispatcherd.raise_early_run_at();

-- What dispatchers have to do or to read because of a statement of another session. A row is deleted by its reader. The row, and no
-- notification, says that there is something to do: heartbeats read which kinds of rows there are.
-- - cancel, retry, cancel_tree, retry_tree, repair: what operators want to be done to the job, batch or flow target. The controller does
--   it in the order of the ids, and deletes the row; see package operation. A row cancel of a running job stays: the dispatcher that runs
--   the job cancels the attempt, and the statement that ends the job as failed or cancelled deletes the row, as does a retry.
-- - schedule_edited: the controller must read the schedule target again, because it was edited or has a new queued tick. There is one row
--   for each schedule. The controller deletes the rows and then reads the schedules.
-- - limits_edited: the limit name was edited, or any of them if name is NULL. The controller deletes the rows and then reads the limits.
-- - pause, pause_queued, pause_requests, resume: the type name is to be paused until the given time, or resumed. drain, undrain: the worker
--   name is to get no jobs any more, or jobs again. The controller changes the tables types and drains, and deletes the row.
-- Operators may insert rows, but not set who. So the table contains who wants it.
CREATE TABLE dispatcherd.operations (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind     text        NOT NULL CONSTRAINT kind_is_one_that_its_comment_lists CHECK (
        kind IN ('cancel', 'retry', 'cancel_tree', 'retry_tree', 'repair', 'schedule_edited', 'limits_edited',
            'pause', 'pause_queued', 'pause_requests', 'resume', 'drain', 'undrain', 'drain_dispatcher', 'resume_dispatcher')),
    target   bigint,
    who      text        DEFAULT session_user,
    reason   text        CONSTRAINT reason_is_at_most_1000_bytes CHECK (octet_length(reason) <= 1000),
    asked_at timestamptz NOT NULL DEFAULT now(),
    name     text        CONSTRAINT name_is_at_most_1000_bytes CHECK (octet_length(name) <= 1000),
    until    timestamptz CONSTRAINT until_is_a_time_or_null CHECK (isfinite(until)),
    CONSTRAINT operation_has_a_target CHECK (coalesce(target, 0) > 0 OR kind IN ('repair', 'limits_edited')
        OR kind IN ('pause', 'pause_queued', 'pause_requests', 'resume', 'drain', 'undrain', 'drain_dispatcher', 'resume_dispatcher')
            AND name IS NOT NULL)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX operations_target ON dispatcherd.operations (target);
CREATE INDEX operations_open ON dispatcherd.operations (id) WHERE kind NOT IN ('schedule_edited', 'limits_edited');
CREATE UNIQUE INDEX operations_edits ON dispatcherd.operations (kind, target) WHERE kind IN ('schedule_edited', 'limits_edited');
COMMENT ON COLUMN dispatcherd.operations.kind IS
    'Operators insert cancel, retry, cancel_tree, retry_tree and repair with a target, and pause, pause_queued, pause_requests, resume, '
    'drain and undrain with a name. Triggers insert schedule_edited and limits_edited.';
COMMENT ON COLUMN dispatcherd.operations.target IS 'A job, batch, flow or schedule. NULL of kind repair: all batches and flows.';
COMMENT ON COLUMN dispatcherd.operations.who IS 'As jobs.cancelled_by.';
COMMENT ON COLUMN dispatcherd.operations.name IS 'A limit, type or worker.';
COMMENT ON COLUMN dispatcherd.operations.until IS 'When a pause ends. NULL: when the type is resumed.';

-- Trigger on inserts of what operators want into operations: notifies dispatchers. Postgres sends equal notifications of a transaction
-- once.
CREATE FUNCTION dispatcherd.notify_operations() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('dispatcherd', 'operations') WHERE dispatcherd.may_notify();
    RETURN NULL;
END $$;
CREATE TRIGGER notify_operations AFTER INSERT ON dispatcherd.operations FOR EACH ROW
    WHEN (NEW.kind NOT IN ('schedule_edited', 'limits_edited')) EXECUTE FUNCTION dispatcherd.notify_operations();
