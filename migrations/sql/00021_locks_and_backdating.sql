-- No session without rights stops retention, and no producer gains age by an early run_at.
-- docs/security.md gives the reasons.

-- +goose Up

-- A call of keep_partitions locks the row of its status. No role has a right to this table, so
-- only the owner can lock its rows. Every session can take every advisory lock.
CREATE TABLE dispatcherd.maintenance (status dispatcherd.status PRIMARY KEY);
INSERT INTO dispatcherd.maintenance VALUES ('done'), ('failed'), ('cancelled');
COMMENT ON TABLE dispatcherd.maintenance IS 'Each row is the lock of the maintenance of the daily partitions of one status.';

-- As before, and: a call that finds another one at work counts as one blocked partition.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.keep_partitions(final dispatcherd.status, ahead int, keep interval,
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
    INSERT INTO dispatcherd.maintenance VALUES (final) ON CONFLICT DO NOTHING; -- a restore or TRUNCATE may have removed it
    IF NOT EXISTS (SELECT FROM dispatcherd.maintenance m WHERE m.status = final FOR UPDATE SKIP LOCKED) THEN
        blocked := 1;
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

-- A transaction may begin long before its INSERT, so now() is too early.
ALTER TABLE ONLY dispatcherd.jobs ALTER COLUMN run_at SET DEFAULT statement_timestamp();
ALTER TABLE dispatcherd.jobs_live ALTER COLUMN run_at SET DEFAULT statement_timestamp();

-- As before, and a row with this default is due.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.notify_dispatchers() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    news text;
    last bigint;
BEGIN
    IF NOT (EXISTS (SELECT FROM dispatcherd.dispatchers WHERE armed) AND dispatcherd.may_notify()) THEN
        RETURN NULL;
    END IF;
    IF coalesce(current_setting('dispatcherd.rung', true), '') = '' THEN
        PERFORM set_config('dispatcherd.rung', 'yes', true);
        BEGIN
            last := currval('dispatcherd.job_ids');
            SELECT concat_ws(' ', j.id::bigint, j.priority::int, (extract(epoch FROM j.run_at::timestamptz) * 1000000)::bigint, j.type::text)
                INTO news FROM dispatcherd.jobs_live j
                WHERE j.id = last AND j.status = 'pending' AND j.run_at <= statement_timestamp() AND NOT EXISTS (
                    SELECT FROM dispatcherd.jobs_live o WHERE o.id BETWEEN last - 16 AND last - 1 AND o.xmin = j.xmin);
        EXCEPTION WHEN object_not_in_prerequisite_state THEN
            NULL; -- the ids were given, so this session has taken none from the sequence
        END;
    END IF;
    PERFORM pg_notify('dispatcherd_jobs', coalesce(news, ''));
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- Sets run_at to the time of insertion if it is earlier. A BEFORE trigger would be shorter, but
-- COPY would then insert single rows. The condition is evaluated with the rights of the role that
-- inserts: who may set created_at may also backdate run_at. It allows one second, because
-- clients set run_at by their own clocks, and the second version of a row is expensive.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.limit_run_at() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    UPDATE dispatcherd.jobs_live SET run_at = statement_timestamp() WHERE id = NEW.id;
    RETURN NULL;
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION dispatcherd.limit_run_at FROM PUBLIC;
CREATE TRIGGER limit_run_at AFTER INSERT ON dispatcherd.jobs_live FOR EACH ROW
    WHEN (NEW.run_at < statement_timestamp() - interval '1 second'
        AND NOT has_column_privilege('dispatcherd.jobs'::regclass, 'created_at', 'INSERT'))
    EXECUTE FUNCTION dispatcherd.limit_run_at();

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

DROP TRIGGER limit_run_at ON dispatcherd.jobs_live;
DROP FUNCTION dispatcherd.limit_run_at;
ALTER TABLE dispatcherd.jobs_live ALTER COLUMN run_at SET DEFAULT now();
ALTER TABLE ONLY dispatcherd.jobs ALTER COLUMN run_at SET DEFAULT now();

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.notify_dispatchers() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    news text;
    last bigint;
BEGIN
    IF NOT (EXISTS (SELECT FROM dispatcherd.dispatchers WHERE armed) AND dispatcherd.may_notify()) THEN
        RETURN NULL;
    END IF;
    IF coalesce(current_setting('dispatcherd.rung', true), '') = '' THEN
        PERFORM set_config('dispatcherd.rung', 'yes', true);
        BEGIN
            last := currval('dispatcherd.job_ids');
            SELECT concat_ws(' ', j.id::bigint, j.priority::int, (extract(epoch FROM j.run_at::timestamptz) * 1000000)::bigint, j.type::text)
                INTO news FROM dispatcherd.jobs_live j
                WHERE j.id = last AND j.status = 'pending' AND j.run_at <= now() AND NOT EXISTS (
                    SELECT FROM dispatcherd.jobs_live o WHERE o.id BETWEEN last - 16 AND last - 1 AND o.xmin = j.xmin);
        EXCEPTION WHEN object_not_in_prerequisite_state THEN
            NULL; -- the ids were given, so this session has taken none from the sequence
        END;
    END IF;
    PERFORM pg_notify('dispatcherd_jobs', coalesce(news, ''));
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.keep_partitions(final dispatcherd.status, ahead int, keep interval,
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

DROP TABLE dispatcherd.maintenance;
