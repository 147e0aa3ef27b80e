package claim

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dispatcherd/dispatcherd/migrations"
	"github.com/jackc/pgx/v5"
)

// Store is one dispatcher's view of the table. Its methods may be called from any
// goroutine. Up to Config.Claims claims, Config.Finishes finishes and Config.Spawns spawns
// run at the same time. Other calls of the same kind run one after the other. The store cannot claim
// before [Store.Join].
type Store struct {
	config    Config
	fetch     *connection
	backfill  *connection // established by the first backfill scan
	claim     connections
	load      connections // established when the first large payload is claimed
	finish    connections
	spawn     connections // established when the first worker inserts children
	adopt     *connection // established by the first adoption
	lease     *connection // heartbeats, notification gate, progress
	sweep     *connection // slow statements that must not delay a heartbeat
	planning  *connection // statements of the controller; established when there are schedules to plan
	admission *connection // its statements about jobs with keys
	flows     *connection // steps of batches and flows

	me    atomic.Int32 // id of this run in dispatcherd.dispatchers, 0 = not joined
	epoch atomic.Int32 // every claim names it; raised by Resolve

	contention atomic.Int32 // claims that are still to be made with row locks; none if it is ≤ 0
	deferred   deferred     // belongs to the call that has the turn of lease
	comparison comparison   // belongs to the same call
	refusals   refusals

	countSteps int64 // see countSteps

	mu      sync.Mutex
	records Records
}

// Open connects once, checks that this build can use the schema, and returns a store.
// Each connection of the store is established when it is first used.
func Open(ctx context.Context, c Config) (*Store, error) {
	c = c.withDefaults()
	base, err := c.connConfig("")
	if err != nil {
		return nil, err
	}
	one := func(purpose string, statements statements) *connection {
		return newConnection(c, base, purpose, statements)
	}
	s := &Store{
		config:     c,
		fetch:      one("fetch", fetchStatements),
		backfill:   one("backfill", fetchStatements),
		claim:      newConnections(c, base, c.Claims, "claim", claimStatements),
		load:       newConnections(c, base, Loads, "load", loadStatements),
		finish:     newConnections(c, base, c.Finishes, "finish", finishStatements),
		spawn:      newConnections(c, base, c.Spawns, "spawn", nil),
		adopt:      one("adopt", adoptStatements),
		lease:      one("lease", leaseStatements),
		sweep:      one("sweep", nil),
		planning:   one("schedules", nil),
		admission:  one("limits", nil),
		flows:      one("flows", nil),
		records:    NewRecords(),
		deferred:   newDeferred(),
		refusals:   refusals{list: map[refusal]leftOut{}},
		countSteps: countSteps,
	}
	for _, l := range s.claim {
		l.setup = fmt.Sprintf("SET lock_timeout = %d", lockPatience.Milliseconds())
		if c.AsyncClaims {
			l.setup += "; SET synchronous_commit = off"
		}
	}
	for _, l := range s.finish {
		l.setup = fmt.Sprintf("SET lock_timeout = %d", finishPatience.Milliseconds())
	}
	// A step that a crash of Postgres loses is done again, because its messages are there again.
	s.flows.setup = "SET synchronous_commit = off; SET statement_timeout = '1s'"
	s.backfill.timeout = backfillTimeout
	s.backfill.setup = fmt.Sprintf("SET statement_timeout = %d", (backfillTimeout * 4 / 5).Milliseconds())
	s.sweep.timeout = sweepTimeout
	s.sweep.setup = fmt.Sprintf("SET statement_timeout = %d", (sweepTimeout * 4 / 5).Milliseconds())
	// sweep has no prepared statements, so it can connect without a schema.
	err = s.sweep.do(ctx, OpConnect, func(ctx context.Context, conn *pgx.Conn) (int, error) {
		if err := s.checkPooler(ctx, conn); err != nil {
			return 0, err
		}
		return 0, migrations.Check(ctx, conn)
	})
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends all connections. Calls in flight end first. Later calls are refused.
func (s *Store) Close() {
	for _, l := range slices.Concat(
		s.claim, s.load, s.finish, s.spawn,
		connections{s.fetch, s.backfill, s.adopt, s.lease, s.sweep, s.planning, s.admission, s.flows},
	) {
		l.close()
	}
}

// Dispatcher returns the id under which this store claims; 0 before Join.
func (s *Store) Dispatcher() int32 { return s.me.Load() }

// ErrTransactionPool is the error for a pooler that assigns a server process to a
// session for one transaction only. Settings and prepared statements would be lost
// or reach other users of the pool, and LISTEN would receive nothing.
var ErrTransactionPool = errors.New("a connection pooler in transaction mode is between the dispatcher and Postgres: " +
	"LISTEN, SET and prepared statements do not work through it; set pool_mode = session for this user or database (PgBouncer), " +
	"or connect directly")

// Plan runs f with the connection for the statements of the controller. f returns of how many
// ticks or schedules it was.
func (s *Store) Plan(ctx context.Context, f func(context.Context, *pgx.Conn) (int, error)) error {
	return s.planning.do(ctx, OpPlan, f)
}

// Admission runs f with the connection for the statements about jobs with keys. f returns of how many rows it was.
func (s *Store) Admission(ctx context.Context, f func(context.Context, *pgx.Conn) (int, error)) error {
	return s.admission.do(ctx, OpAdmit, f)
}

// Flows runs f with the connection for the steps of batches and flows. f returns of how many it was.
func (s *Store) Flows(ctx context.Context, f func(context.Context, *pgx.Conn) (int, error)) error {
	return s.flows.do(ctx, OpStep, f)
}

// Upkeep runs f with the connection for what may take long. f returns of how many rows it was.
func (s *Store) Upkeep(ctx context.Context, f func(context.Context, *pgx.Conn) (int, error)) error {
	return s.sweep.do(ctx, OpVacuum, f)
}

// checkPooler returns ErrTransactionPool if the connection goes through a pooler in
// transaction mode. A pooler reports another process id than the server. In
// transaction mode it assigns the server process of one session to the next session
// that begins a transaction, and the first session loses its settings.
func (s *Store) checkPooler(ctx context.Context, conn *pgx.Conn) error {
	var pid uint32
	nonce := rand.Text()
	err := conn.QueryRow(ctx, `SELECT pg_backend_pid(), set_config('dispatcherd.session', $1, false)`,
		pgx.QueryExecModeExec, nonce).Scan(&pid, nil)
	if err != nil || pid == conn.PgConn().PID() {
		return err
	}
	other, err := pgx.ConnectConfig(ctx, s.sweep.config)
	if err != nil {
		return err
	}
	defer hangUp(other)
	tx, err := other.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // the statement has changed nothing
	var same bool
	err = conn.QueryRow(ctx, `SELECT current_setting('dispatcherd.session', true) IS NOT DISTINCT FROM $1`,
		pgx.QueryExecModeExec, nonce).Scan(&same)
	if err == nil && !same {
		err = ErrTransactionPool
	}
	return err
}
