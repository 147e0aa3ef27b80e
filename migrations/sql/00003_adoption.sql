-- Workers survive their dispatcher. docs/storage.md gives the reasons.

-- +goose Up

-- Adding columns without a value or with a constant one rewrites nothing.
ALTER TABLE dispatcherd.claims ADD COLUMN sessions bigint[];
ALTER TABLE dispatcherd.claims ALTER COLUMN sessions SET STORAGE EXTERNAL;
COMMENT ON COLUMN dispatcherd.claims.sessions IS 'For each of ids the mark of the session that it is for: who presents the job must know the nonce behind it.';

ALTER TABLE dispatcherd.dispatchers ADD COLUMN leaving boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN dispatcherd.dispatchers.leaving IS 'It has stopped in good order: until its lease is over its jobs wait for their workers; what is left then did not crash.';

-- +goose Down

ALTER TABLE dispatcherd.dispatchers DROP COLUMN leaving;
ALTER TABLE dispatcherd.claims DROP COLUMN sessions;
