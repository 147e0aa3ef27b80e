-- Functions, a trigger and comments use the terms of docs/glossary.md.

-- +goose Up

ALTER FUNCTION dispatcherd.ring RENAME TO notify_dispatchers;
ALTER TRIGGER ring ON dispatcherd.jobs RENAME TO notify_dispatchers;
ALTER FUNCTION dispatcherd.keep_leaves RENAME TO keep_partitions;
ALTER FUNCTION dispatcherd.rest_vacuum RENAME TO pause_vacuum;

-- Daemons of earlier versions call the two functions by their former names while
-- daemons are replaced one after the other.
CREATE FUNCTION dispatcherd.keep_leaves(final dispatcherd.status, ahead int, keep interval,
    OUT made int, OUT dropped int, OUT blocked int, OUT more boolean) LANGUAGE sql
    AS 'SELECT made, dropped, blocked, more FROM dispatcherd.keep_partitions($1, $2, $3)';
CREATE FUNCTION dispatcherd.rest_vacuum(rest boolean) RETURNS boolean LANGUAGE sql
    AS 'SELECT dispatcherd.pause_vacuum($1)';
REVOKE ALL ON FUNCTION dispatcherd.keep_leaves, dispatcherd.rest_vacuum FROM PUBLIC;
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_dispatcher') THEN
        GRANT EXECUTE ON FUNCTION dispatcherd.keep_leaves, dispatcherd.rest_vacuum TO dispatcherd_dispatcher;
    END IF;
END $$;
-- +goose StatementEnd

COMMENT ON COLUMN dispatcherd.dispatchers.armed IS 'Subscribed: its workers have slots and it is not throttled, so inserts send a notification.';
COMMENT ON COLUMN dispatcherd.dispatchers.lost_at IS 'When it was declared lost; its claims take nothing since then.';

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

COMMENT ON COLUMN dispatcherd.dispatchers.lost_at IS 'Declared dead; its claims take nothing from here on.';
COMMENT ON COLUMN dispatcherd.dispatchers.armed IS 'Its workers have slots, and notifications are no storm: producers ring.';

DROP FUNCTION dispatcherd.rest_vacuum, dispatcherd.keep_leaves;
ALTER FUNCTION dispatcherd.pause_vacuum RENAME TO rest_vacuum;
ALTER FUNCTION dispatcherd.keep_partitions RENAME TO keep_leaves;
ALTER TRIGGER notify_dispatchers ON dispatcherd.jobs RENAME TO ring;
ALTER FUNCTION dispatcherd.notify_dispatchers RENAME TO ring;
