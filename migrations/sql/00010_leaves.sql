-- Finished jobs can be deleted while a publication covers their tables, rows that
-- landed in the rest do not stay there, and functions find rows by their ids
-- whatever the statistics said. docs/storage.md gives the reasons.

-- +goose Up

-- A publication for all tables forbids deleting rows that nothing identifies. It
-- costs nothing unless rows are deleted and wal_level is logical.
-- +goose StatementBegin
DO $$
DECLARE
    leaf regclass;
BEGIN
    FOR leaf IN SELECT c.oid FROM pg_partition_tree('dispatcherd.jobs') t JOIN pg_class c ON c.oid = t.relid
        WHERE t.isleaf AND c.relname <> 'jobs_live' AND c.relname !~ '^jobs_done_\d' -- nothing deletes from those
    LOOP
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', leaf);
    END LOOP;
END $$;
-- +goose StatementEnd

CREATE INDEX jobs_done_rest_end      ON dispatcherd.jobs_done_rest (coalesce(finished_at, '-infinity'));
CREATE INDEX jobs_failed_rest_end    ON dispatcherd.jobs_failed_rest (coalesce(finished_at, '-infinity'));
CREATE INDEX jobs_cancelled_rest_end ON dispatcherd.jobs_cancelled_rest (coalesce(finished_at, '-infinity'));

-- As before, and: it reads only what it deletes from the rest, and says whether there
-- is more to do at once: it has dropped a leaf, or deleted as many rows as it may.
DROP FUNCTION dispatcherd.keep_leaves;
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.keep_leaves(final dispatcherd.status, ahead int, keep interval,
    OUT made int, OUT dropped int, OUT blocked int, OUT more boolean) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '250ms' SET timezone = 'UTC' SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    most  int := 10000;
    rows  int;
    root  text := 'jobs_' || final;
    leaf  text;
    day   date;
BEGIN
    made := 0; dropped := 0; blocked := 0; more := false;
    IF final NOT IN ('done', 'failed', 'cancelled') THEN
        RAISE EXCEPTION 'status % has no leaves; use done, failed or cancelled', final USING ERRCODE = '22023';
    END IF;
    IF NOT pg_try_advisory_xact_lock(7233173, hashtext(root)) THEN
        RETURN;
    END IF;
    EXECUTE format('DELETE FROM dispatcherd.%1$I WHERE ctid = ANY (ARRAY (SELECT ctid FROM dispatcherd.%1$I
        WHERE coalesce(finished_at, %2$L) < now() - $1 ORDER BY coalesce(finished_at, %2$L) LIMIT $2 FOR UPDATE SKIP LOCKED))',
        root || '_rest', '-infinity') USING keep, most;
    GET DIAGNOSTICS rows = ROW_COUNT;
    FOR day IN SELECT current_date + i FROM generate_series(0, least(ahead, 366)) i LOOP
        leaf := root || to_char(day, '_YYYYMMDD');
        CONTINUE WHEN to_regclass('dispatcherd.' || leaf) IS NOT NULL;
        BEGIN -- CREATE … PARTITION OF would lock the whole status; ATTACH does not
            EXECUTE format('CREATE TABLE dispatcherd.%I (LIKE dispatcherd.%I INCLUDING DEFAULTS)', leaf, root);
            EXECUTE format('ALTER TABLE dispatcherd.%I REPLICA IDENTITY FULL', leaf);
            EXECUTE format('ALTER TABLE dispatcherd.%I ATTACH PARTITION dispatcherd.%I FOR VALUES FROM (%L) TO (%L)',
                root, leaf, day::timestamptz, (day + 1)::timestamptz);
            made := made + 1;
        EXCEPTION WHEN lock_not_available OR check_violation THEN
            blocked := blocked + 1; -- busy, or rows of that day are in the rest already: they stay there
        END;
    END LOOP;
    FOR leaf, day IN
        SELECT c.relname, to_date(right(c.relname, 8), 'YYYYMMDD')
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = ('dispatcherd.' || root)::regclass AND c.relname ~ '_\d{8}$'
        ORDER BY 2
    LOOP
        EXIT WHEN (day + 1)::timestamptz >= now() - keep OR dropped > 0;
        BEGIN
            EXECUTE format('DROP TABLE dispatcherd.%I', leaf);
            dropped := dropped + 1;
        EXCEPTION WHEN lock_not_available THEN
            blocked := blocked + 1;
        END;
    END LOOP;
    more := dropped > 0 OR rows = most;
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION dispatcherd.keep_leaves FROM PUBLIC;
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_dispatcher') THEN
        GRANT EXECUTE ON FUNCTION dispatcherd.keep_leaves TO dispatcherd_dispatcher;
    END IF;
