-- A further status: a job that waits for other jobs. It is a migration of its own, because a transaction cannot use a
-- value that it has added to a type.

-- +goose Up

ALTER TYPE dispatcherd.status ADD VALUE IF NOT EXISTS 'waiting' BEFORE 'pending';

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 30::bigint';

-- +goose Down

-- A value of a type cannot be removed. No row has it.
CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 30::bigint';
