package claim

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/stretchr/testify/require"
)

func TestFirstFreeConnectionIsUsed(t *testing.T) {
	c := Config{DSN: "postgres://localhost/x"}.WithDefaults()
	base, err := c.connConfig("")
	require.NoError(t, err)
	list := newConnections(c, base, "claim", 3, "", nil)
	take := func() *connection {
		l, err := list.take(t.Context())
		require.NoError(t, err)
		return l
	}
	for i := range list {
		require.Same(t, list[i], take())
	}
	list[1].turn <- struct{}{}
	require.Same(t, list[1], take())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = list.take(ctx)
	require.ErrorIs(t, err, context.Canceled, "all are in use")
	list[0].turn <- struct{}{}
	require.Same(t, list[0], take())
}

// A heartbeat that begins during an outage keeps all of its time for the statement.
func TestDeadlineOfAStatementBeginsWithItsConnection(t *testing.T) {
	t.Parallel()
	var waits time.Time
	c := Config{DSN: pgtest.New(t), Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		waits, _ = ctx.Deadline()
		return new(net.Dialer).DialContext(ctx, network, address)
	}}.WithDefaults()
	base, err := c.connConfig("")
	require.NoError(t, err)
	l := newConnections(c, base, "claim", 1, "", nil)
	defer l[0].close()
	require.NoError(t, l.do(t.Context(), OpClaim, func(s Session) (int, error) {
		runs, bounded := s.Deadline()
		require.True(t, bounded)
		require.True(t, runs.After(waits))
		return 0, nil
	}))
}

// oneConnection returns a connection of a store to a fresh database.
func oneConnection(t *testing.T, name string) connections {
	t.Helper()
	c := Config{DSN: pgtest.New(t)}.WithDefaults()
	base, err := c.connConfig("")
	require.NoError(t, err)
	l := newConnections(c, base, name, 1, "", nil)
	t.Cleanup(l[0].close)
	return l
}

// A proxy has moved the session to a standby, or the server was read-only for a while. The session would stay so for ever.
func TestConnectionThatHasTurnedReadOnlyIsReplaced(t *testing.T) {
	t.Parallel()
	l := oneConnection(t, "claim")
	send := func(list ...string) error {
		return l.do(t.Context(), OpClaim, func(c Session) (n int, err error) {
			for _, sql := range list {
				_, err = c.Exec(c, sql)
			}
			return 0, err
		})
	}
	const insert = `INSERT INTO dispatcherd.jobs (type) VALUES ('pdf')`
	err := send(`SET default_transaction_read_only = on`, insert)
	require.True(t, dsn.ReadOnly(err), err)
	require.Equal(t, contract.Refused, verdictOf(err), "Postgres has rolled it back")
	require.NoError(t, send(insert))
}

// A statement that only reads gets no error from a server that is read-only. The server may be the former primary, whose rows are old.
func TestConnectionThatOnlyReadsIsReplacedOnAReadOnlyServer(t *testing.T) {
	t.Parallel()
	l := oneConnection(t, "fetch")
	send := func(sql string) (session uint32) {
		require.NoError(t, l.do(t.Context(), OpFetch, func(c Session) (int, error) {
			_, err := c.Exec(c, sql)
			session = c.PgConn().PID()
			return 0, err
		}))
		return session
	}
	first := send(`SELECT 1`)
	require.Equal(t, first, send(`SET default_transaction_read_only = on`))
	second := send(`SELECT 1`)
	require.NotEqual(t, first, second)
	require.Equal(t, second, send(`SELECT 1`))
}

// A daemon that stops cancels its heartbeat and then leaves. The cancellation may end an
// attempt to connect.
func TestCancelledAttemptToConnectDoesNotDelayTheNextOne(t *testing.T) {
	t.Parallel()
	dialling := make(chan struct{}, 1)
	hang := true
	c := Config{DSN: pgtest.New(t), Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if hang {
			dialling <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}}.WithDefaults()
	base, err := c.connConfig("")
	require.NoError(t, err)
	l := newConnections(c, base, "lease", 1, "", nil)
	defer l[0].close()
	use := func(Session) (int, error) { return 0, nil }
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-dialling; cancel() }()
	require.ErrorIs(t, l.do(ctx, OpHeartbeat, use), context.Canceled)
	hang = false
	require.NoError(t, l.do(t.Context(), OpHeartbeat, use))
}
