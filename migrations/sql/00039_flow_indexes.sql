-- +goose NO TRANSACTION
-- The indexes of jobs with a parent or a unique key. They are created while jobs run.

-- +goose Up

DROP INDEX CONCURRENTLY IF EXISTS dispatcherd.jobs_live_parent;
CREATE INDEX CONCURRENTLY jobs_live_parent ON dispatcherd.jobs_live (parent, (id + 0)) WHERE parent IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS dispatcherd.jobs_live_unique_key;
CREATE UNIQUE INDEX CONCURRENTLY jobs_live_unique_key ON dispatcherd.jobs_live (unique_key) WHERE unique_key IS NOT NULL;
ALTER INDEX dispatcherd.jobs_live_parent ALTER COLUMN 2 SET STATISTICS 10;

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 30::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 30::bigint';

DROP INDEX CONCURRENTLY IF EXISTS dispatcherd.jobs_live_unique_key;
DROP INDEX CONCURRENTLY IF EXISTS dispatcherd.jobs_live_parent;
