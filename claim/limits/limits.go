package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/limit"
)

// ErrNotFound says that no limit has that key.
var ErrNotFound = errors.New("no such limit")

// ErrInvalid wraps the errors of values that no limit or key can have.
var ErrInvalid = errors.New("invalid value")

// ErrTooMany says that there is no room for a further limit.
var ErrTooMany = fmt.Errorf("there are %d limits, and no further one would apply: remove one, or use a prefix such as 'tenant:*' for many keys", MaxLimits)

// MaxListed bounds the limits of one List.
const MaxListed = 1000

// Limits provides the operations of users and operators on the table limits.
type Limits struct {
	DB claim.DB
}

// columns are the columns of contract.Limit, by name, of limit l.
const columns = `l.key, l.capacity, coalesce(l.rate, 0) AS rate, coalesce((extract(epoch FROM l.per) * 1000000000)::bigint, 0) AS per, l.scope, l.on_retry`

// List returns limits in the order of their keys, from the first one after a key. Without a limit of the page it
// returns MaxListed limits.
func (l Limits) List(ctx context.Context, after string, most int) ([]contract.Limit, error) {
	if most <= 0 || most > MaxListed {
		most = MaxListed
	}
	rows, _ := l.DB.Query(ctx, `SELECT `+columns+` FROM dispatcherd.limits l WHERE l.key > $1 ORDER BY l.key LIMIT $2`, after, most)
	return pgx.CollectRows(rows, pgx.RowToStructByName[contract.Limit])
}

// Get returns the limit with exactly that key, which may be a prefix and *.
func (l Limits) Get(ctx context.Context, key string) (contract.Limit, error) {
	rows, _ := l.DB.Query(ctx, `SELECT `+columns+` FROM dispatcherd.limits l WHERE l.key = $1`, key)
	found, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[contract.Limit])
	return found, named(key, err)
}

// named adds the key to an error.
func named(key string, err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		err = fmt.Errorf("limit %q: %w", key, err)
	}
	return err
}

// setSQL inserts a limit, or changes the one with its key. It inserts none beyond $7 limits; concurrent sessions may
// exceed this by one each.
const setSQL = `
INSERT INTO dispatcherd.limits (key, capacity, rate, per, scope, on_retry)
SELECT $1, $2::int, nullif($3::int, 0), nullif($4::bigint, 0) * interval '1 microsecond', $5::text, $6::text
WHERE EXISTS (SELECT FROM dispatcherd.limits WHERE key = $1) OR (SELECT count(*) FROM (SELECT FROM dispatcherd.limits LIMIT $7) l) < $7
ON CONFLICT (key) DO UPDATE SET (capacity, rate, per, scope, on_retry) = ROW (EXCLUDED.capacity, EXCLUDED.rate, EXCLUDED.per, EXCLUDED.scope, EXCLUDED.on_retry)
RETURNING xmax = 0`

// Set creates the limit, or replaces the limit of that key, and reports whether it was created. An empty Scope or
// OnRetry means the default.
func (l Limits) Set(ctx context.Context, v contract.Limit) (created bool, err error) {
	v.Scope, v.OnRetry = cmp.Or(v.Scope, contract.ClusterScope), cmp.Or(v.OnRetry, contract.PassOnRetry)
	if err := limit.Check(&v); err != nil {
		return false, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return l.set(ctx, &v, MaxLimits)
}

func (l Limits) set(ctx context.Context, v *contract.Limit, most int) (created bool, err error) {
	err = l.DB.QueryRow(ctx, setSQL, v.Key, v.Capacity, v.Rate, time.Duration(v.Per).Microseconds(), v.Scope, v.OnRetry, most).Scan(&created)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrTooMany
	}
	return created, named(v.Key, err)
}

// Remove deletes a limit. A shorter prefix applies then, or the default of one job at a time.
func (l Limits) Remove(ctx context.Context, key string) error {
	tag, err := l.DB.Exec(ctx, `DELETE FROM dispatcherd.limits WHERE key = $1`, key)
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrNotFound
	}
	return named(key, err)
}
