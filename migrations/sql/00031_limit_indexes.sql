-- +goose NO TRANSACTION
-- The indexes of jobs with keys. They are created beside the old one while jobs run. Daemons of former versions need
-- jobs_live_lanes, which migration 32 drops.

-- +goose Up

-- Waiting jobs by class, in the order of the lane.
DROP INDEX CONCURRENTLY IF EXISTS dispatcherd.jobs_live_keyed;
CREATE INDEX CONCURRENTLY jobs_live_keyed ON dispatcherd.jobs_live (keys, type, priority, run_at, (id + 0)) WHERE keys IS NOT NULL AND fence IS NULL;
-- Waiting jobs in the order of insertion (fence IS NULL), and permits.
DROP INDEX CONCURRENTLY IF EXISTS dispatcherd.jobs_live_permits;
CREATE INDEX CONCURRENTLY jobs_live_permits ON dispatcherd.jobs_live (fence, (id + 0)) WHERE keys IS NOT NULL;
-- Jobs without keys, and admitted ones. Migration 32 gives it the name of the old index.
DROP INDEX CONCURRENTLY IF EXISTS dispatcherd.jobs_live_ready;
CREATE INDEX CONCURRENTLY jobs_live_ready ON dispatcherd.jobs_live (type, priority, run_at, (id + 0)) WHERE keys IS NULL OR fence > 0;
ALTER INDEX dispatcherd.jobs_live_ready ALTER COLUMN 4 SET STATISTICS 10;
ALTER INDEX dispatcherd.jobs_live_keyed ALTER COLUMN 5 SET STATISTICS 10;
ALTER INDEX dispatcherd.jobs_live_permits ALTER COLUMN 2 SET STATISTICS 10;

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

DROP INDEX CONCURRENTLY IF EXISTS dispatcherd.jobs_live_ready;
DROP INDEX CONCURRENTLY IF EXISTS dispatcherd.jobs_live_permits;
DROP INDEX CONCURRENTLY IF EXISTS dispatcherd.jobs_live_keyed;
