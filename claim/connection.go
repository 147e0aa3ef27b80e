package claim

import (
	"context"
	"errors"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/jackc/pgx/v5"
)

// probePause is the time between two attempts to connect. The short pause lets work
// continue soon after Postgres returns. Calls in the pause fail at once with the error of
// the last attempt, so they do not wait.
const probePause = 50 * time.Millisecond

// idleTrusted is how long a connection may be idle and still be used without a ping.
// After a longer time Postgres may have been restarted, and a statement on a dead
// connection has an unknown outcome.
const idleTrusted = 20 * time.Second

var errClosed = errors.New("the store is closed")

// A connection executes one kind of statement. Calls take turns. The holder of
// the turn owns every other field.
type connection struct {
	config     *pgx.ConnConfig
	timeout    time.Duration
	observer   Observer
	statements statements // prepared on every new connection
	setup      string     // run on every new connection, may be empty

	turn    chan struct{} // holds one token
	conn    *pgx.Conn
	used    time.Time     // when conn was last used
	trusted time.Duration // how long it may be idle and be used without a ping
	closed  bool
	failed  error     // of the last attempt to connect, nil after a success
	retryAt time.Time // no attempt to connect before then
}

// connections execute statements of one kind at the same time, one statement each. A
// call uses the first free connection. So a dispatcher that sends one statement at a
// time establishes only one connection.
type connections []*connection

// newConnections returns n connections with the settings of base, which Config.connConfig returns.
func newConnections(c Config, base *pgx.ConnConfig, purpose string, n int, setup string, statements statements) (list connections) {
	config := base.Copy()
	config.RuntimeParams["application_name"] = c.applicationName(purpose)
	for range n {
		l := &connection{config: config, timeout: c.Timeout, observer: c.Observer, statements: statements, setup: setup,
			trusted: idleTrusted, turn: make(chan struct{}, 1)}
		l.turn <- struct{}{}
		list = append(list, l)
	}
	return list
}

// Session is the connection that one call uses, and at the same time the context of this call. So it is passed where either is needed.
type Session struct {
	context.Context
	*pgx.Conn
}

// Connection runs f with a connection to Postgres. f returns of how many rows it was.
type Connection func(ctx context.Context, f func(Session) (int, error)) error

// of returns a function that executes operations of one kind.
func (list connections) of(op Operation) Connection {
	return func(ctx context.Context, f func(Session) (int, error)) error {
		return list.do(ctx, op, f)
	}
}

// do runs f with one of the connections and reports it. The wait for the connection and f
// each have their own deadline, of the same length. An error from before f is a
// notSentError. f returns how many jobs it was about.
func (list connections) do(ctx context.Context, op Operation, f func(Session) (int, error)) error {
	start := time.Now()
	rows, err := list.run(ctx, f)
	list[0].observer.Statement(Report{Operation: op, Took: time.Since(start), Rows: rows, Verdict: verdictOf(err), Err: err})
	return err
}

func (list connections) run(ctx context.Context, f func(Session) (int, error)) (int, error) {
	waiting, cancel := context.WithTimeout(ctx, list[0].timeout)
	defer cancel()
	l, err := list.take(waiting)
	if err != nil {
		return 0, notSentError{err}
	}
	defer func() { l.turn <- struct{}{} }()
	if err := l.connect(waiting); err != nil {
		return 0, notSentError{err}
	}
	return l.run(ctx, f)
}

// take takes the turn of the first free connection. If none is free, it waits for the
// first one of the list. The daemon never sends more statements than there are
// connections.
func (list connections) take(ctx context.Context) (*connection, error) {
	for _, l := range list {
		select {
		case <-l.turn:
			return l, nil
		default:
		}
	}
	select {
	case <-list[0].turn:
		return list[0], nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run is called by the holder of the turn, with a connection.
func (l *connection) run(ctx context.Context, f func(Session) (int, error)) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, notSentError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	rows, err := f(Session{ctx, l.conn})
	l.used = time.Now()
	if l.conn.IsClosed() || (err != nil && verdictOf(err) != contract.Refused) {
		l.drop() // the state of the connection is unknown
	}
	return rows, err
}

// connect ensures that there is a connection. It tries once. Within probePause of a
// failure it returns the same error without a try.
func (l *connection) connect(ctx context.Context) error {
	if l.closed {
		return errClosed
	}
	if l.conn != nil && !l.conn.IsClosed() && (time.Since(l.used) < l.trusted || l.conn.Ping(ctx) == nil) &&
		dsn.CheckWrites(ctx, l.conn) == nil {
		return nil
	}
	l.drop()
	start := time.Now()
	if l.failed != nil && start.Before(l.retryAt) {
		return l.failed
	}
	conn, err := l.dial(ctx)
	if err != nil {
		if ctx.Err() == nil { // otherwise the caller gave up, which says nothing about Postgres
			l.failed, l.retryAt = err, time.Now().Add(probePause)
		}
		l.observer.Statement(Report{Operation: OpConnect, Took: time.Since(start), Verdict: contract.Refused, Err: err})
		return err
	}
	l.conn, l.failed = conn, nil
	l.used = time.Now()
	return nil
}

// Exec executes a statement and returns the number of its rows.
func (do Connection) Exec(ctx context.Context, sql string, args ...any) (n int, err error) {
	err = do(ctx, func(c Session) (int, error) {
		tag, err := c.Exec(c, sql, args...)
		n = int(tag.RowsAffected())
		return n, err
	})
	return n, err
}

// Scan reads the only row of a statement into variables.
func (do Connection) Scan(ctx context.Context, sql string, args []any, into ...any) error {
	return do(ctx, func(c Session) (int, error) {
		return 0, c.QueryRow(c, sql, args...).Scan(into...)
	})
}

// Collect reads rows with one statement.
func Collect[T any](ctx context.Context, do Connection, row pgx.RowToFunc[T], sql string, args ...any) (list []T, err error) {
	err = do(ctx, func(c Session) (int, error) {
		list, err = Rows(c, c, row, sql, args...)
		return len(list), err
	})
	return list, err
}

// dial connects and prepares the statements. Without statements there is no error of a missing schema.
func (l *connection) dial(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, l.config)
	if err != nil {
		return nil, err
	}
	if l.setup != "" {
		_, err = conn.Exec(ctx, l.setup)
	}
	for i := 0; i < len(l.statements) && err == nil; i++ {
		_, err = conn.Prepare(ctx, l.statements[i].name, l.statements[i].sql)
	}
	if err != nil {
		hangUp(conn)
	}
	return conn, err
}

func (l *connection) drop() {
	if l.conn != nil {
		hangUp(l.conn)
		l.conn = nil
	}
}

// close ends the connection after the statement in flight, whose deadline bounds the wait.
func (l *connection) close() {
	<-l.turn
	l.closed = true
	l.drop()
	l.turn <- struct{}{}
}

// hangUp closes a connection and waits for at most 200 ms.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_ = conn.Close(ctx) // an error is ignored: the connection ends in any case
}
