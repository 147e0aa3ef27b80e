-- All jobs together call the bank at most five times per second. A key without a limit admits one job
-- at a time: the jobs of an account run one after the other.
INSERT INTO dispatcherd.limits (key, capacity, rate, per) VALUES ('bank', NULL, 5, '1 second');
INSERT INTO dispatcherd.jobs (type, payload, keys)
    SELECT 'deposit', jsonb_build_object('account', n % 3), format('account:%s bank', n % 3) FROM generate_series(1, 12) n
    RETURNING id;
