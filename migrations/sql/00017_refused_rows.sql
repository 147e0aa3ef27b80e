-- Neither a row that cannot be deleted nor a session without rights stops retention.
-- docs/reliability.md and docs/security.md give the reasons.

-- +goose Up

-- A call of keep_partitions locks the row of its status. No role has a right to this table, so
-- only the owner can lock its rows. Every session can take every advisory lock.
CREATE TABLE dispatcherd.maintenance (status dispatcherd.status PRIMARY KEY);
INSERT INTO dispatcherd.maintenance VALUES ('done'), ('failed'), ('cancelled');
COMMENT ON TABLE dispatcherd.maintenance IS 'Each row is the lock of the maintenance of the daily partitions of one status.';

-- As before, and: busy says that another call maintains the status, and that this call did
-- nothing. A part of the rest that cannot be deleted because of one of its rows is halved. The
-- rows that cannot be deleted do not stop the others; refused contains the first hundred of them.
-- If the rest is locked, its rows stay, and it counts as one blocked partition.
DROP FUNCTION dispatcherd.keep_partitions;
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.keep_partitions(final dispatcherd.status, ahead int, keep interval,
    OUT made int, OUT dropped int, OUT blocked int, OUT more boolean, OUT refused bigint[], OUT busy boolean) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '250ms' SET timezone = 'UTC' SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    most    int := 10000;
    expired tid[] := '{}';
    rows    int := 0;
    next    int := 1; -- the part of expired that is deleted next
    size    int := most;
    part    tid[];
    bad     bigint;
    root    text := 'jobs_' || final;
    leaf    text;
    day     date;
BEGIN
    made := 0; dropped := 0; blocked := 0; more := false; refused := '{}'; busy := false;
    IF final NOT IN ('done', 'failed', 'cancelled') THEN
        RAISE EXCEPTION 'status % has no leaves; use done, failed or cancelled', final USING ERRCODE = '22023';
    END IF;
    INSERT INTO dispatcherd.maintenance VALUES (final) ON CONFLICT DO NOTHING; -- a restore or TRUNCATE may have removed it
    IF NOT EXISTS (SELECT FROM dispatcherd.maintenance m WHERE m.status = final FOR UPDATE SKIP LOCKED) THEN
        busy := true;
        RETURN;
    END IF;
    BEGIN
        EXECUTE format('SELECT ARRAY (SELECT ctid FROM dispatcherd.%1$I
            WHERE coalesce(finished_at, %2$L) < now() - $1 ORDER BY coalesce(finished_at, %2$L) LIMIT $2 FOR UPDATE SKIP LOCKED)',
            root || '_rest', '-infinity') INTO expired USING keep, most;
    EXCEPTION WHEN lock_not_available THEN
        blocked := 1;
    END;
    WHILE next <= cardinality(expired) LOOP
        part := expired[next:next + size - 1];
        BEGIN
            EXECUTE format('DELETE FROM dispatcherd.%I WHERE ctid = ANY ($1)', root || '_rest') USING part;
            rows := rows + cardinality(part);
            next := next + size;
            size := size * 2;
        EXCEPTION WHEN lock_not_available THEN
            blocked := 1;
            EXIT;
        WHEN OTHERS THEN
            IF left(SQLSTATE, 2) IN ('40', '53', '55', '57') THEN
                RAISE; -- not because of a row
            END IF;
            IF cardinality(part) = 1 THEN
                EXECUTE format('SELECT id FROM dispatcherd.%I WHERE ctid = $1', root || '_rest') INTO bad USING part[1];
                IF cardinality(refused) < 100 THEN
                    refused := refused || bad;
                END IF;
                next := next + 1;
            END IF;
            size := greatest(cardinality(part) / 2, 1);
        END;
    END LOOP;
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

DROP TABLE dispatcherd.maintenance;
