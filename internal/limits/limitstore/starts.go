package limitstore

import (
	"context"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// NotStarted is the time of cost that is admitted and has not started, as far as the table says.
const NotStarted = math.MaxInt64

// confirmSQL moves the admitted cost of the Starts $3 to the parts of the windows in which it started. Without a time it has not started,
// and will not. If the cost was not admitted as such, no record becomes smaller; because a former controller may have admitted it with
// another limit, the record may also be too small. A record of no cost expires.
const confirmSQL = `
WITH ` + role + `, item AS MATERIALIZED (
	SELECT s."Key" AS key, s."Dispatcher" AS dispatcher, s."Cost" AS cost, s."At" AS at, s."Unrecorded" AS unrecorded, t.*,
		date_bin(t.per / 64, t.started, timestamptz 'epoch') + t.per / 64 AS part
	FROM jsonb_to_recordset($3) AS s ("Key" text, "Dispatcher" int, "Cost" bigint, "Per" bigint, "At" bigint, "Unrecorded" boolean)
	CROSS JOIN LATERAL (SELECT s."Per" * interval '1 microsecond' AS per, timestamptz 'epoch' + s."At" * interval '1 microsecond' AS started) t
	WHERE EXISTS (SELECT FROM role)
), started AS (
	INSERT INTO dispatcherd.key_starts AS k (key, dispatcher, part, cost, expires, last)
	SELECT key, dispatcher, part, sum(cost), max(part + 2 * per + interval '1 min'), max(started)
	FROM item WHERE at > 0 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
	ON CONFLICT (key, dispatcher, part) DO UPDATE SET cost = k.cost + excluded.cost, last = greatest(k.last, excluded.last)
)
UPDATE dispatcherd.key_starts k SET cost = greatest(k.cost - i.cost, 0), expires = CASE WHEN k.cost > i.cost THEN k.expires ELSE now() END
FROM (SELECT key, dispatcher, sum(cost) AS cost FROM item WHERE NOT unrecorded GROUP BY 1, 2) i
WHERE k.key = i.key AND k.dispatcher = i.dispatcher AND k.part = 'infinity'`

// Confirm records when admitted cost has started. A start at 0 has not started, and will not.
func (c *Controller) Confirm(ctx context.Context, starts []permits.Start) error {
	_, err := c.Do.Exec(ctx, confirmSQL, c.Dispatcher, c.number, starts)
	return err
}

// Unstarted reads the keys with a rate to which cost is admitted that has not started, as far as the table says.
func (c *Controller) Unstarted(ctx context.Context) (keys []string, err error) {
	return claim.Collect(ctx, c.Do, pgx.RowTo[string], `SELECT key FROM dispatcherd.key_starts WHERE part = 'infinity' AND cost > 0`)
}

// Starts reads what was admitted to keys with a rate, and what has started. A key has up to 65 records for each dispatcher, so the keys of
// one statement should be few. Only the controller changes the records.
func (c *Controller) Starts(ctx context.Context, keys []string) (list []permits.Start, err error) {
	return claim.Collect(ctx, c.Do, pgx.RowToStructByNameLax[permits.Start], `SELECT key, dispatcher, cost,
			CASE WHEN part = 'infinity' THEN $1 ELSE (extract(epoch FROM last) * 1000000)::bigint END AS at,
			CASE WHEN part <> 'infinity' THEN (extract(epoch FROM clock_timestamp() - last) * 1000000)::bigint ELSE 0 END AS ago
		FROM dispatcherd.key_starts
		WHERE key = ANY ($2::text[]) AND expires > now() AND cost > 0 ORDER BY key, dispatcher, part`, int64(NotStarted), keys)
}

// expireMost bounds the records that one Expire deletes.
const expireMost = 10_000

// Expire deletes old records of starts, and reports whether there may be more.
func (c *Controller) Expire(ctx context.Context) (more bool, err error) {
	n, err := c.Do.Exec(ctx, `WITH `+role+`, old AS MATERIALIZED (
			SELECT ctid FROM dispatcherd.key_starts WHERE expires <= now() AND EXISTS (SELECT FROM role) ORDER BY expires
			LIMIT $3 FOR UPDATE SKIP LOCKED
		) DELETE FROM dispatcherd.key_starts k USING old WHERE k.ctid = old.ctid`, c.Dispatcher, c.number, expireMost)
	return n == expireMost, err
}
