-- A role that may not write cancelled_by cannot name another one as the one that cancels a job: the
-- name is session_user, whatever the role asks for. Daemons name the caller of the API.

-- +goose Up

-- +goose StatementBegin
DO $$
BEGIN
    EXECUTE replace(pg_get_functiondef('dispatcherd.cancel_pending'::regproc), 'coalesce(by, session_user)',
        'CASE WHEN has_column_privilege(session_user, ''dispatcherd.jobs'', ''cancelled_by'', ''UPDATE'') THEN coalesce(by, session_user) ELSE session_user END');
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION dispatcherd.name_canceller() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.requested_by := session_user;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER name_canceller BEFORE INSERT ON dispatcherd.cancels FOR EACH ROW
    WHEN (NOT has_column_privilege(session_user, 'dispatcherd.jobs', 'cancelled_by', 'UPDATE')) EXECUTE FUNCTION dispatcherd.name_canceller();

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

DROP TRIGGER name_canceller ON dispatcherd.cancels;
DROP FUNCTION dispatcherd.name_canceller;

-- +goose StatementBegin
DO $$
BEGIN
    EXECUTE replace(pg_get_functiondef('dispatcherd.cancel_pending'::regproc),
        'CASE WHEN has_column_privilege(session_user, ''dispatcherd.jobs'', ''cancelled_by'', ''UPDATE'') THEN coalesce(by, session_user) ELSE session_user END', 'coalesce(by, session_user)');
END $$;
-- +goose StatementEnd
