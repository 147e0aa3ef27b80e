-- Fetches leave out rows that several transactions have locked. The xmax of such a row is a
-- multixact.

-- +goose Up

-- has_locker reports whether one of the running transactions has locked a row with this xmax.
-- Postgres raises an error for an xmax that is no multixact.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.has_locker(row_xmax xid, running xid[]) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM pg_catalog.pg_get_multixact_members(row_xmax) m WHERE m.xid = ANY (running));
EXCEPTION WHEN OTHERS THEN
    RETURN false;
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION dispatcherd.has_locker FROM PUBLIC;

-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_dispatcher') THEN
        GRANT EXECUTE ON FUNCTION dispatcherd.has_locker TO dispatcherd_dispatcher;
    END IF;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

DROP FUNCTION dispatcherd.has_locker;
