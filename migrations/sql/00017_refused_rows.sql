-- A row that cannot be read or deleted stops no other row. docs/reliability.md states it.

-- +goose Up

-- As before. A job whose payload or errors cannot be read is cancelled without them.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.cancel_pending(job bigint) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    readable boolean;
BEGIN
    FOREACH readable IN ARRAY ARRAY[true, false] LOOP
        BEGIN
            WITH gone AS (
                DELETE FROM dispatcherd.jobs_live WHERE id = job AND status = 'pending' RETURNING *
            )
            INSERT INTO dispatcherd.jobs_cancelled (id, run_at, created_at, attempt, status, timeout_ms, priority,
                max_attempts, failures, crashes, type, payload, finished_at, errors)
            SELECT id, run_at, created_at, attempt, 'cancelled', timeout_ms, priority,
                max_attempts, failures, crashes, type, CASE WHEN readable THEN payload ELSE 'null' END, now(),
                CASE WHEN readable THEN errors ELSE jsonb_build_array(jsonb_build_object('attempt', attempt, 'at', now(), 'outcome', 'cancelled',
                    'error', 'the payload and the earlier errors cannot be read in Postgres and were dropped')) END FROM gone;
            RETURN FOUND;
        EXCEPTION WHEN data_corrupted OR internal_error THEN
            IF NOT readable THEN
                RAISE;
            END IF;
        END;
    END LOOP;
END $$;
-- +goose StatementEnd

-- As before, and: if a row of the rest cannot be deleted, the rows are deleted one by one.
-- The rows that cannot be deleted do not stop the partitions; refused contains the first
-- hundred of them.
DROP FUNCTION dispatcherd.keep_partitions;
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.keep_partitions(final dispatcherd.status, ahead int, keep interval,
    OUT made int, OUT dropped int, OUT blocked int, OUT more boolean, OUT refused bigint[]) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '250ms' SET timezone = 'UTC' SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    most    int := 10000;
    expired tid[];
    rows    int := 0;
    at      tid;
    bad     bigint;
    root    text := 'jobs_' || final;
    leaf    text;
    day     date;
BEGIN
    made := 0; dropped := 0; blocked := 0; more := false; refused := '{}';
    IF final NOT IN ('done', 'failed', 'cancelled') THEN
        RAISE EXCEPTION 'status % has no leaves; use done, failed or cancelled', final USING ERRCODE = '22023';
    END IF;
    IF NOT pg_try_advisory_xact_lock(7233173, hashtext(root)) THEN
        RETURN;
    END IF;
    EXECUTE format('SELECT ARRAY (SELECT ctid FROM dispatcherd.%1$I
        WHERE coalesce(finished_at, %2$L) < now() - $1 ORDER BY coalesce(finished_at, %2$L) LIMIT $2 FOR UPDATE SKIP LOCKED)',
        root || '_rest', '-infinity') INTO expired USING keep, most;
    BEGIN
        EXECUTE format('DELETE FROM dispatcherd.%I WHERE ctid = ANY ($1)', root || '_rest') USING expired;
        rows := cardinality(expired);
    EXCEPTION WHEN OTHERS THEN
        IF left(SQLSTATE, 2) IN ('40', '53', '57') THEN
            RAISE; -- not because of a row
        END IF;
        FOREACH at IN ARRAY expired LOOP
            BEGIN
                EXECUTE format('DELETE FROM dispatcherd.%I WHERE ctid = $1', root || '_rest') USING at;
                rows := rows + 1;
            EXCEPTION WHEN OTHERS THEN
                EXECUTE format('SELECT id FROM dispatcherd.%I WHERE ctid = $1', root || '_rest') INTO bad USING at;
                IF cardinality(refused) < 100 THEN
                    refused := refused || bad;
                END IF;
            END;
        END LOOP;
    END;
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
    more := dropped > 0 OR rows > 0 AND cardinality(expired) = most;
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION dispatcherd.keep_partitions FROM PUBLIC;
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_dispatcher') THEN
        GRANT EXECUTE ON FUNCTION dispatcherd.keep_partitions TO dispatcherd_dispatcher;
    END IF;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

DROP FUNCTION dispatcherd.keep_partitions;
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.keep_partitions(final dispatcherd.status, ahead int, keep interval,
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
REVOKE ALL ON FUNCTION dispatcherd.keep_partitions FROM PUBLIC;
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'dispatcherd_dispatcher') THEN
        GRANT EXECUTE ON FUNCTION dispatcherd.keep_partitions TO dispatcherd_dispatcher;
    END IF;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.cancel_pending(job bigint) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    WITH gone AS (
        DELETE FROM dispatcherd.jobs_live WHERE id = job AND status = 'pending' RETURNING *
    )
    INSERT INTO dispatcherd.jobs_cancelled (id, run_at, created_at, attempt, status, timeout_ms, priority,
        max_attempts, failures, crashes, type, payload, finished_at, errors)
    SELECT id, run_at, created_at, attempt, 'cancelled', timeout_ms, priority,
        max_attempts, failures, crashes, type, payload, now(), errors FROM gone;
    RETURN FOUND;
END $$;
-- +goose StatementEnd
