package limitstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// ErrNotFound says that no limit has that key.
var ErrNotFound = rest.NotFound.Refuses("no such limit: 'dispatcherd limit list' shows all limits")

// ErrEdited says that a limit does not have the version that an edit expects.
var ErrEdited = rest.Conflict.Refuses("it was created, edited or removed after it was read: read it again and repeat the change")

// ErrInvalid wraps the errors of values that no limit or key can have.
var ErrInvalid = rest.InvalidRequest.Refuses("invalid value")

// ErrTooMany says that there is no room for a further limit.
var ErrTooMany = rest.Conflict.Refuses(fmt.Sprintf(
	"there are %d limits, and no further one would apply: remove one, or use a prefix such as 'tenant:*' for many keys",
	MaxLimits,
))

// Limits provides the operations of users and operators on the table limits.
type Limits struct {
	DB claim.DB
}

// columns are the columns of contract.Limit, by name, of limit l.
const columns = `l.key, l.capacity, coalesce(l.rate, 0) AS rate,
	coalesce((extract(epoch FROM l.per) * 1000000000)::bigint, 0) AS per, l.scope, l.on_retry, ` + version + ` AS version`

// version is the version of limit l: a hash of its columns of 53 bits, so that every JSON parser keeps it.
const version = `(hashtextextended(concat_ws(' ', coalesce(l.capacity, -1), coalesce(l.rate, 0),
	coalesce((extract(epoch FROM l.per) * 1000000)::bigint, 0), l.scope, l.on_retry), 0)
	& 9007199254740991 | 1)`

// List returns limits whose keys begin with a prefix, in the order of their keys, from the first one after a key.
func (l Limits) List(ctx context.Context, prefix, after string, most int) ([]contract.Limit, error) {
	return claim.List[contract.Limit](ctx, l.DB, `SELECT `+columns+` FROM dispatcherd.limits l
		WHERE l.key > $1 AND starts_with(l.key, $2) ORDER BY l.key LIMIT $3`, after, prefix, most)
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

// settable are the columns that Set writes besides the key, and their values.
const (
	settable  = `capacity, rate, per, scope, on_retry`
	setValues = `$2::int, nullif($3::int, 0), nullif($4::bigint, 0) * interval '1 microsecond', $5::text, $6::text`
)

// setSQL inserts a limit, or changes the one with its key if $7 permits it. It inserts none beyond $8 limits; concurrent
// sessions may exceed this by one each. editSQL changes the limit if it has version $7.
const (
	setSQL = `
INSERT INTO dispatcherd.limits (key, ` + settable + `) SELECT $1, ` + setValues + `
WHERE EXISTS (SELECT FROM dispatcherd.limits WHERE key = $1)
	OR (SELECT count(*) FROM (SELECT FROM dispatcherd.limits LIMIT $8::bigint) l) < $8
ON CONFLICT (key) DO UPDATE SET (` + settable + `) = ROW (` + setValues + `) WHERE $7::bigint = 0
RETURNING xmax = 0`
	editSQL = `UPDATE dispatcherd.limits l SET (` + settable + `) = ROW (` + setValues + `)
		WHERE key = $1 AND ` + version + ` = $7::bigint RETURNING false`
)

// Set creates the limit, or replaces the limit of that key, and reports whether it was created. An empty Scope or
// OnRetry means the default. It changes nothing and returns ErrEdited unless the limit has the version of v.
func (l Limits) Set(ctx context.Context, v contract.Limit) (created bool, err error) {
	v.Scope, v.OnRetry = cmp.Or(v.Scope, contract.ClusterScope), cmp.Or(v.OnRetry, contract.PassOnRetry)
	if err := contract.CheckLimit(&v); err != nil {
		return false, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return l.set(ctx, &v, MaxLimits)
}

func (l Limits) set(ctx context.Context, v *contract.Limit, most int) (created bool, err error) {
	sql, args := editSQL, []any{v.Key, v.Capacity, v.Rate, time.Duration(v.Per).Microseconds(), v.Scope, v.OnRetry, v.Version}
	if v.Version <= 0 {
		sql, args = setSQL, append(args, most)
	}
	err = l.DB.QueryRow(ctx, sql, args...).Scan(&created)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrEdited
		if _, missing := l.Get(ctx, v.Key); v.Version <= 0 && errors.Is(missing, ErrNotFound) {
			err = ErrTooMany
		}
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
