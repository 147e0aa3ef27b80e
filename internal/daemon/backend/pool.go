package backend

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// Pool are the connections for callers. It implements claim.DB. The user of each context may use all connections but two at the
// same time. Statements can wait for a lock that the user itself holds, for example by an upload that it does not end. So two
// connections remain for other users: one for their calls, and one for an upload.
type Pool struct {
	pool  *pgxpool.Pool
	Calls *quota.Places // of each user
}

// NewPool returns the connections of a pool.
func NewPool(pool *pgxpool.Pool) *Pool {
	return &Pool{pool: pool, Calls: quota.NewPlaces(int(pool.Config().MaxConns) - 2)}
}

// refusedContext is the context of a call that waited too long for the other calls of its user.
type refusedContext struct{ context.Context }

// Err returns what the call returns, because the pool gives no connection to a context that is done.
func (refusedContext) Err() error { return httpapi.ErrTooManyCalls }

// waitedKey is the key of a *time.Duration in the context of a call: how long it has waited for places.
type waitedKey struct{}

// enter waits until the user of ctx may use a connection. leave must be called when it does so no longer, at least once. If
// there is none in time, the pool refuses the context that enter returns.
func (p *Pool) enter(ctx context.Context) (_ context.Context, leave func()) {
	began := time.Now()
	leave, err := p.Calls.Enter(ctx, quota.UserOf(ctx))
	if waited, ok := ctx.Value(waitedKey{}).(*time.Duration); ok {
		*waited += time.Since(began)
	}
	switch {
	case err == nil:
		return ctx, sync.OnceFunc(leave)
	case errors.Is(err, context.DeadlineExceeded):
		ctx = refusedContext{ctx}
	}
	return ctx, func() {}
}

// Begin implements claim.DB.
func (p *Pool) Begin(ctx context.Context) (pgx.Tx, error) {
	ctx, leave := p.enter(ctx)
	tx, err := p.pool.Begin(ctx)
	if err != nil {
		leave()
		return nil, err
	}
	return &pooledTx{tx, leave}, nil
}

// CopyFrom implements claim.DB.
func (p *Pool) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	ctx, leave := p.enter(ctx)
	defer leave()
	return p.pool.CopyFrom(ctx, table, columns, src)
}

// Exec implements claim.DB.
func (p *Pool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	ctx, leave := p.enter(ctx)
	defer leave()
	return p.pool.Exec(ctx, sql, args...)
}

// Query implements claim.DB.
func (p *Pool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	ctx, leave := p.enter(ctx)
	rows, err := p.pool.Query(ctx, sql, args...)
	if err != nil {
		leave()
	}
	return &pooledRows{rows, leave}, err
}

// QueryRow implements claim.DB.
func (p *Pool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	ctx, leave := p.enter(ctx)
	return &pooledRow{p.pool.QueryRow(ctx, sql, args...), leave}
}

// pooledTx gives its place back at its end.
type pooledTx struct {
	pgx.Tx

	leave func()
}

// Commit implements pgx.Tx.
func (t *pooledTx) Commit(ctx context.Context) error {
	defer t.leave()
	return t.Tx.Commit(ctx)
}

// Rollback implements pgx.Tx.
func (t *pooledTx) Rollback(ctx context.Context) error {
	defer t.leave()
	return t.Tx.Rollback(ctx)
}

// pooledRows gives its place back after the last row.
type pooledRows struct {
	pgx.Rows

	leave func()
}

// Close implements pgx.Rows.
func (r *pooledRows) Close() {
	r.Rows.Close()
	r.leave()
}

// Next implements pgx.Rows.
func (r *pooledRows) Next() bool {
	more := r.Rows.Next()
	if !more {
		r.leave()
	}
	return more
}

// pooledRow gives its place back after its Scan.
type pooledRow struct {
	pgx.Row

	leave func()
}

// Scan implements pgx.Row.
func (r *pooledRow) Scan(dest ...any) error {
	defer r.leave()
	return r.Row.Scan(dest...)
}
