-- Retention: the partitions of ended jobs. Dispatchers decide which of them to create and to drop (claim/retention.go), but only the
-- owner of the tables may do that. Both functions wait for a lock at most 250 ms: what they create or drop stays locked until the
-- transaction ends, and so do the rest and, after a drop, the partitioned table of the status, into which dispatchers move ended jobs.

-- Creates the partition of a final status for the days from day on and before until. CREATE ... PARTITION OF would lock the whole status;
-- ATTACH does not.
CREATE FUNCTION dispatcherd.create_partition(final dispatcherd.status, day date, until date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET lock_timeout = '250ms' SET timezone = 'UTC' AS $$
DECLARE
    parent    text := 'jobs_' || final;
    partition text := parent || to_char(day, '_YYYYMMDD');
BEGIN
    EXECUTE format('CREATE TABLE dispatcherd.%I (LIKE dispatcherd.%I INCLUDING DEFAULTS)', partition, parent);
    EXECUTE format('ALTER TABLE dispatcherd.%I REPLICA IDENTITY FULL', partition);
    EXECUTE format('ALTER TABLE dispatcherd.%I ATTACH PARTITION dispatcherd.%I FOR VALUES FROM (%L) TO (%L)',
        parent, partition, day::timestamptz, until::timestamptz);
END $$;

-- Drops the partition of a final status that begins with a day, unless another dispatcher has done so.
CREATE FUNCTION dispatcherd.drop_partition(final dispatcherd.status, day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '250ms' AS $$
BEGIN
    EXECUTE format('DROP TABLE IF EXISTS dispatcherd.%I', 'jobs_' || final || to_char(day, '_YYYYMMDD'));
END $$;

SELECT dispatcherd.create_partition(s::dispatcherd.status, t.day + i, t.day + i + 1)
FROM unnest('{done,failed,cancelled}'::text[]) s, generate_series(0, 3) i, (SELECT (now() AT TIME ZONE 'UTC')::date AS day) t;
