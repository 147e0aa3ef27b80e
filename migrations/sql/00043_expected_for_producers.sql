-- Lets producers insert expected durations. It refuses to run while a daemon of a former version runs, because such a daemon reads the
-- index that it drops. A former one that was only silent, and so was declared lost, cannot join again.

-- +goose Up

-- +goose StatementBegin
DO $$
DECLARE
    r   text;
    old text;
BEGIN
    SELECT string_agg(quote_literal(name), ', ' ORDER BY name) INTO old FROM dispatcherd.dispatchers
        WHERE lost_at IS NULL AND NOT leaving AND incarnation IS NOT NULL AND coalesce(program, 0) < 41;
    IF old IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE = format('dispatchers of a former version run: %s', old),
            HINT = 'Replace them. Then run ''dispatcherd migrate up'' again.';
    END IF;
    FOR r IN SELECT rolname FROM pg_roles WHERE rolname IN ('dispatcherd_producer', 'dispatcherd_operator') LOOP
        EXECUTE format('GRANT INSERT (expected_ms) ON dispatcherd.jobs TO %I', r);
    END LOOP;
END $$;
-- +goose StatementEnd
ALTER TABLE dispatcherd.dispatchers DROP CONSTRAINT program_is_of_schema_37_or_later,
    ADD CONSTRAINT program_is_of_schema_41_or_later CHECK (lost_at IS NOT NULL OR leaving OR incarnation IS NULL OR coalesce(program, 0) >= 41);
DROP INDEX dispatcherd.jobs_live_lanes;
ALTER INDEX dispatcherd.jobs_live_unnamed RENAME TO jobs_live_lanes;
COMMENT ON TABLE dispatcherd.jobs IS 'All jobs. Producers: INSERT or COPY (type, payload [, priority, run_at, max_attempts, timeout_ms, expected_ms, keys, parent, unique_key]).';

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 41::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 37::bigint';

ALTER INDEX dispatcherd.jobs_live_lanes RENAME TO jobs_live_unnamed;
CREATE INDEX jobs_live_lanes ON dispatcherd.jobs_live (type, priority, run_at, (id + 0)) WHERE keys IS NULL OR fence > 0;
ALTER INDEX dispatcherd.jobs_live_lanes ALTER COLUMN 4 SET STATISTICS 10;
ALTER TABLE dispatcherd.dispatchers DROP CONSTRAINT program_is_of_schema_41_or_later,
    ADD CONSTRAINT program_is_of_schema_37_or_later CHECK (lost_at IS NOT NULL OR leaving OR incarnation IS NULL OR coalesce(program, 0) >= 37);
COMMENT ON TABLE dispatcherd.jobs IS 'All jobs. Producers: INSERT or COPY (type, payload [, priority, run_at, max_attempts, timeout_ms, keys, parent, unique_key]).';
-- +goose StatementBegin
DO $$
DECLARE
    r text;
BEGIN
    FOR r IN SELECT rolname FROM pg_roles WHERE rolname IN ('dispatcherd_producer', 'dispatcherd_operator') LOOP
        EXECUTE format('REVOKE INSERT (expected_ms) ON dispatcherd.jobs FROM %I', r);
    END LOOP;
END $$;
-- +goose StatementEnd
