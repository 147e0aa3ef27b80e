-- A job keeps the end of the log of its last attempt that ended (--keep-logs).

-- +goose Up

ALTER TABLE dispatcherd.jobs ADD COLUMN log json;
COMMENT ON COLUMN dispatcherd.jobs.log IS 'A string: the end of the log of the last attempt that ended; written by workers.';

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

ALTER TABLE dispatcherd.jobs DROP COLUMN log;
