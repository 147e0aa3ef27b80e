-- Programs and schemas of different versions meet while daemons are replaced one
-- after the other, and when the older program is brought back.

-- +goose Up

-- The lowest schema version that a program may be made for to use this one. Every
-- later migration says it anew: its own version if older programs would go wrong,
-- what holds already if they would not; and its Down restores what held.
CREATE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 6::bigint';

-- +goose Down

DROP FUNCTION dispatcherd.compatible_from();
