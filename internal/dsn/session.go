package dsn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// common are the settings on which statements and functions rely, in the syntax of SET. A role, a database or a connection string may
// contain other values, so each session sets them. They are sent in one round trip after the connection is established. They are not part
// of the connection request, because a pooler (PgBouncer) refuses connections with settings that it does not know.
var common = map[string]string{
	"array_nulls":                         "on",
	"bytea_output":                        "hex",
	"client_encoding":                     "'UTF8'",
	"datestyle":                           "'ISO, MDY'",
	"default_transaction_deferrable":      "off",
	"default_transaction_isolation":       "'read committed'",
	"dispatcherd.notify":                  "on",
	"enable_indexonlyscan":                "on",
	"enable_indexscan":                    "on",
	"enable_nestloop":                     "on",
	"enable_partition_pruning":            "on",
	"enable_sort":                         "on",
	"extra_float_digits":                  "1",
	"idle_in_transaction_session_timeout": "0",
	"intervalstyle":                       "postgres",
	"jit":                                 "off",
	"lock_timeout":                        "0",
	"plpgsql.extra_errors":                "none",
	"quote_all_identifiers":               "off",
	"row_security":                        "on",
	"search_path":                         "pg_catalog",
	"standard_conforming_strings":         "on",
	"statement_timeout":                   "0",
	"timezone":                            "'UTC'",
	"transform_null_equals":               "off",
}

// endless disables idle_session_timeout and transaction_timeout, if the server version has them. They would end the session of an idle
// dispatcher, and its next claim would have an unknown outcome.
const endless = `SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('idle_session_timeout', 'transaction_timeout')`

// Session describes the sessions of one kind of connection.
type Session struct {
	// Settings are set besides those of all sessions, or instead of them. The values have the syntax of SET; "" sets nothing.
	Settings map[string]string
	// Writes passes over servers that are read-only, for example standbys, as target_session_attrs=read-write does.
	Writes bool
	// Patience bounds the time to connect, over all hosts of the connection string together; 0 = connect_timeout alone does.
	Patience time.Duration
}

// Apply makes the new connections of config such sessions.
func (s Session) Apply(config *pgx.ConnConfig) {
	settings := maps.Clone(common)
	maps.Copy(settings, s.Settings)
	maps.DeleteFunc(settings, func(_, value string) bool { return value == "" })
	for name := range config.RuntimeParams {
		if _, ours := settings[strings.ToLower(name)]; ours {
			delete(config.RuntimeParams, name)
		}
	}
	var set strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&set, "SET %s = %s; ", name, settings[name])
	}
	sql := set.String() + endless
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error { return conn.Exec(ctx, sql).Close() }
	if s.Writes {
		config.ValidateConnect = requireWrites
	}
	if most := s.patiencePerHost(config); most > 0 && (config.ConnectTimeout == 0 || most < config.ConnectTimeout) {
		config.ConnectTimeout = most
	}
}

// patiencePerHost leaves time for the last host if the others do not answer at all.
func (s Session) patiencePerHost(config *pgx.ConnConfig) time.Duration {
	hosts := len(hostsOf(config))
	if hosts == 1 {
		return s.Patience
	}
	return s.Patience * 9 / 10 / time.Duration(hosts)
}

// hostsOf returns the hosts with their ports. The driver lists a host twice if it tries with and without TLS.
func hostsOf(config *pgx.ConnConfig) []string {
	hosts := []string{net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))}
	for _, f := range config.Fallbacks {
		if host := net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port))); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// errReadOnly is the error for a server that accepts no writes.
var errReadOnly = errors.New("the server is read-only: it is a standby, or default_transaction_read_only is on")

// requireWrites implements pgconn.ValidateConnectFunc. After an error the driver tries the next host.
func requireWrites(ctx context.Context, conn *pgconn.PgConn) error {
	err := pgconn.ValidateConnectTargetSessionAttrsReadWrite(ctx, conn)
	if errors.Is(err, pgconn.ErrReadOnlyConnection) {
		return errReadOnly
	}
	return err
}

// CheckWrites returns an error if a session has become read-only. A session that only reads gets no error for this, and would stay on a
// server that is no longer the primary. The server reports the two parameters without a request, with the answer to the next statement. A
// pooler may report them as they were at an earlier time, so the server is asked before a session counts as read-only.
func CheckWrites(ctx context.Context, conn *pgx.Conn) error {
	c := conn.PgConn()
	if c.ParameterStatus("in_hot_standby") == "on" || c.ParameterStatus("default_transaction_read_only") == "on" {
		return requireWrites(ctx, c)
	}
	return nil
}

const readOnlyTransaction = "25006"

// ReadOnly reports whether an error says that Postgres accepts no writes now.
func ReadOnly(err error) bool {
	return ErrorOf(err).Code == readOnlyTransaction || errors.Is(err, errReadOnly)
}

// noError is what ErrorOf returns for another cause.
var noError pgconn.PgError

// ErrorOf returns the error that Postgres sent, or an empty one if the error has another cause. The caller must not change it.
func ErrorOf(err error) *pgconn.PgError {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e
	}
	return &noError
}

// Cured reports whether a new connection may cure an error: the session has ended, it is read-only, or its state on the server is not the
// one that the driver knows, for example because a proxy has changed the server. All connections of this package close after such an
// error, so their next user connects again.
func Cured(e *pgconn.PgError) bool {
	switch e.Code {
	case readOnlyTransaction,
		"26000", // invalid_sql_statement_name: the server does not know a prepared statement
		"34000", // invalid_cursor_name
		"42P05": // duplicate_prepared_statement
		return true
	case "0A000": // the columns of the result of a prepared statement have changed
		return e.Routine == "RevalidateCachedQuery"
	}
	return e.SeverityUnlocalized == "FATAL" || e.SeverityUnlocalized == "PANIC" ||
		strings.HasPrefix(e.Code, "08") || strings.HasPrefix(e.Code, "57P") // lost, shutting down
}
