-- A dispatcher notices that its row was set back to an earlier state. docs/storage.md
-- gives the reasons.

-- +goose Up

-- Programs of earlier versions leave 0.
ALTER TABLE dispatcherd.dispatchers ADD COLUMN beats bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN dispatcherd.dispatchers.beats IS 'Number of its last heartbeat. A dispatcher whose row contains an old number joins again.';
COMMENT ON COLUMN dispatcherd.dispatchers.id IS 'Random, so that no later run has the same id, also after an earlier state of the table was restored.';

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

COMMENT ON COLUMN dispatcherd.dispatchers.id IS NULL;
ALTER TABLE dispatcherd.dispatchers DROP COLUMN beats;
