package limitstore

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/claim"
)

// Start is cost of a key with a rate.
type Start struct {
	Key        string
	Dispatcher int32 // 0 = any
	Cost       int64
	Per        int64 // microseconds, of the limit
	At         int64 // microseconds: when it started, or the last part of it; NotStarted = it is admitted
	Ago        int64 // microseconds since At; only of Starts
	Unrecorded bool  // no Admit has recorded the cost: the key had no such rate; only of Confirm
}

// NotStarted is the time of cost that is admitted and has not started, as far as the table says.
const NotStarted = math.MaxInt64

// confirmSQL moves admitted cost of keys $3 and dispatchers $4 to the parts of the windows in which it started: $5 costs,
// $6 lengths of windows, $7 times. Without a time it has not started, and will not. $8 says that the cost was not admitted as
// such; because a former controller may have admitted it with another limit, the record may also be too small. A record of no cost expires.
const confirmSQL = `
WITH ` + role + `, item AS MATERIALIZED (
	SELECT s.*, date_bin(s.per / 64, t.started, timestamptz 'epoch') + s.per / 64 AS part, t.started
	FROM unnest($3::text[], $4::int[], $5::bigint[], $6::interval[], $7::bigint[], $8::boolean[])
		AS s (key, dispatcher, cost, per, at, unrecorded)
	CROSS JOIN LATERAL (SELECT timestamptz 'epoch' + s.at * interval '1 microsecond' AS started) t
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
func (c *Controller) Confirm(ctx context.Context, starts []Start) error {
	n := len(starts)
	keys, dispatchers, costs, pers, at := make([]string, n), make([]int32, n), make([]int64, n), make([]time.Duration, n), make([]int64, n)
	unrecorded := make([]bool, n)
	for i, s := range starts {
		keys[i], dispatchers[i], costs[i], pers[i], at[i], unrecorded[i] = s.Key, s.Dispatcher, s.Cost, time.Duration(
			s.Per,
		)*time.Microsecond, s.At, s.Unrecorded
	}
	return c.Do(ctx, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		_, err := conn.Exec(ctx, confirmSQL, c.Dispatcher, c.number, keys, dispatchers, costs, pers, at, unrecorded)
		return n, err
	})
}

// Unstarted reads the keys with a rate to which cost is admitted that has not started, as far as the table says.
func (c *Controller) Unstarted(ctx context.Context) (keys []string, err error) {
	return claim.Collect(ctx, c.Do, pgx.RowTo[string], `SELECT key FROM dispatcherd.key_starts WHERE part = 'infinity' AND cost > 0`)
}

// Starts reads what was admitted to keys with a rate, and what has started. A key has up to 65 records for each dispatcher, so the keys of
// one statement should be few. Only the controller changes the records.
func (c *Controller) Starts(ctx context.Context, keys []string) (list []Start, err error) {
	return claim.Collect(ctx, c.Do, func(row pgx.CollectableRow) (s Start, err error) {
		return s, row.Scan(&s.Key, &s.Dispatcher, &s.At, &s.Cost, &s.Ago)
	}, `SELECT key, dispatcher, CASE WHEN part = 'infinity' THEN $1 ELSE `+micros("last")+` END, cost,
				CASE WHEN part <> 'infinity' THEN `+micros("clock_timestamp() - last")+` ELSE 0 END FROM dispatcherd.key_starts
			WHERE key = ANY ($2::text[]) AND expires > now() AND cost > 0 ORDER BY key, dispatcher, part`, int64(NotStarted), keys)
}

// expireMost bounds the records that one Expire deletes.
const expireMost = 10_000

// Expire deletes old records of starts, and reports whether there may be more.
func (c *Controller) Expire(ctx context.Context) (more bool, err error) {
	err = c.Do(ctx, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		tag, err := conn.Exec(ctx, `WITH `+role+`, old AS MATERIALIZED (
				SELECT ctid FROM dispatcherd.key_starts WHERE expires <= now() AND EXISTS (SELECT FROM role) ORDER BY expires
				LIMIT $3 FOR UPDATE SKIP LOCKED
			) DELETE FROM dispatcherd.key_starts k USING old WHERE k.ctid = old.ctid`, c.Dispatcher, c.number, expireMost)
		more = tag.RowsAffected() == expireMost
		return int(tag.RowsAffected()), err
	})
	return more, err
}
