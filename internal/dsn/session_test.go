package dsn_test

import (
	"context"
	"net"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func connect(t *testing.T, text string, s dsn.Session) (*pgx.Conn, error) {
	t.Helper()
	config, err := dsn.Parse(text)
	require.NoError(t, err)
	s.Apply(config.ConnConfig)
	conn, err := pgx.ConnectConfig(t.Context(), config.ConnConfig)
	if err == nil {
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
	}
	return conn, err
}

// The session has turned read-only, or a proxy has changed the server below it. Other errors keep the connection.
func TestErrorThatANewConnectionCuresClosesTheConnection(t *testing.T) {
	text := pgtest.New(t)
	for name, c := range map[string]struct {
		before, statement string
		closes            bool
	}{
		"read-only":              {`SET default_transaction_read_only = on`, `INSERT INTO dispatcherd.jobs (type) VALUES ('a')`, true},
		"no statement":           {`SELECT 1`, `EXECUTE forgotten`, true},
		"statement twice":        {`PREPARE a AS SELECT 1`, `PREPARE a AS SELECT 1`, true},
		"no cursor":              {`SELECT 1`, `FETCH FROM forgotten`, true},
		"result of another type": {`CREATE TEMP TABLE c (n int); PREPARE c AS TABLE c; ALTER TABLE c ADD m int`, `EXECUTE c`, true},
		"connection exception":   {`SELECT 1`, `DO $$ BEGIN RAISE SQLSTATE '08006'; END $$`, true},
		"shutdown":               {`SELECT 1`, `SELECT pg_terminate_backend(pg_backend_pid())`, true},
		"syntax":                 {`SELECT 1`, `SELECT FROM FROM`, false},
		"no table":               {`SELECT 1`, `SELECT FROM forgotten`, false},
		"not supported":          {`SELECT 1`, `ALTER TABLE dispatcherd.jobs_live INHERIT dispatcherd.limits`, false},
		"serialization":          {`SELECT 1`, `DO $$ BEGIN RAISE serialization_failure; END $$`, false},
	} {
		conn, err := connect(t, text, dsn.Session{Writes: true})
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), c.before, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err, name)
		_, err = conn.Exec(t.Context(), c.statement, pgx.QueryExecModeSimpleProtocol)
		require.Error(t, err, name)
		require.Equal(t, c.closes, conn.IsClosed(), "%s: %v", name, err)
		require.Equal(t, name == "read-only", dsn.ReadOnly(err), name)
	}
}

// Also those that a statement would notice only under load or with other rows.
func TestSessionsOverrideTheSettingsOfTheDatabase(t *testing.T) {
	text := pgtest.New(t)
	admin, err := connect(t, text, dsn.Session{})
	require.NoError(t, err)
	settings := map[string][2]string{
		"array_nulls": {"off", "on"}, "bytea_output": {"escape", "hex"}, "client_encoding": {"LATIN1", "UTF8"},
		"datestyle": {"German", "ISO, MDY"}, "default_transaction_deferrable": {"on", "off"},
		"default_transaction_isolation": {"serializable", "read committed"}, "dispatcherd.notify": {"off", "on"},
		"enable_indexonlyscan": {"off", "on"}, "enable_indexscan": {"off", "on"}, "enable_nestloop": {"off", "on"},
		"enable_partition_pruning": {"off", "on"}, "enable_sort": {"off", "on"}, "extra_float_digits": {"-5", "1"},
		"idle_in_transaction_session_timeout": {"1h", "0"}, "idle_session_timeout": {"1h", "0"}, "intervalstyle": {"sql_standard", "postgres"},
		"jit": {"on", "off"}, "lock_timeout": {"1h", "0"}, "plpgsql.extra_errors": {"all", "none"}, "quote_all_identifiers": {"on", "off"},
		"row_security": {"off", "on"}, "search_path": {"junk", "pg_catalog"}, "standard_conforming_strings": {"off", "on"},
		"statement_timeout": {"1h", "0"}, "timezone": {"Pacific/Apia", "UTC"}, "transform_null_equals": {"on", "off"},
	}
	name := pgx.Identifier{admin.Config().Database}.Sanitize()
	for setting, values := range settings {
		_, err := admin.Exec(t.Context(), `ALTER DATABASE `+name+` SET `+setting+` = '`+values[0]+`'`)
		require.NoError(t, err, setting)
	}
	conn, err := connect(t, text, dsn.Session{})
	require.NoError(t, err)
	for setting, values := range settings {
		var have string
		require.NoError(t, conn.QueryRow(t.Context(), `SHOW `+setting).Scan(&have))
		require.Equal(t, values[1], have, setting)
	}
}

