-- A type has no invisible character. docs/security.md gives the reasons.

-- +goose Up

-- The list is that of dispatcherd.CheckType; a test compares them. In a database with another
-- encoding than UTF8 the numbers denote other characters, so the former rule remains there.
-- Existing rows are not checked (NOT VALID), so no table is locked and no row is an obstacle.
-- +goose StatementBegin
DO $$
BEGIN
    IF getdatabaseencoding() = 'UTF8' THEN
        ALTER DOMAIN dispatcherd.job_type DROP CONSTRAINT type_has_no_control_character;
        ALTER DOMAIN dispatcherd.job_type ADD CONSTRAINT type_has_no_invisible_character
            CHECK (VALUE !~ '[\u0001-\u001f\u007f-\u009f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]') NOT VALID;
    END IF;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

ALTER DOMAIN dispatcherd.job_type DROP CONSTRAINT IF EXISTS type_has_no_invisible_character;
ALTER DOMAIN dispatcherd.job_type DROP CONSTRAINT IF EXISTS type_has_no_control_character;
ALTER DOMAIN dispatcherd.job_type ADD CONSTRAINT type_has_no_control_character CHECK (VALUE !~ '[[:cntrl:]]') NOT VALID;
