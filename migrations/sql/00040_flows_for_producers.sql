-- Lets producers insert batches, flows and unique jobs. It refuses to run while a daemon of a former version runs, because such a
-- daemon does not record the ends of their jobs. A former one that was only silent, and so was declared lost, cannot join again.

-- +goose Up

-- +goose StatementBegin
DO $$
DECLARE
    r   text;
    old text;
BEGIN
    SELECT string_agg(quote_literal(name), ', ' ORDER BY name) INTO old FROM dispatcherd.dispatchers
        WHERE lost_at IS NULL AND NOT leaving AND incarnation IS NOT NULL AND coalesce(program, 0) < 37;
    IF old IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE = format('dispatchers of a former version run: %s', old),
            HINT = 'Replace them. Then run ''dispatcherd migrate up'' again.';
    END IF;
    FOR r IN SELECT rolname FROM pg_roles WHERE rolname IN ('dispatcherd_producer', 'dispatcherd_operator') LOOP
        EXECUTE format('GRANT INSERT (parent, unique_key) ON dispatcherd.jobs TO %I', r);
        EXECUTE format('GRANT EXECUTE ON FUNCTION dispatcherd.open_batch, dispatcherd.insert_member, dispatcherd.seal_batch, dispatcherd.insert_flow, dispatcherd.insert_unique TO %I', r);
        CONTINUE WHEN r <> 'dispatcherd_operator';
        EXECUTE format('GRANT EXECUTE ON FUNCTION dispatcherd.cancel_tree, dispatcherd.retry_tree, dispatcherd.repair_flows TO %I', r);
    END LOOP;
END $$;
-- +goose StatementEnd
ALTER TABLE dispatcherd.dispatchers ADD CONSTRAINT program_is_of_schema_37_or_later
    CHECK (lost_at IS NOT NULL OR leaving OR incarnation IS NULL OR coalesce(program, 0) >= 37);
COMMENT ON TABLE dispatcherd.jobs IS 'All jobs. Producers: INSERT or COPY (type, payload [, priority, run_at, max_attempts, timeout_ms, keys, parent, unique_key]).';

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 37::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 30::bigint';

ALTER TABLE dispatcherd.dispatchers DROP CONSTRAINT program_is_of_schema_37_or_later;
COMMENT ON TABLE dispatcherd.jobs IS 'All jobs. Producers: INSERT or COPY (type, payload [, priority, run_at, max_attempts, timeout_ms, keys]).';
-- +goose StatementBegin
DO $$
DECLARE
    r text;
BEGIN
    FOR r IN SELECT rolname FROM pg_roles WHERE rolname IN ('dispatcherd_producer', 'dispatcherd_operator') LOOP
        EXECUTE format('REVOKE INSERT (parent, unique_key) ON dispatcherd.jobs FROM %I', r);
        EXECUTE format('REVOKE EXECUTE ON FUNCTION dispatcherd.open_batch, dispatcherd.insert_member, dispatcherd.seal_batch, dispatcherd.insert_flow, dispatcherd.insert_unique FROM %I', r);
        EXECUTE format('REVOKE EXECUTE ON FUNCTION dispatcherd.cancel_tree, dispatcherd.retry_tree, dispatcherd.repair_flows FROM %I', r);
    END LOOP;
END $$;
-- +goose StatementEnd
