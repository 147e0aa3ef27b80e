-- The default kind of a schedule is cron, as of the commands and the API. The reason of a skipped tick is correct for one
-- run, too.

-- +goose Up

ALTER TABLE dispatcherd.schedules ALTER COLUMN kind SET DEFAULT 'cron';

-- +goose StatementBegin
DO $$
DECLARE
    ticks text := pg_get_functiondef('dispatcherd.make_ticks'::regproc);
BEGIN
    ASSERT strpos(ticks, '''%s runs have not ended, %s wait (%s)''') > 0;
    EXECUTE replace(ticks, '''%s runs have not ended, %s wait (%s)''', '''runs not ended: %s, waiting: %s (%s)''');
END $$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 30::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 30::bigint';

-- +goose StatementBegin
DO $$
DECLARE
    ticks text := pg_get_functiondef('dispatcherd.make_ticks'::regproc);
BEGIN
    ASSERT strpos(ticks, '''runs not ended: %s, waiting: %s (%s)''') > 0;
    EXECUTE replace(ticks, '''runs not ended: %s, waiting: %s (%s)''', '''%s runs have not ended, %s wait (%s)''');
END $$;
-- +goose StatementEnd

ALTER TABLE dispatcherd.schedules ALTER COLUMN kind DROP DEFAULT;
