-- Dispatchers: who runs, what they have claimed, and what they keep for callers and for themselves.

-- One row for every run of a daemon. A claim holds FOR KEY SHARE on the row of its dispatcher until it commits. Heartbeats update the row
-- without waiting for claims. A transaction that declares a dispatcher lost, or raises its epoch, first takes FOR UPDATE, so it waits for
-- the claims in flight, and later claims see the change. The low fillfactor makes heartbeats HOT updates.
CREATE TABLE dispatcherd.dispatchers (
    id          int         GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text        NOT NULL CONSTRAINT name_is_1_to_128_bytes CHECK (octet_length(name) BETWEEN 1 AND 128),
    started_at  timestamptz NOT NULL DEFAULT now(),
    beat_at     timestamptz NOT NULL DEFAULT now(),
    lease       interval    NOT NULL CONSTRAINT lease_is_positive CHECK (lease > interval '0'),
    lost_at     timestamptz,
    epoch       int         NOT NULL DEFAULT 0,
    armed       boolean     NOT NULL DEFAULT false,
    capacity    jsonb       NOT NULL DEFAULT '{}',
    leaving     boolean     NOT NULL DEFAULT false,
    incarnation uuid,
    host_lock   text        CONSTRAINT host_lock_is_1_to_256_bytes CHECK (octet_length(host_lock) BETWEEN 1 AND 256),
    beats       bigint      NOT NULL DEFAULT 0,
    founder     int,
    controls    bigint      NOT NULL DEFAULT 0,
    drained     jsonb,
    away_by     text
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
COMMENT ON COLUMN dispatcherd.dispatchers.id IS
    'Random, so that no later run has the same id, also after an earlier state of the table was restored.';
COMMENT ON COLUMN dispatcherd.dispatchers.lost_at IS 'When it was declared lost. Since then its claims take nothing.';
COMMENT ON COLUMN dispatcherd.dispatchers.epoch IS
    'A claim names the epoch, and takes nothing if it is an earlier one. If the answer to a claim was lost, the dispatcher first raises '
    'the epoch and then reads what the claim took, so a claim that arrives later cannot change the result.';
COMMENT ON COLUMN dispatcherd.dispatchers.armed IS
    'Its workers have slots, and not too many notifications arrive. Inserts notify only while a dispatcher is armed.';
COMMENT ON COLUMN dispatcherd.dispatchers.capacity IS 'Registered slots by type: {"type": slots}.';
COMMENT ON COLUMN dispatcherd.dispatchers.leaving IS
    'It has stopped in good order. Until its lease ends, workers may resume its jobs at another dispatcher. Jobs that are left then '
    'become pending, without a crash being counted.';
COMMENT ON COLUMN dispatcherd.dispatchers.incarnation IS
    'Random number of its process, which its claims and heartbeats name. NULL: its successor on the same host has declared it lost, so '
    'they fail.';
COMMENT ON COLUMN dispatcherd.dispatchers.host_lock IS
    'The lock file on its host that contains the incarnation, as boot id, device and inode. Only a process that holds the lock on this '
    'file can declare the dispatcher lost before its lease ends.';
COMMENT ON COLUMN dispatcherd.dispatchers.beats IS
    'Number of its last heartbeat. If a dispatcher finds an old number in its row, the table was restored, and it joins again.';
COMMENT ON COLUMN dispatcherd.dispatchers.founder IS
    'The dispatcher that joined while no other was alive, and so started the cluster. All that have joined since name the same one. '
    'Schedules of kind startup with once = start run once per founder.';
COMMENT ON COLUMN dispatcherd.dispatchers.controls IS 'Up to this value of controller.controls it follows the tables types and drains.';
COMMENT ON COLUMN dispatcherd.dispatchers.drained IS
    'The drains of workers that are connected to it: {"worker/process": jobs that have not ended there}. NULL: there is none.';

COMMENT ON COLUMN dispatcherd.dispatchers.away_by IS
    'Who has drained it: it accepts no new workers, and sends its workers to other dispatchers. NULL: it is not drained.';

-- Which rows each claim took. The row is kept while one of these jobs may be running. Running jobs have no index, so the recovery of a lost
-- dispatcher finds its jobs by these ids. Whether a job still runs, and for which claim, is decided by its own row in jobs_live.
CREATE TABLE dispatcherd.claims (
    dispatcher int      NOT NULL,
    token      bigint   NOT NULL,
    ids        bigint[] NOT NULL,
    sessions   bigint[],
    PRIMARY KEY (token, dispatcher)
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 4000,
    toast.autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE dispatcherd.claims
    ALTER COLUMN ids SET STORAGE EXTERNAL,
    ALTER COLUMN sessions SET STORAGE EXTERNAL;
COMMENT ON COLUMN dispatcherd.claims.sessions IS
    'For each of ids the fingerprint of the session of the worker that gets the job. A worker that offers to resume the job must know '
    'the secret from which the fingerprint was made.';

-- The controller is the dispatcher that plans schedules (4_schedules.sql) and gives permits to jobs with keys (5_limits.sql). A heartbeat
-- of any dispatcher takes the role if the former controller is no longer alive, and increases term. Each statement of the controller holds
-- FOR SHARE on the row and compares its term, or for permits the number in admissions. So it changes nothing after the role was taken over.
CREATE TABLE dispatcherd.controller (
    one        boolean     PRIMARY KEY DEFAULT true CONSTRAINT one_row CHECK (one),
    dispatcher int,
    term       bigint      NOT NULL DEFAULT 0,
    since      timestamptz NOT NULL DEFAULT now(),
    admissions bigint      NOT NULL DEFAULT 0,
    edits_read bigint      NOT NULL DEFAULT 0,
    controls   bigint      NOT NULL DEFAULT (extract(epoch FROM now()) * 1000)::bigint
) WITH (fillfactor = 50);
INSERT INTO dispatcherd.controller DEFAULT VALUES;
COMMENT ON COLUMN dispatcherd.controller.admissions IS
    'Increased before the controller reads all permits. Admissions that name an earlier number change nothing.';

COMMENT ON COLUMN dispatcherd.controller.edits_read IS
    'Increased when the controller has read edits of schedules, after which all dispatchers read the types of startup-worker schedules.';
COMMENT ON COLUMN dispatcherd.controller.controls IS
    'Increased by each change of the tables types and drains. A new row begins with the time, so the number is higher than in a lost row.';

-- What operators have set for types and workers: the controls. A change adds 1 to controller.controls in the same transaction, and holds
-- that row until it commits, so changes are in the order of their numbers. Package internal/operation has the statements.
CREATE TABLE dispatcherd.types (
    type         dispatcherd.job_type PRIMARY KEY,
    paused       text CONSTRAINT paused_is_all_queued_or_requests CHECK (paused IN ('all', 'queued', 'requests')),
    paused_by    text,
    paused_at    timestamptz,
    paused_until timestamptz,
    pause_reason text CONSTRAINT pause_reason_is_at_most_1000_bytes CHECK (octet_length(pause_reason) <= 1000),
    max_attempts dispatcherd.tries,
    backoff      dispatcherd.backoff,
    CONSTRAINT pause_says_who_and_when CHECK (paused IS NULL OR paused_by IS NOT NULL AND paused_at IS NOT NULL),
    CONSTRAINT pause_lasts_at_least_1_microsecond_and_at_most_366_days CHECK (paused_until > paused_at
        AND paused_until <= paused_at + interval '366 days')
);
COMMENT ON COLUMN dispatcherd.types.paused IS 'queued: rows wait; requests: requests wait; all: both; NULL: the type is not paused.';
COMMENT ON COLUMN dispatcherd.types.max_attempts IS 'Of jobs that have none, like backoff.';
COMMENT ON COLUMN dispatcherd.types.paused_until IS 'From then on the pause has no effect. NULL: until it is resumed.';

CREATE TABLE dispatcherd.drains (
    worker     text        NOT NULL CONSTRAINT worker_is_1_to_128_bytes CHECK (octet_length(worker) BETWEEN 1 AND 128),
    process    text        NOT NULL DEFAULT '',
    types      text[]      CONSTRAINT types_are_not_empty CHECK (cardinality(types) > 0),
    drained_by text        NOT NULL,
    drained_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    reason     text        CONSTRAINT reason_is_at_most_1000_bytes CHECK (octet_length(reason) <= 1000),
    gone       int         NOT NULL DEFAULT 0,
    PRIMARY KEY (worker, process)
);
COMMENT ON TABLE dispatcherd.drains IS
    'Workers that get no jobs. The controller deletes a row when no dispatcher has had such a worker for some minutes.';
COMMENT ON COLUMN dispatcherd.drains.process IS 'The only process with this name that is meant. Empty: all of them.';
COMMENT ON COLUMN dispatcherd.drains.gone IS 'How many times the controller has looked in vain for a dispatcher that has the worker.';
COMMENT ON COLUMN dispatcherd.drains.types IS 'Of which the worker gets no jobs. NULL: all.';

-- Idempotency keys of durable requests. The API writes them. They are here so that a repeated request finds its job at any dispatcher.
CREATE TABLE dispatcherd.request_keys (
    key      bytea       PRIMARY KEY,
    request  bytea       NOT NULL,
    job      bigint      NOT NULL,
    deadline timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX request_keys_deadline ON dispatcherd.request_keys (deadline);
COMMENT ON TABLE dispatcherd.request_keys IS
    'Each statement that inserts a key deletes up to two expired ones, so the table is bounded.';
COMMENT ON COLUMN dispatcherd.request_keys.key IS 'Hash of the token''s name and the key.';
COMMENT ON COLUMN dispatcherd.request_keys.request IS 'Hash of the request.';

-- What dispatchers have learned of the durations of jobs. The rows of a dispatcher have its name, so that its next run finds them. Class -1
-- contains the jobs without an expected duration.
CREATE TABLE dispatcherd.durations (
    dispatcher text        NOT NULL,
    type       text        NOT NULL,
    class      smallint    NOT NULL,
    n          bigint      NOT NULL,
    s          bigint      NOT NULL,
    learned_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (dispatcher, type, class)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE dispatcherd.durations IS
    'How long jobs take: the number n of attempts, and the sum s of the logarithms of their durations. Older attempts count less in '
    'both. The rows may be deleted: then the durations are learned again.';

-- What the dispatcher that runs a durable request tells those at which its callers wait: the start of an attempt, progress, and parts of
-- the output. Each INSERT also deletes rows that are a minute old. The table is unlogged: after a crash of the server it is empty, and the
-- ids begin again. The callers over HTTP stay. They miss the events of that time, and callers who had events before miss all further ones
-- whose ids are not larger. Their answers do not depend on the table: dispatchers read the rows of their callers from time to time.
CREATE UNLOGGED TABLE dispatcherd.reports (
    id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job     bigint      NOT NULL,
    attempt int         NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(),
    name    text        NOT NULL,
    data    json        NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX reports_job ON dispatcherd.reports (job, id);

-- What each dispatcher says of itself while callers look at the cluster: one row for each, which the dispatcher replaces at most once per
-- second and not at all while no caller looks. So any dispatcher can show the workers, slots and types of all. The table is not logged:
-- after a crash of Postgres it is empty, and dispatchers write their rows again.
CREATE UNLOGGED TABLE dispatcherd.summaries (
    dispatcher int         PRIMARY KEY,
    written_at timestamptz NOT NULL,
    asked_at   timestamptz,
    summary    json        NOT NULL
) WITH (
    fillfactor = 20,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 200,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 1000,
    toast.autovacuum_vacuum_cost_delay = 0
);
COMMENT ON COLUMN dispatcherd.summaries.asked_at IS
    'When it last asked the others for their rows, because a caller looks at the cluster. A heartbeat reads this, because the '
    'notification may have been lost.';

-- Returns whether one of the running transactions has locked a row with this xmax. The statement that fetches jobs calls it for rows that
-- several transactions have locked: their xmax is a multixact, a list of transactions. It is a function because Postgres raises an error
-- for an xmax that is no multixact, and only a function can catch it.
CREATE FUNCTION dispatcherd.has_locker(row_xmax xid, running xid[]) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM pg_catalog.pg_get_multixact_members(row_xmax) m
        WHERE m.xid OPERATOR(pg_catalog.=) ANY (running));
EXCEPTION WHEN OTHERS THEN
    RETURN false;
END $$;

-- The version of the oldest build whose daemons can use this schema. A daemon that is older than the schema reads it at its start, and
-- refuses to run if the daemon is older than this version. An upgrade that earlier daemons can use keeps the number; one that they cannot
-- use raises it.
CREATE FUNCTION dispatcherd.compatible_from() RETURNS bigint
LANGUAGE sql IMMUTABLE AS 'SELECT 121::bigint';
