package backend

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// Calls shares the connections of a pool among the users of the contexts with which they are acquired. A user may use all
// connections but two at the same time. Statements can wait for a lock that the user itself holds, for example by an upload that it
// does not end. So two connections remain for other users: one for their calls, and one for an upload. The dispatcher's own
// statements, whose contexts have no user, need no place.
type Calls struct{ *quota.Places }

// Share returns the calls of a pool that is created with a configuration, and adds them to the configuration.
func Share(config *pgxpool.Config) Calls {
	c := Calls{quota.NewPlaces(int(config.MaxConns) - 2)}
	config.ConnConfig.Tracer = &multitracer.Tracer{
		PoolAcquireTracers: []pgxpool.AcquireTracer{c}, PoolReleaseTracers: []pgxpool.ReleaseTracer{c},
	}
	return c
}

// refusedContext is the context of a call that waited too long for the other calls of its user.
type refusedContext struct{ context.Context }

// Err returns what the call returns, because the pool gives no connection to a context that is done.
func (refusedContext) Err() error { return httpapi.ErrTooManyCalls }

// waitedKey is the key of a *time.Duration in the context of a call: how long it has waited for places.
type waitedKey struct{}

// placeKey is the key of a place, in the context that acquires a connection. The connection has it under the name place.
type placeKey struct{}

const place = "place"

// TraceAcquireStart waits until the user of ctx may use a connection. If there is none in time, the pool refuses the context that
// it returns.
func (c Calls) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	if !quota.HasUser(ctx) {
		return ctx
	}
	began := time.Now()
	leave, err := c.Enter(ctx, quota.UserOf(ctx))
	if waited, ok := ctx.Value(waitedKey{}).(*time.Duration); ok {
		*waited += time.Since(began)
	}
	switch {
	case err == nil:
		return context.WithValue(ctx, placeKey{}, leave)
	case errors.Is(err, context.DeadlineExceeded):
		return refusedContext{ctx}
	}
	return ctx
}

// TraceAcquireEnd notes the place at its connection.
func (c Calls) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, data pgxpool.TraceAcquireEndData) {
	leave, ok := ctx.Value(placeKey{}).(func())
	switch {
	case !ok:
	case data.Err != nil:
		leave()
	default:
		data.Conn.PgConn().CustomData()[place] = leave
	}
}

// TraceRelease gives the place of a connection back.
func (c Calls) TraceRelease(_ *pgxpool.Pool, data pgxpool.TraceReleaseData) {
	custom := data.Conn.PgConn().CustomData()
	if leave, ok := custom[place].(func()); ok {
		delete(custom, place)
		leave()
	}
}
