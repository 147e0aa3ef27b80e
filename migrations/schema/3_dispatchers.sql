-- Dispatchers: who runs, what they have claimed, and what they keep for callers and for themselves.

-- One row for every run of a daemon. A claim holds FOR KEY SHARE on the row of its dispatcher until it commits. A transaction that
-- declares a dispatcher lost, or raises its epoch, takes FOR UPDATE first and so waits for claims in flight.
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
    founder     int
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
COMMENT ON COLUMN dispatcherd.dispatchers.id IS
    'Random, so that no later run has the same id, also after an earlier state of the table was restored.';
COMMENT ON COLUMN dispatcherd.dispatchers.lost_at IS 'When it was declared lost; its claims take nothing since then.';
COMMENT ON COLUMN dispatcherd.dispatchers.epoch IS
    'Claims of an earlier epoch take nothing: set one higher before an unknown claim is resolved.';
COMMENT ON COLUMN dispatcherd.dispatchers.armed IS
    'Subscribed: its workers have slots and it is not throttled, so inserts send a notification.';
COMMENT ON COLUMN dispatcherd.dispatchers.capacity IS 'Registered slots by type: {"type": slots}.';
COMMENT ON COLUMN dispatcherd.dispatchers.leaving IS
    'It has stopped in good order. Until its lease is over its jobs wait for their workers. What is left then did not crash.';
COMMENT ON COLUMN dispatcherd.dispatchers.incarnation IS
    'Random number of its process; NULL = its successor on the same host has declared it lost, and its heartbeats fail.';
COMMENT ON COLUMN dispatcherd.dispatchers.host_lock IS
    'The lock file that contains the incarnation: boot id, device and inode. Only the holder of that lock can declare the dispatcher '
    'lost before its lease runs out.';
COMMENT ON COLUMN dispatcherd.dispatchers.beats IS
    'Number of its last heartbeat. A dispatcher whose row contains an old number joins again.';
COMMENT ON COLUMN dispatcherd.dispatchers.founder IS
    'Of this start of the cluster: the dispatcher that joined while no other was alive.';

-- Which rows each claim took, kept while some of them may be running. It only says where to look, because running rows have no index;
-- the row of a job is what holds.
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
    'For each of ids the mark of the session that it is for. A worker that presents the job must know the nonce behind it.';

-- The dispatcher that plans schedules and admits jobs with keys. Its statements hold FOR SHARE on the row and compare the term, so
-- they change nothing after another dispatcher has taken the role.
CREATE TABLE dispatcherd.controller (
    one        boolean     PRIMARY KEY DEFAULT true CONSTRAINT one_row CHECK (one),
    dispatcher int,
    term       bigint      NOT NULL DEFAULT 0,
    since      timestamptz NOT NULL DEFAULT now(),
    admissions bigint      NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO dispatcherd.controller DEFAULT VALUES;
COMMENT ON COLUMN dispatcherd.controller.admissions IS
    'Number of the reads of all permits. Admissions of an earlier number change nothing.';

-- Idempotency keys of durable requests outlive a dispatcher.
CREATE TABLE dispatcherd.request_keys (
    key      bytea       PRIMARY KEY,
    request  bytea       NOT NULL,
    job      bigint      NOT NULL,
    deadline timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX request_keys_deadline ON dispatcherd.request_keys (deadline);
COMMENT ON TABLE dispatcherd.request_keys IS
    'Idempotency keys of durable requests. Each new key deletes up to two expired ones.';
COMMENT ON COLUMN dispatcherd.request_keys.key IS 'Hash of the token''s name and the key.';
COMMENT ON COLUMN dispatcherd.request_keys.request IS 'Hash of the request.';

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
COMMENT ON TABLE dispatcherd.durations IS
    'How long jobs take: n attempts, and the sum s of the logarithms of their durations, both decayed. Losing them loses only what '
    'was learned.';

-- Whether one of the running transactions has locked a row with this xmax. The fetch calls it for rows that several transactions have
-- locked, whose xmax is a multixact. It is a function because Postgres raises an error for an xmax that is no multixact.
CREATE FUNCTION dispatcherd.has_locker(row_xmax xid, running xid[]) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM pg_catalog.pg_get_multixact_members(row_xmax) m
        WHERE m.xid OPERATOR(pg_catalog.=) ANY (running));
EXCEPTION WHEN OTHERS THEN
    RETURN false;
END $$;

-- The version of the oldest build whose daemons can use this schema. Every daemon reads it at its start if the schema is newer than
-- the daemon. A later upgrade that such daemons can use keeps the number; one that they cannot use raises it to its own.
CREATE FUNCTION dispatcherd.compatible_from() RETURNS bigint
LANGUAGE sql IMMUTABLE AS 'SELECT 103::bigint';
