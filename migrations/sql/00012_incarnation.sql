-- A dispatcher that starts on the host of its dead predecessor can declare it lost at
-- once. docs/storage.md gives the reasons.

-- +goose Up

-- Programs of earlier versions leave both columns NULL: only their lease ends them.
ALTER TABLE dispatcherd.dispatchers
    ADD COLUMN incarnation uuid,
    ADD COLUMN host_lock   text CONSTRAINT host_lock_is_1_to_256_bytes CHECK (octet_length(host_lock) BETWEEN 1 AND 256);
COMMENT ON COLUMN dispatcherd.dispatchers.incarnation IS 'Random number of its process; NULL = its successor on the same host has declared it lost, and its heartbeats fail.';
COMMENT ON COLUMN dispatcherd.dispatchers.host_lock IS 'The lock file that contains the incarnation: boot id, device and inode. Only the holder of that lock can declare the dispatcher lost before its lease runs out.';

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

ALTER TABLE dispatcherd.dispatchers DROP COLUMN host_lock, DROP COLUMN incarnation;
