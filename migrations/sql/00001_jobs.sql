-- The jobs. docs/storage.md gives the reasons and the measurements.

-- +goose Up

CREATE TYPE dispatcherd.status AS ENUM ('pending', 'running', 'done', 'failed', 'cancelled');

-- Values are checked by domains, not by table constraints: a domain is checked
-- when a value is made, a table constraint on every UPDATE and every move.
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
CREATE DOMAIN dispatcherd.job_type AS text
    CONSTRAINT type_is_1_to_128_bytes CHECK (octet_length(VALUE) BETWEEN 1 AND 128)
    CONSTRAINT type_has_no_control_character CHECK (VALUE !~ '[[:cntrl:]]');
CREATE DOMAIN dispatcherd.payload AS jsonb
    CONSTRAINT payload_is_at_most_1_megabyte CHECK (pg_column_size(VALUE) <= 1000000);

-- A sequence of its own: identity columns do not reach partitions before PG 17.
CREATE SEQUENCE dispatcherd.job_ids AS bigint;

-- Columns without NULL first, so that their offsets are fixed.
CREATE TABLE dispatcherd.jobs (
    id           dispatcherd.job_id   NOT NULL DEFAULT nextval('dispatcherd.job_ids'),
    run_at       dispatcherd.due_time NOT NULL DEFAULT now(),
    created_at   timestamptz          NOT NULL DEFAULT now(),
    attempt      dispatcherd.attempt  NOT NULL DEFAULT 0,
    status       dispatcherd.status   NOT NULL DEFAULT 'pending',
    dispatcher   int,
    timeout_ms   dispatcherd.timeout_ms,
    priority     dispatcherd.priority NOT NULL DEFAULT 0,
    max_attempts dispatcherd.tries    NOT NULL DEFAULT 5,
    failures     dispatcherd.count    NOT NULL DEFAULT 0,
    crashes      dispatcherd.count    NOT NULL DEFAULT 0,
    type         dispatcherd.job_type NOT NULL,
    payload      dispatcherd.payload  NOT NULL DEFAULT '{}',
    token        bigint,
    started_at   timestamptz,
    finished_at  timestamptz,
    result       json,
    errors       jsonb,
    progress     json
) PARTITION BY LIST (status);

COMMENT ON TABLE dispatcherd.jobs IS 'All jobs. Producers: INSERT or COPY (type, payload [, priority, run_at, max_attempts, timeout_ms]).';
COMMENT ON COLUMN dispatcherd.jobs.id IS 'Assigned; unique over all statuses.';
COMMENT ON COLUMN dispatcherd.jobs.run_at IS 'Not run before; the age that counts in the score starts here.';
COMMENT ON COLUMN dispatcherd.jobs.attempt IS 'Fencing number of the latest execution; 0 = none yet; only grows.';
COMMENT ON COLUMN dispatcherd.jobs.dispatcher IS 'Who runs it, or who ran it last once it is final; NULL while pending.';
COMMENT ON COLUMN dispatcherd.jobs.timeout_ms IS 'Limit of one attempt in milliseconds; NULL = the limit of its type.';
COMMENT ON COLUMN dispatcherd.jobs.max_attempts IS 'Failures after which the job is failed for good.';
COMMENT ON COLUMN dispatcherd.jobs.failures IS 'Attempts that the worker ended with a failure.';
COMMENT ON COLUMN dispatcherd.jobs.crashes IS 'Attempts that ended with the death of worker or dispatcher; nobody''s failure.';
COMMENT ON COLUMN dispatcherd.jobs.token IS 'Mark of the claim that took it.';
COMMENT ON COLUMN dispatcherd.jobs.errors IS 'The last ten bad ends: [{"attempt", "at", "outcome", "error"}].';