END $$;
-- +goose StatementEnd

-- A session keeps the plan that it made when next to nothing was there.
ALTER FUNCTION dispatcherd.cancel_pending SET enable_seqscan = off;
ALTER FUNCTION dispatcherd.cancel_pending SET enable_bitmapscan = off;
ALTER FUNCTION dispatcherd.retry_jobs SET enable_seqscan = off;
ALTER FUNCTION dispatcherd.retry_jobs SET enable_bitmapscan = off;

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

ALTER FUNCTION dispatcherd.retry_jobs RESET enable_bitmapscan;
ALTER FUNCTION dispatcherd.retry_jobs RESET enable_seqscan;
ALTER FUNCTION dispatcherd.cancel_pending RESET enable_bitmapscan;
ALTER FUNCTION dispatcherd.cancel_pending RESET enable_seqscan;

DROP FUNCTION dispatcherd.keep_leaves;
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.keep_leaves(final dispatcherd.status, ahead int, keep interval,
    OUT made int, OUT dropped int, OUT blocked int) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '250ms' SET timezone = 'UTC' AS $$
DECLARE
    root  text := 'jobs_' || final;
    leaf  text;
    day   date;
BEGIN
    made := 0; dropped := 0; blocked := 0;
    IF final NOT IN ('done', 'failed', 'cancelled') THEN
        RAISE EXCEPTION 'status % has no leaves; use done, failed or cancelled', final USING ERRCODE = '22023';
    END IF;
    IF NOT pg_try_advisory_xact_lock(7233173, hashtext(root)) THEN
        RETURN;
    END IF;
    EXECUTE format('DELETE FROM dispatcherd.%1$I WHERE ctid = ANY (ARRAY (SELECT ctid FROM dispatcherd.%1$I
        WHERE finished_at < now() - $1 OR finished_at IS NULL LIMIT 10000 FOR UPDATE SKIP LOCKED))', root || '_rest') USING keep;
    FOR day IN SELECT current_date + i FROM generate_series(0, least(ahead, 366)) i LOOP
        leaf := root || to_char(day, '_YYYYMMDD');
        CONTINUE WHEN to_regclass('dispatcherd.' || leaf) IS NOT NULL;
        BEGIN -- CREATE … PARTITION OF would lock the whole status; ATTACH does not
            EXECUTE format('CREATE TABLE dispatcherd.%I (LIKE dispatcherd.%I INCLUDING DEFAULTS)', leaf, root);
            EXECUTE format('ALTER TABLE dispatcherd.%I ATTACH PARTITION dispatcherd.%I FOR VALUES FROM (%L) TO (%L)',
                root, leaf, day::timestamptz, (day + 1)::timestamptz);
            made := made + 1;
        EXCEPTION WHEN lock_not_available OR check_violation THEN
            blocked := blocked + 1; -- busy, or rows of that day are in the rest already: they stay there
        END;
    END LOOP;
    FOR leaf, day IN
        SELECT c.relname, to_date(right(c.relname, 8), 'YYYYMMDD')
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = ('dispatcherd.' || root)::regclass AND c.relname ~ '_\d{8}$'
        ORDER BY 2
    LOOP
        EXIT WHEN (day + 1)::timestamptz >= now() - keep OR dropped > 0;
        BEGIN
            EXECUTE format('DROP TABLE dispatcherd.%I', leaf);
            dropped := dropped + 1;
        EXCEPTION WHEN lock_not_available THEN
            blocked := blocked + 1;
        END;
    END LOOP;
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION dispatcherd.keep_leaves FROM PUBLIC;
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_dispatcher') THEN
        GRANT EXECUTE ON FUNCTION dispatcherd.keep_leaves TO dispatcherd_dispatcher;
    END IF;
END $$;
-- +goose StatementEnd

DROP INDEX dispatcherd.jobs_cancelled_rest_end, dispatcherd.jobs_failed_rest_end, dispatcherd.jobs_done_rest_end;

-- +goose StatementBegin
DO $$
DECLARE
    leaf regclass;
BEGIN
    FOR leaf IN SELECT t.relid FROM pg_partition_tree('dispatcherd.jobs') t JOIN pg_class c ON c.oid = t.relid
        WHERE t.isleaf AND c.relreplident = 'f'
    LOOP
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY DEFAULT', leaf);
    END LOOP;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';
