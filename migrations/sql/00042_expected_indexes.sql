-- +goose NO TRANSACTION
-- The index of lanes becomes two, for jobs without and with an expected duration. They are created beside the old one while jobs run.
-- Daemons of former versions need jobs_live_lanes, which migration 43 drops.

-- +goose Up

DROP INDEX CONCURRENTLY IF EXISTS dispatcherd.jobs_live_expected;
CREATE INDEX CONCURRENTLY jobs_live_expected ON dispatcherd.jobs_live (type, priority, dispatcherd.duration_class(expected_ms), run_at, (id + 0))
    WHERE (keys IS NULL OR fence > 0) AND expected_ms IS NOT NULL;
-- Migration 43 gives it the name of the old index.
DROP INDEX CONCURRENTLY IF EXISTS dispatcherd.jobs_live_unnamed;
CREATE INDEX CONCURRENTLY jobs_live_unnamed ON dispatcherd.jobs_live (type, priority, run_at, (id + 0))
    WHERE (keys IS NULL OR fence > 0) AND expected_ms IS NULL;
ALTER INDEX dispatcherd.jobs_live_expected ALTER COLUMN 3 SET STATISTICS 10;
ALTER INDEX dispatcherd.jobs_live_expected ALTER COLUMN 5 SET STATISTICS 10;
ALTER INDEX dispatcherd.jobs_live_unnamed ALTER COLUMN 4 SET STATISTICS 10;

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 37::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 37::bigint';

DROP INDEX CONCURRENTLY IF EXISTS dispatcherd.jobs_live_unnamed;
DROP INDEX CONCURRENTLY IF EXISTS dispatcherd.jobs_live_expected;