func TestSessionThatWritesRefusesAReadOnlyServer(t *testing.T) {
	text := pgtest.New(t)
	conn, err := connect(t, text, dsn.Session{})
	require.NoError(t, err)
	name := pgx.Identifier{conn.Config().Database}.Sanitize()
	_, err = conn.Exec(t.Context(), `ALTER DATABASE `+name+` SET default_transaction_read_only = on`)
	require.NoError(t, err)
	_, err = connect(t, text, dsn.Session{Writes: true})
	require.True(t, dsn.ReadOnly(err), err)
	_, err = connect(t, text, dsn.Session{})
	require.NoError(t, err)
}

func TestSessionThatBecomesReadOnlyIsRecognizedWithoutAnError(t *testing.T) {
	conn, err := connect(t, pgtest.New(t), dsn.Session{Writes: true})
	require.NoError(t, err)
	require.NoError(t, dsn.CheckWrites(t.Context(), conn))
	_, err = conn.Exec(t.Context(), `SET default_transaction_read_only = on`)
	require.NoError(t, err)
	require.True(t, dsn.ReadOnly(dsn.CheckWrites(t.Context(), conn)))
	require.False(t, conn.IsClosed(), "the caller closes it")
	_, err = conn.Exec(t.Context(), `SET default_transaction_read_only = off`)
	require.NoError(t, err)
	require.NoError(t, dsn.CheckWrites(t.Context(), conn))
}

// The first host accepts the connection and is silent, as a machine that was switched off behind a proxy.
func TestSilentHostLeavesTimeForTheNextOne(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	u, err := url.Parse(pgtest.New(t))
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(silent.Addr().String())
	require.NoError(t, err)
	q := u.Query()
	q.Set("host", "127.0.0.1,"+q.Get("host"))
	q.Set("port", port+","+q.Get("port"))
	u.RawQuery = q.Encode()
	const patience = time.Second
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	config, err := dsn.Parse(u.String() + "&sslmode=disable")
	require.NoError(t, err)
	dsn.Session{Writes: true, Patience: patience}.Apply(config.ConnConfig)
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}

// psql accepts these.
func TestParametersOfLibpqAreAccepted(t *testing.T) {
	conn, err := connect(t, pgtest.New(t)+"&keepalives=1&keepalives_idle=30&keepalives_interval=5&keepalives_count=3&tcp_user_timeout=9"+
		"&gssencmode=prefer&krbsrvname=postgres&gsslib=gssapi&gssdelegation=0&fallback_application_name=other&channel_binding=prefer"+
		"&sslnegotiation=postgres&sslcompression=0&sslcert=&sslkey=&sslrootcert=&sslcrl=&sslcrldir=&sslsni=1&sslcertmode=allow&sslkeylogfile="+
		"&ssl_min_protocol_version=TLSv1.2&ssl_max_protocol_version=TLSv1.3&min_protocol_version=3.0&requirepeer=&require_auth="+
		"&replication=0&load_balance_hosts=random&target_session_attrs=primary&client_encoding=auto&options=-c%20geqo%3Doff&passfile=none"+
		"&scram_client_key=&scram_server_key=&oauth_issuer=&oauth_client_id=&oauth_client_secret=&oauth_scope=", dsn.Session{})
	require.NoError(t, err)
	var name, geqo string
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT current_setting('application_name'), current_setting('geqo')`).Scan(&name, &geqo))
	require.Equal(t, []string{"other", "off"}, []string{name, geqo})
}
