-- Lets producers insert keys. It refuses to run while a daemon of a former version runs, because such a daemon reads
-- the index that it drops, and does not give back permits.

-- +goose Up

-- +goose StatementBegin
DO $$
DECLARE
    r   text;
    old text;
BEGIN
    SELECT string_agg(quote_literal(name), ', ' ORDER BY name) INTO old FROM dispatcherd.dispatchers
        WHERE lost_at IS NULL AND NOT leaving AND incarnation IS NOT NULL AND coalesce(program, 0) < 30;
    IF old IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE = format('dispatchers of a former version run: %s', old),
            HINT = 'Replace them. Then run ''dispatcherd migrate up'' again.';
    END IF;
    FOR r IN SELECT rolname FROM pg_roles WHERE rolname IN ('dispatcherd_producer', 'dispatcherd_operator') LOOP
        EXECUTE format('GRANT INSERT (keys) ON dispatcherd.jobs TO %I', r);
    END LOOP;
END $$;
-- +goose StatementEnd
DROP INDEX dispatcherd.jobs_live_lanes;
ALTER INDEX dispatcherd.jobs_live_ready RENAME TO jobs_live_lanes;
COMMENT ON TABLE dispatcherd.jobs IS 'All jobs. Producers: INSERT or COPY (type, payload [, priority, run_at, max_attempts, timeout_ms, keys]).';

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 30::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

ALTER INDEX dispatcherd.jobs_live_lanes RENAME TO jobs_live_ready;
CREATE INDEX jobs_live_lanes ON dispatcherd.jobs_live (type, priority, run_at, (id + 0));
ALTER INDEX dispatcherd.jobs_live_lanes ALTER COLUMN 4 SET STATISTICS 10;
COMMENT ON TABLE dispatcherd.jobs IS 'All jobs. Producers: INSERT or COPY (type, payload [, priority, run_at, max_attempts, timeout_ms]).';
-- +goose StatementBegin
DO $$
DECLARE
    r text;
BEGIN
    FOR r IN SELECT rolname FROM pg_roles WHERE rolname IN ('dispatcherd_producer', 'dispatcherd_operator') LOOP
        EXECUTE format('REVOKE INSERT (keys) ON dispatcherd.jobs FROM %I', r);
    END LOOP;
END $$;
-- +goose StatementEnd
