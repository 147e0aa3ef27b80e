-- A claim forgets notes of earlier ones by their tokens. Where the dispatcher came
-- first in the index, the tokens were looked for among all of its entries, and while
-- somebody holds a snapshot those of forgotten notes stay: each claim read more.

-- +goose Up

ALTER TABLE dispatcherd.claims DROP CONSTRAINT claims_pkey, ADD CONSTRAINT claims_pkey PRIMARY KEY (token, dispatcher);

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

ALTER TABLE dispatcherd.claims DROP CONSTRAINT claims_pkey, ADD CONSTRAINT claims_pkey PRIMARY KEY (dispatcher, token);
