-- Durable requests have a deadline, and their idempotency keys outlive a dispatcher.
-- docs/storage.md gives the reasons.

-- +goose Up

ALTER TABLE dispatcherd.jobs ADD COLUMN deadline timestamptz;
COMMENT ON COLUMN dispatcherd.jobs.deadline IS 'Of a durable request: no attempt starts later. NULL after the end and after a retry.';

CREATE TABLE dispatcherd.request_keys (
    key      bytea       PRIMARY KEY,
    request  bytea       NOT NULL,
    job      bigint      NOT NULL,
    deadline timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX request_keys_deadline ON dispatcherd.request_keys (deadline);
COMMENT ON TABLE dispatcherd.request_keys IS 'Idempotency keys of durable requests. Each new key deletes up to two expired ones.';
COMMENT ON COLUMN dispatcherd.request_keys.key IS 'Hash of the token''s name and the key.';
COMMENT ON COLUMN dispatcherd.request_keys.request IS 'Hash of the request.';

-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_dispatcher') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON dispatcherd.request_keys TO dispatcherd_dispatcher;
    END IF;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

DROP TABLE dispatcherd.request_keys;
ALTER TABLE dispatcherd.jobs DROP COLUMN deadline;
