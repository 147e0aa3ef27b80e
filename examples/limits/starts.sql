-- The largest number of jobs that started within one second.
SELECT max(n) FROM (
    SELECT count(*) OVER (ORDER BY started_at RANGE BETWEEN CURRENT ROW AND '999999 us' FOLLOWING) AS n FROM dispatcherd.jobs
) s;
