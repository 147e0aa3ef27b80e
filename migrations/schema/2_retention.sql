-- Retention: the daily partitions of ended jobs.

-- A call of maintain_partitions locks the row of its status, so that two calls do not maintain the same status at once. An advisory lock
-- would not do: every session could take it, and so stop retention. No role has a right to this table, so only the owner can lock its rows.
CREATE TABLE dispatcherd.maintenance (status dispatcherd.status PRIMARY KEY);
INSERT INTO dispatcherd.maintenance VALUES ('done'), ('failed'), ('cancelled');
COMMENT ON TABLE dispatcherd.maintenance IS 'Each row is the lock of the maintenance of the daily partitions of one status.';

-- Maintains the partitions of one final status. Dispatchers call it at their start and every hour. It is in SQL because only the owner of
-- the tables may create and drop partitions, and dispatchers are not the owner. It
-- 1. deletes the rows of the rest that ended more than `keep` ago, at most 10,000 of them. If Postgres refuses to delete a part of them, it
-- halves the part, until it has found the row that is the cause, and leaves out this row;
-- 2. creates the daily partitions of today and of the next `ahead` days;
-- 3. drops the oldest daily partition, if all of its rows ended more than `keep` ago.
-- What it creates or drops stays locked until the transaction ends, and so do the rest and, after a drop, the partitioned table of the
-- status, into which dispatchers move ended jobs. So it waits for each lock at most 250 ms, leaves out what is locked, and drops one
-- partition per call, as its last step.
--   made, dropped  number of partitions created and dropped
--   blocked        number of partitions that it left out, because they were locked, or because the rest contains rows of their day
--   more           it has dropped a partition, or deleted as many rows as it may: call it again at once
--   refused        ids of the first hundred rows of the rest that Postgres refuses to delete
--   busy           another call maintains the status; this one did nothing
CREATE FUNCTION dispatcherd.maintain_partitions(final dispatcherd.status, ahead int, keep interval,
    OUT made int, OUT dropped int, OUT blocked int, OUT more boolean, OUT refused bigint[], OUT busy boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET lock_timeout = '250ms' SET timezone = 'UTC' AS $$
DECLARE
    most      constant int := 10000;
    parent    text := 'jobs_' || final;
    rest      text := parent || '_rest';
    expired   tid[] := '{}'; -- rows of the rest
    deleted   int := 0;
    next      int := 1; -- the part of expired that is deleted next
    size      int := most;
    part      tid[];
    bad       bigint;
    partition text;
    day       date;
BEGIN
    made := 0; dropped := 0; blocked := 0; more := false; refused := '{}'; busy := false;
    IF final NOT IN ('done', 'failed', 'cancelled') THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('status %s has no daily partitions; use done, failed or cancelled', final);
    END IF;
    INSERT INTO dispatcherd.maintenance VALUES (final) ON CONFLICT DO NOTHING; -- a restore or TRUNCATE may have removed it
    IF NOT EXISTS (SELECT FROM dispatcherd.maintenance m WHERE m.status = final FOR UPDATE SKIP LOCKED) THEN
        busy := true;
        RETURN;
    END IF;

    BEGIN
        EXECUTE format(
            'SELECT ARRAY (
                SELECT ctid FROM dispatcherd.%I
                WHERE coalesce(finished_at, ''-infinity'') < now() - $1
                ORDER BY coalesce(finished_at, ''-infinity'') LIMIT $2 FOR UPDATE SKIP LOCKED)',
            rest) INTO expired USING keep, most;
    EXCEPTION WHEN lock_not_available THEN
        blocked := 1;
    END;
    WHILE next <= cardinality(expired) LOOP
        part := expired[next:next + size - 1];
        BEGIN
            EXECUTE format('DELETE FROM dispatcherd.%I WHERE ctid = ANY ($1)', rest) USING part;
            deleted := deleted + cardinality(part);
            next := next + size;
            size := size * 2;
        EXCEPTION
            WHEN lock_not_available THEN
                blocked := 1;
                EXIT;
            WHEN OTHERS THEN
                IF left(SQLSTATE, 2) IN ('40', '53', '55', '57') THEN
                    RAISE; -- not because of a row
                END IF;
                IF cardinality(part) = 1 THEN
                    EXECUTE format('SELECT id FROM dispatcherd.%I WHERE ctid = $1', rest) INTO bad USING part[1];
                    IF cardinality(refused) < 100 THEN
                        refused := refused || bad;
                    END IF;
                    next := next + 1;
                END IF;
                size := greatest(cardinality(part) / 2, 1);
        END;
    END LOOP;

    FOR day IN SELECT current_date + i FROM generate_series(0, least(ahead, 366)) i LOOP
        partition := parent || to_char(day, '_YYYYMMDD');
        CONTINUE WHEN to_regclass('dispatcherd.' || partition) IS NOT NULL;
        BEGIN -- CREATE … PARTITION OF would lock the whole status; ATTACH does not
            EXECUTE format('CREATE TABLE dispatcherd.%I (LIKE dispatcherd.%I INCLUDING DEFAULTS)', partition, parent);
            EXECUTE format('ALTER TABLE dispatcherd.%I REPLICA IDENTITY FULL', partition);
            EXECUTE format('ALTER TABLE dispatcherd.%I ATTACH PARTITION dispatcherd.%I FOR VALUES FROM (%L) TO (%L)',
                parent, partition, day::timestamptz, (day + 1)::timestamptz);
            made := made + 1;
        EXCEPTION WHEN lock_not_available OR check_violation THEN
            blocked := blocked + 1; -- locked, or rows of that day are in the rest already: they stay there
        END;
    END LOOP;

    FOR partition, day IN
        SELECT c.relname, to_date(right(c.relname, 8), 'YYYYMMDD')
        FROM pg_inherits i
        JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = ('dispatcherd.' || parent)::regclass AND c.relname ~ '_[0-9]{8}$'
        ORDER BY 2
    LOOP
        EXIT WHEN (day + 1)::timestamptz >= now() - keep OR dropped > 0;
        BEGIN
            EXECUTE format('DROP TABLE dispatcherd.%I', partition);
            dropped := dropped + 1;
        EXCEPTION WHEN lock_not_available THEN
            blocked := blocked + 1;
        END;
    END LOOP;
    more := dropped > 0 OR deleted > 0 AND cardinality(expired) = most;
END $$;

SELECT dispatcherd.maintain_partitions(s::dispatcherd.status, 3, interval '100 years') FROM unnest('{done,failed,cancelled}'::text[]) s;