-- The hot table. No index names a column that a claim changes, so a claim is
-- a HOT update: it writes no index entry. That needs room in the page for the
-- second version of every row, hence the fillfactor.
CREATE TABLE dispatcherd.jobs_live PARTITION OF dispatcherd.jobs (
    CONSTRAINT running_has_a_dispatcher CHECK ((status = 'running') = (dispatcher IS NOT NULL))
) FOR VALUES IN ('pending', 'running') WITH (
    fillfactor = 45,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.01,
    toast.autovacuum_vacuum_threshold = 5000,
    toast.autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = false -- truncation takes a lock that stops the queue
);
ALTER TABLE dispatcherd.jobs_live ADD CONSTRAINT jobs_live_id PRIMARY KEY (id);
-- id + 0 instead of id: a plan that was made while the table was empty must not
-- find a row by its id through this index, and keep doing so when it is full.
CREATE INDEX jobs_live_lanes ON dispatcherd.jobs_live (type, priority, run_at, (id + 0));

-- Final rows, by day, so that retention drops tables instead of deleting rows.
CREATE TABLE dispatcherd.jobs_done      PARTITION OF dispatcherd.jobs FOR VALUES IN ('done')      PARTITION BY RANGE (finished_at);
CREATE TABLE dispatcherd.jobs_failed    PARTITION OF dispatcherd.jobs FOR VALUES IN ('failed')    PARTITION BY RANGE (finished_at);
CREATE TABLE dispatcherd.jobs_cancelled PARTITION OF dispatcherd.jobs FOR VALUES IN ('cancelled') PARTITION BY RANGE (finished_at);
CREATE INDEX jobs_done_id      ON dispatcherd.jobs_done (id);
CREATE INDEX jobs_failed_id    ON dispatcherd.jobs_failed (id);
CREATE INDEX jobs_cancelled_id ON dispatcherd.jobs_cancelled (id);
-- Where rows land when nobody has made the day's leaf in time.
CREATE TABLE dispatcherd.jobs_done_rest      PARTITION OF dispatcherd.jobs_done DEFAULT;
CREATE TABLE dispatcherd.jobs_failed_rest    PARTITION OF dispatcherd.jobs_failed DEFAULT;
CREATE TABLE dispatcherd.jobs_cancelled_rest PARTITION OF dispatcherd.jobs_cancelled DEFAULT;

-- One row for every run of a daemon. A claim holds FOR KEY SHARE on its own
-- row until it commits; whoever declares a dispatcher lost, or raises its
-- epoch, takes FOR UPDATE first and therefore waits for claims in flight.
CREATE TABLE dispatcherd.dispatchers (
    id         int         GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text        NOT NULL CONSTRAINT name_is_1_to_128_bytes CHECK (octet_length(name) BETWEEN 1 AND 128),
    started_at timestamptz NOT NULL DEFAULT now(),
    beat_at    timestamptz NOT NULL DEFAULT now(),
    lease      interval    NOT NULL CONSTRAINT lease_is_positive CHECK (lease > interval '0'),
    lost_at    timestamptz,
    epoch      int         NOT NULL DEFAULT 0,
    armed      boolean     NOT NULL DEFAULT false,
    capacity   jsonb       NOT NULL DEFAULT '{}'
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

COMMENT ON COLUMN dispatcherd.dispatchers.lost_at IS 'Declared dead; its claims take nothing from here on.';
COMMENT ON COLUMN dispatcherd.dispatchers.epoch IS 'Claims of an earlier epoch take nothing: set one higher before an unknown claim is resolved.';
COMMENT ON COLUMN dispatcherd.dispatchers.armed IS 'It has a free slot and nothing to do: producers ring.';
COMMENT ON COLUMN dispatcherd.dispatchers.capacity IS 'Registered slots by type: {"type": slots}.';

-- Which rows each claim took, kept while some of them may be running. It only
-- says where to look (running rows have no index); truth is the job's row.
CREATE TABLE dispatcherd.claims (
    dispatcher int      NOT NULL,
    token      bigint   NOT NULL,
    ids        bigint[] NOT NULL,
    PRIMARY KEY (dispatcher, token)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 4000, toast.autovacuum_vacuum_cost_delay = 0);
ALTER TABLE dispatcherd.claims ALTER COLUMN ids SET STORAGE EXTERNAL;

-- Running jobs that somebody wants cancelled.
CREATE TABLE dispatcherd.cancels (
    job_id       bigint      PRIMARY KEY,
    requested_at timestamptz NOT NULL DEFAULT now()
);

-- The doorbell: one NOTIFY a statement, and only while a dispatcher wants it.
-- No transition table, so COPY keeps inserting many rows at a time.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.ring() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM dispatcherd.dispatchers WHERE armed) THEN
        PERFORM pg_notify('dispatcherd_jobs', '');
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER ring AFTER INSERT ON dispatcherd.jobs FOR EACH STATEMENT EXECUTE FUNCTION dispatcherd.ring();

