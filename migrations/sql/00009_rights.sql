-- Retention holds up nobody, and operators end jobs through functions alone.
-- docs/storage.md and docs/security.md give the reasons.

-- +goose Up

-- As before, and: it deletes from the rest first, and at most 10,000 rows of it that
-- nobody has locked, since it holds what it drops, and the tables above, until its
-- transaction ends; for the same reason it drops one leaf a call. Whoever gets
-- dropped = 1 calls again.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.keep_leaves(final dispatcherd.status, ahead int, keep interval,
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

-- Cancels a pending job and returns whether it was one. Dispatchers that have read it
-- as a candidate lose the claim.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.cancel_pending(job bigint) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
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

-- Moves failed and cancelled jobs back into the hot table through the parent, whose
-- trigger rings, and returns how many. The attempt is kept because it only grows;
-- errors are kept because they are the evidence.
-- +goose StatementBegin
CREATE FUNCTION dispatcherd.retry_jobs(ids bigint[]) RETURNS int LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n int;
BEGIN
    WITH gone AS (
        DELETE FROM dispatcherd.jobs j WHERE j.id = ANY (ids) AND j.status IN ('failed', 'cancelled') RETURNING *
    )
    INSERT INTO dispatcherd.jobs (id, created_at, attempt, timeout_ms, priority, max_attempts, type, payload, errors)
    SELECT id, created_at, attempt, timeout_ms, priority, max_attempts, type, payload, errors FROM gone;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION dispatcherd.cancel_pending, dispatcherd.retry_jobs FROM PUBLIC;

-- Who may call a function is said of each, for databases in which nobody may call
-- anything that is not granted.
-- +goose StatementBegin
DO $$
DECLARE
    r text;
BEGIN
    FOR r IN SELECT rolname FROM pg_roles WHERE rolname IN ('dispatcherd_producer', 'dispatcherd_reader', 'dispatcherd_operator', 'dispatcherd_dispatcher') LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION dispatcherd.compatible_from TO %I', r);
        CONTINUE WHEN r NOT IN ('dispatcherd_operator', 'dispatcherd_dispatcher');
        EXECUTE format('GRANT EXECUTE ON FUNCTION dispatcherd.cancel_pending, dispatcherd.retry_jobs TO %I', r);
        CONTINUE WHEN r <> 'dispatcherd_operator'; -- a running job is its dispatcher's to end
        EXECUTE format('REVOKE DELETE ON dispatcherd.jobs, dispatcherd.jobs_live, dispatcherd.jobs_cancelled FROM %I', r);
        EXECUTE format('REVOKE INSERT ON dispatcherd.jobs, dispatcherd.jobs_live, dispatcherd.jobs_cancelled FROM %I', r);
        EXECUTE format('GRANT INSERT (type, payload, priority, run_at, max_attempts, timeout_ms) ON dispatcherd.jobs TO %I', r);
    END LOOP;
END $$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

-- +goose StatementBegin
DO $$
DECLARE
    r text;
BEGIN
    FOR r IN SELECT rolname FROM pg_roles WHERE rolname IN ('dispatcherd_producer', 'dispatcherd_reader', 'dispatcherd_operator', 'dispatcherd_dispatcher') LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION dispatcherd.compatible_from FROM %I', r);
        CONTINUE WHEN r <> 'dispatcherd_operator';
        EXECUTE format('GRANT INSERT, DELETE ON dispatcherd.jobs, dispatcherd.jobs_live, dispatcherd.jobs_cancelled TO %I', r);
    END LOOP;
END $$;
-- +goose StatementEnd
DROP FUNCTION dispatcherd.cancel_pending, dispatcherd.retry_jobs;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION dispatcherd.keep_leaves(final dispatcherd.status, ahead int, keep interval,
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
        EXIT WHEN (day + 1)::timestamptz >= now() - keep;
        BEGIN
            EXECUTE format('DROP TABLE dispatcherd.%I', leaf);
            dropped := dropped + 1;
        EXCEPTION WHEN lock_not_available THEN
            blocked := blocked + 1;
        END;
    END LOOP;
    EXECUTE format('DELETE FROM dispatcherd.%I WHERE finished_at < now() - $1 OR finished_at IS NULL', root || '_rest') USING keep;
END $$;
-- +goose StatementEnd
CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';
