package claim

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/jackc/pgx/v5"
)

// Defaults of Config.
const (
	DefaultTimeout = 5 * time.Second
	DefaultLease   = 30 * time.Second
)

// Config describes the database and the time limits.
type Config struct {
	// DSN is a URL or a key/value string. PG* environment variables supply missing parts.
	DSN string
	// Name is the name of the dispatcher in tables and logs; ≤ 128 bytes.
	Name string
	// Identity lets a successor on this host declare the dispatcher lost.
	Identity Identity
	// Timeout bounds every statement, including the time to connect.
	Timeout time.Duration
	// Lease is how long this dispatcher counts as alive after a heartbeat.
	Lease time.Duration
	// Claims, Finishes and Spawns are the numbers of claims, of finishes and of
	// statements that insert children, which run at the same time, each on its own
	// connection.
	Claims, Finishes, Spawns int
	// AsyncClaims commits claims without waiting for the disk. A crash of the
	// database server may then lose the newest claims, and their attempt numbers are
	// assigned again. Other crashes lose nothing.
	AsyncClaims bool
	// Observer receives every statement.
	Observer Observer
	// Dial opens network connections. Tests set it to cut connections.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// connConfig describes one connection. purpose becomes part of application_name.
func (c Config) connConfig(purpose string) (*pgx.ConnConfig, error) {
	pool, err := dsn.Parse(c.DSN)
	if err != nil {
		return nil, err
	}
	config := pool.ConnConfig
	dsn.Session{Settings: c.session(), Writes: true, Patience: c.Timeout}.Apply(config)
	config.RuntimeParams["application_name"] = c.applicationName(purpose)
	if c.Dial != nil {
		config.DialFunc = c.Dial
		config.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	}
	return config, nil
}

// applicationName names a connection for operators.
func (c Config) applicationName(purpose string) string {
	return truncate("dispatcherd "+purpose+" "+c.Name, 63)
}

// truncate cuts s to at most n bytes.
func truncate(s string, n int) string { return s[:min(len(s), n)] }

// session returns the settings of every connection besides those of all sessions, in the syntax of SET.
//
// The time limit of the server is shorter than that of the caller. So a slow
// statement ends with an ERROR, which rolls it back, and not with a broken
// connection, after which its outcome is unknown. The planner settings force index
// scans by id, because the statistics of the table are usually stale.
func (c Config) session() map[string]string {
	limit := strconv.FormatInt((c.Timeout * 4 / 5).Milliseconds(), 10)
	return map[string]string{
		"statement_timeout":                   limit,
		"lock_timeout":                        limit,
		"idle_in_transaction_session_timeout": limit,
		"plan_cache_mode":                     "force_generic_plan",
		"enable_seqscan":                      "off",
		"enable_bitmapscan":                   "off",
		"enable_hashjoin":                     "off",
		"enable_mergejoin":                    "off",
	}
}

// Operation names a kind of statement in metrics and logs.
type Operation string

// The operations.
const (
	OpConnect   Operation = "connect"
	OpFetch     Operation = "fetch"
	OpBackfill  Operation = "backfill"
	OpClaim     Operation = "claim"
	OpResolve   Operation = "resolve"
	OpLoad      Operation = "load"
	OpFinish    Operation = "finish"
	OpAdopt     Operation = "adopt"
	OpProgress  Operation = "progress"
	OpHeartbeat Operation = "heartbeat"
	OpSweep     Operation = "sweep"
	OpVacuum    Operation = "vacuum"
	OpCount     Operation = "count"
	OpSubscribe Operation = "subscribe"
	OpPlan      Operation = "plan"
	OpAdmit     Operation = "admit"
	OpStep      Operation = "step"
	OpSpawn     Operation = "spawn"
)

// Report describes one finished statement. Err never contains a payload: it has the
// message and SQLSTATE of Postgres, not the detail.
type Report struct {
	Operation Operation
	Took      time.Duration // waiting for the connection included
	Rows      int           // jobs fetched, won, ended, released
	Verdict   contract.Verdict
	Err       error // nil with verdict OK
}

// Observer receives the statements that this package sends to Postgres. Its methods
// are called from several goroutines and must not block.
type Observer interface {
	// Statement receives each statement when it has ended.
	Statement(Report)
	// Refused receives a row that Postgres refused to change in a statement of its own,
	// at the begin of each pause of the row. [Store.WhyAside] says why.
	// Claims, loads and finishes return such rows instead.
	Refused(op Operation, id dispatcherd.JobID)
	// Unreadable receives a lane that Postgres could not read, at the begin of each pause of the lane.
	Unreadable(lane contract.Lane, why error)
	// Listening reports whether notifications arrive, and if not, why. Without
	// notifications only polling finds new jobs.
	Listening(up bool, why error)
	// Queue reports every few seconds how much of the notification queue is used, 0 to 1. All databases of a server share it.
	Queue(usage float64)
}
