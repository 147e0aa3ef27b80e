-- A payload that a producer takes from another table comes as it is stored there,
-- and may be compressed: the bound let many megabytes of text through. What counts
-- is what a dispatcher will hold when it has claimed the job.

-- +goose Up

-- #> '{}' is the value itself, unpacked; what is not packed costs nothing. Rows that
-- are there are not looked at (NOT VALID), so no table is locked.
ALTER DOMAIN dispatcherd.payload DROP CONSTRAINT payload_is_at_most_1_megabyte;
ALTER DOMAIN dispatcherd.payload ADD CONSTRAINT payload_is_at_most_1_megabyte
    CHECK (pg_column_size(VALUE #> '{}'::text[]) <= 1000000) NOT VALID;

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

ALTER DOMAIN dispatcherd.payload DROP CONSTRAINT payload_is_at_most_1_megabyte;
ALTER DOMAIN dispatcherd.payload ADD CONSTRAINT payload_is_at_most_1_megabyte
    CHECK (pg_column_size(VALUE) <= 1000000) NOT VALID;
