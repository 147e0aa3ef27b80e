-- The size of a payload is also bounded as text, because workers receive text. jsonb stores 1e131071 in
-- 12 bytes and writes 131,072 digits.

-- +goose Up

-- Returns the length of all numbers of a payload as text. A number of more than 1,024 digits before or
-- after the point counts as 8 MiB + 1, because workers receive none. It is not written as text, because
-- the text of a payload of such numbers could have a gigabyte. The numbers are read from one array: a set
-- that jsonb_path_query returns takes quadratic time in their count (Postgres 15).
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.numbers_length(payload jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (SELECT sum(CASE WHEN scale(n::numeric) > 1024 OR abs(n::numeric) >= 1e1024 THEN 8388609 ELSE octet_length(n::text) END)
    FROM jsonb_array_elements(jsonb_path_query_array(payload, 'strict $.** ? (@.type() == "number")')) n);
-- +goose StatementEnd

-- A number takes at least 16 bytes and has at most 147,458 characters. So a payload of 900 bytes is shorter
-- than 8 MiB as text and needs no further test. 8388608 is jsontext.MaxText. The text of 4,096 bytes has at
-- most 38 MB. The search for numbers doubles the time of a larger payload. The text of other values than
-- numbers has at most 6 MB. Existing rows are not checked (NOT VALID), so no table is locked and no row is an
-- obstacle.
ALTER DOMAIN dispatcherd.payload DROP CONSTRAINT payload_is_at_most_1_megabyte;
ALTER DOMAIN dispatcherd.payload ADD CONSTRAINT payload_is_at_most_1_megabyte_and_8_as_text CHECK (
    CASE
        WHEN pg_column_size(VALUE #> '{}'::text[]) <= 900 THEN true
        WHEN pg_column_size(VALUE #> '{}'::text[]) > 1000000 THEN false
        WHEN pg_column_size(VALUE #> '{}'::text[]) > 4096 AND dispatcherd.numbers_length(VALUE) > 8388608 THEN false
        ELSE octet_length(VALUE::text) <= 8388608
    END) NOT VALID;

-- +goose StatementBegin
DO $$
DECLARE
    r text;
BEGIN
    FOR r IN SELECT rolname FROM pg_roles WHERE rolname IN ('dispatcherd_producer', 'dispatcherd_operator', 'dispatcherd_dispatcher') LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION dispatcherd.numbers_length TO %I', r);
    END LOOP;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

ALTER DOMAIN dispatcherd.payload DROP CONSTRAINT payload_is_at_most_1_megabyte_and_8_as_text;
ALTER DOMAIN dispatcherd.payload ADD CONSTRAINT payload_is_at_most_1_megabyte
    CHECK (pg_column_size(VALUE #> '{}'::text[]) <= 1000000) NOT VALID;
DROP FUNCTION dispatcherd.numbers_length;