-- Makes the leaves of today and the next `ahead` days and drops those whose
-- last day ended longer than `keep` ago. Several callers at once are fine: one
-- works, the others return zeros. A leaf that somebody is reading is left for
-- the next call instead of making finishing jobs wait behind the lock.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.keep_leaves(final dispatcherd.status, ahead int, keep interval,
    OUT made int, OUT dropped int, OUT blocked int) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '250ms' SET timezone = 'UTC' AS $$
DECLARE
    root  text := 'jobs_' || final;
    leaf  text;
    day   date;
BEGIN
    made := 0; dropped := 0; blocked := 0;
    IF final NOT IN ('done', 'failed', 'cancelled') THEN
        RAISE EXCEPTION 'status % has no leaves; use done, failed or cancelled', final USING ERRCODE = '22023';
    END IF;
    IF NOT pg_try_advisory_xact_lock(7233173, hashtext(root)) THEN
        RETURN;
    END IF;
    FOR day IN SELECT current_date + i FROM generate_series(0, least(ahead, 366)) i LOOP
        leaf := root || to_char(day, '_YYYYMMDD');
        CONTINUE WHEN to_regclass('dispatcherd.' || leaf) IS NOT NULL;
        BEGIN -- CREATE … PARTITION OF would lock the whole status; ATTACH does not
            EXECUTE format('CREATE TABLE dispatcherd.%I (LIKE dispatcherd.%I INCLUDING DEFAULTS)', leaf, root);
            EXECUTE format('ALTER TABLE dispatcherd.%I ATTACH PARTITION dispatcherd.%I FOR VALUES FROM (%L) TO (%L)',
                root, leaf, day::timestamptz, (day + 1)::timestamptz);
            made := made + 1;
        EXCEPTION WHEN lock_not_available OR check_violation THEN
            blocked := blocked + 1; -- busy, or rows of that day are in the rest already: they stay there
        END;
    END LOOP;
    FOR leaf, day IN
        SELECT c.relname, to_date(right(c.relname, 8), 'YYYYMMDD')
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = ('dispatcherd.' || root)::regclass AND c.relname ~ '_\d{8}$'
        ORDER BY 2
    LOOP
        EXIT WHEN (day + 1)::timestamptz >= now() - keep;
        BEGIN
            EXECUTE format('DROP TABLE dispatcherd.%I', leaf);
            dropped := dropped + 1;
        EXCEPTION WHEN lock_not_available THEN
            blocked := blocked + 1;
        END;
    END LOOP;
    EXECUTE format('DELETE FROM dispatcherd.%I WHERE finished_at < now() - $1 OR finished_at IS NULL', root || '_rest') USING keep;
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION dispatcherd.keep_leaves FROM PUBLIC;

SELECT dispatcherd.keep_leaves(s::dispatcherd.status, 3, interval '100 years') FROM unnest('{done,failed,cancelled}'::text[]) s;

-- +goose Down

DROP FUNCTION dispatcherd.keep_leaves;
DROP TABLE dispatcherd.cancels, dispatcherd.claims, dispatcherd.dispatchers;
DROP TABLE dispatcherd.jobs;
DROP FUNCTION dispatcherd.ring;
DROP SEQUENCE dispatcherd.job_ids;
DROP DOMAIN dispatcherd.payload, dispatcherd.job_type, dispatcherd.timeout_ms, dispatcherd.count, dispatcherd.tries,
    dispatcherd.attempt, dispatcherd.priority, dispatcherd.due_time, dispatcherd.job_id;
DROP TYPE dispatcherd.status;
