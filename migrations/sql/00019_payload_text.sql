-- The size of a payload is also bounded as text, because workers receive text. jsonb stores 1e131071 in
-- 12 bytes and writes 131,072 digits.

-- +goose Up

-- A number takes at least 16 bytes and has at most 147,458 characters. So a payload of 900 bytes is shorter
-- than 8 MiB as text and needs no further test. 8388608 is jsontext.MaxText. Workers receive no number of more
-- than 1,024 digits. A large payload is first searched for such numbers, because its text could have a
-- gigabyte. Existing rows are not checked (NOT VALID), so no table is locked and no row is an obstacle.
ALTER DOMAIN dispatcherd.payload DROP CONSTRAINT payload_is_at_most_1_megabyte;
ALTER DOMAIN dispatcherd.payload ADD CONSTRAINT payload_is_at_most_1_megabyte_and_8_as_text CHECK (
    CASE
        WHEN pg_column_size(VALUE #> '{}'::text[]) <= 900 THEN true
        WHEN pg_column_size(VALUE #> '{}'::text[]) > 1000000 THEN false
        WHEN pg_column_size(VALUE #> '{}'::text[]) > 32768
            AND jsonb_path_exists(VALUE, 'strict $.** ? (@ >= 1e1024 || @ <= -1e1024)') THEN false
        ELSE octet_length(VALUE::text) <= 8388608
    END) NOT VALID;

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

ALTER DOMAIN dispatcherd.payload DROP CONSTRAINT payload_is_at_most_1_megabyte_and_8_as_text;
ALTER DOMAIN dispatcherd.payload ADD CONSTRAINT payload_is_at_most_1_megabyte
    CHECK (pg_column_size(VALUE #> '{}'::text[]) <= 1000000) NOT VALID;
