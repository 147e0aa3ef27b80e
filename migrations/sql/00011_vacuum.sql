-- Vacuum works no more than it can clean. docs/storage.md gives the reasons,
-- docs/benchmarks.md the measurements.

-- +goose Up

-- A large backlog was cleaned every few seconds, which reads both indexes to their
-- ends. A fifth is Postgres's own factor; below a million rows it changes nothing,
-- because as many die between two rounds of autovacuum. Rows here do not live long
-- enough for a vacuum that only marks pages as visible to pay.
ALTER TABLE dispatcherd.jobs_live SET (
    autovacuum_vacuum_scale_factor = 0.2,
    autovacuum_vacuum_insert_threshold = -1,
    autovacuum_analyze_scale_factor = 0.2,
    toast.autovacuum_vacuum_scale_factor = 0.2,
    toast.autovacuum_vacuum_insert_threshold = -1
);

-- No plan depends on the statistics, so a sample of 3,000 rows does as well as one
-- of 30,000.
-- +goose StatementBegin
DO $$
DECLARE
    col name;
BEGIN
    FOR col IN SELECT attname FROM pg_attribute WHERE attrelid = 'dispatcherd.jobs_live'::regclass AND attnum > 0 AND NOT attisdropped LOOP
        EXECUTE format('ALTER TABLE dispatcherd.jobs_live ALTER COLUMN %I SET STATISTICS 10', col);
    END LOOP;
END $$;
-- +goose StatementEnd
ALTER INDEX dispatcherd.jobs_live_lanes ALTER COLUMN 4 SET STATISTICS 10;

-- Lets autovacuum of the hot table rest, or work again, and tells whether it rests.
-- What an operator has written about it himself (off, on, true) stays; "false" is
-- this function's. The lock is one that no job needs; a vacuum that is under way
-- gives way to it after deadlock_timeout.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.rest_vacuum(rest boolean) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '4s' AS $$
DECLARE
    told text := (SELECT o.option_value FROM pg_class c, pg_options_to_table(c.reloptions) o
        WHERE c.oid = 'dispatcherd.jobs_live'::regclass AND o.option_name = 'autovacuum_enabled');
BEGIN
    IF rest AND told IS NULL THEN
        ALTER TABLE dispatcherd.jobs_live SET (autovacuum_enabled = false, toast.autovacuum_enabled = false);
    ELSIF NOT rest AND told = 'false' THEN
        ALTER TABLE dispatcherd.jobs_live RESET (autovacuum_enabled, toast.autovacuum_enabled);
    END IF;
    RETURN rest AND coalesce(told, 'false') = 'false';
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION dispatcherd.rest_vacuum FROM PUBLIC;
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_dispatcher') THEN
        GRANT EXECUTE ON FUNCTION dispatcherd.rest_vacuum TO dispatcherd_dispatcher;
    END IF;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

SELECT dispatcherd.rest_vacuum(false);
DROP FUNCTION dispatcherd.rest_vacuum;

ALTER INDEX dispatcherd.jobs_live_lanes ALTER COLUMN 4 SET STATISTICS -1;
-- +goose StatementBegin
DO $$
DECLARE
    col name;
BEGIN
    FOR col IN SELECT attname FROM pg_attribute WHERE attrelid = 'dispatcherd.jobs_live'::regclass AND attnum > 0 AND NOT attisdropped LOOP
        EXECUTE format('ALTER TABLE dispatcherd.jobs_live ALTER COLUMN %I SET STATISTICS -1', col);
    END LOOP;
END $$;
-- +goose StatementEnd

ALTER TABLE dispatcherd.jobs_live SET (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0.05,
    toast.autovacuum_vacuum_scale_factor = 0.01
);
ALTER TABLE dispatcherd.jobs_live RESET (toast.autovacuum_vacuum_insert_threshold);
