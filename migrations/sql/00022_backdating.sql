-- No producer gains age by an early run_at. docs/security.md gives the reasons.

-- +goose Up

-- Sets run_at to the time of insertion if it is earlier. A BEFORE trigger would be shorter, but
-- COPY would then insert single rows. The condition is evaluated with the rights of the role that
-- inserts: who may set created_at may also backdate run_at. It allows one second, because
-- clients set run_at by their own clocks, and the second version of a row is expensive.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.limit_run_at() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    UPDATE dispatcherd.jobs_live SET run_at = clock_timestamp() WHERE id = NEW.id;
    RETURN NULL;
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION dispatcherd.limit_run_at FROM PUBLIC;
CREATE TRIGGER limit_run_at AFTER INSERT ON dispatcherd.jobs_live FOR EACH ROW
    WHEN (NEW.run_at < clock_timestamp() - interval '1 second'
        AND NOT has_column_privilege('dispatcherd.jobs'::regclass, 'created_at', 'INSERT'))
    EXECUTE FUNCTION dispatcherd.limit_run_at();

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

DROP TRIGGER limit_run_at ON dispatcherd.jobs_live;
DROP FUNCTION dispatcherd.limit_run_at;
