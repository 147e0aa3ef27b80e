-- Retention: the daily partitions of ended jobs.

-- A call of maintain_partitions locks the row of its status. No role has a right to this table, so only the owner can lock its rows.
-- Every session could take an advisory lock, and so stop retention.
CREATE TABLE dispatcherd.maintenance (status dispatcherd.status PRIMARY KEY);
INSERT INTO dispatcherd.maintenance VALUES ('done'), ('failed'), ('cancelled');
COMMENT ON TABLE dispatcherd.maintenance IS 'Each row is the lock of the maintenance of the daily partitions of one status.';

-- Creates the daily partitions of a final status for today and the next `ahead` days, deletes rows of its rest that ended more than
-- `keep` ago, and drops the oldest daily partition whose last row did. Dispatchers call it every hour; it is in SQL because
-- they do not own the tables. It holds the locks of what it drops, and of the tables above, until its transaction ends. So it waits
-- for a lock at most 250 ms, leaves out what is locked, drops one partition per call, and deletes at most 10,000 rows.
--
-- If a part of the rest cannot be deleted because of one of its rows, the part is halved, so that such rows do not stop the others.
--   made, dropped  number of partitions created and dropped
--   blocked        number of partitions that it left out because of a lock, or, while it creates them, because of their rows in the rest
--   more           call again at once: it has dropped a partition, or deleted as many rows as it may
--   refused        ids of the first hundred rows of the rest that cannot be deleted
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
