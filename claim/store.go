package claim

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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
	// Plan runs f with the connection for the statements of the controller, Admission for those about jobs with keys, Scan for those that
	// read all of these jobs, Flows for the steps of batches and flows, Search for the search for their targets, and Upkeep for what may
	// take long.
	Plan, Admission, Scan, Flows, Search, Upkeep Connection

	config   Config
	all      connections
	fetch    connections
	backfill connections // established by the first backfill scan
	claim    connections
	load     connections // established when the first large payload is claimed
	finish   connections
	spawn    connections // established when the first worker inserts children
	adopt    connections // established by the first adoption
	lease    connections // heartbeats, notification gate, progress
	sweep    connections // slow statements that must not delay a heartbeat

	me    atomic.Int32 // id of this run in dispatcherd.dispatchers, 0 = not joined
	epoch atomic.Int32 // every claim names it; raised by Resolve

	contention atomic.Int32 // claims that are still to be made with row locks; none if it is ≤ 0
	comparison comparison   // belongs to the call that has the turn of lease
	refusals   refusals

	countSteps int64 // see countSteps

	mu      sync.Mutex
	records Records
}

// Open connects once, checks that this build can use the schema and that the role can own unique keys, and returns a store.
// Each connection of the store is established when it is first used.
func Open(ctx context.Context, c Config) (*Store, error) {
	base, err := c.connConfig("")
	if err != nil {
		return nil, err
	}
	s := &Store{
		config: c, records: NewRecords(), refusals: refusals{list: map[refusal]leftOut{}}, countSteps: countSteps,
	}
	some := func(purpose string, n int, setup string, statements statements) connections {
		list := newConnections(c, base, purpose, n, setup, statements)
		s.all = append(s.all, list...)
		return list
	}
	claims := fmt.Sprintf("SET lock_timeout = %d", lockPatience.Milliseconds())
	if c.AsyncClaims {
		claims += "; SET synchronous_commit = off"
	}
	slow := fmt.Sprintf("SET statement_timeout = %d", (slowTimeout * 4 / 5).Milliseconds())
	s.fetch = some("fetch", 1, "", fetchStatements)
	s.backfill = some("backfill", 1, slow, fetchStatements)
	s.claim = some("claim", c.Claims, claims, claimStatements)
	s.load = some("load", Loads, "", loadStatements)
	s.finish = some("finish", c.Finishes, fmt.Sprintf("SET lock_timeout = %d", finishPatience.Milliseconds()), finishStatements)
	s.spawn = some("spawn", c.Spawns, "", nil)
	s.adopt = some("adopt", 1, "", adoptStatements)
	s.lease = some("lease", 1, "", leaseStatements)
	s.sweep = some("sweep", 1, slow, nil)
	s.Plan = some("schedules", 1, "", nil).of(OpPlan)
	s.Admission = some("limits", 1, "", nil).of(OpAdmit)
	scan := some("limits scan", 1, slow, nil)
	s.Scan = scan.of(OpAdmit)
	// A step that a crash of Postgres loses is done again, because its messages are there again.
	s.Flows = some("flows", 1, "SET synchronous_commit = off; SET statement_timeout = '1s'; SET lock_timeout = '50ms'", nil).of(OpStep)
	search := some("flows search", 1, slow, nil)
	s.Search = search.of(OpStep)
	for _, list := range []connections{s.backfill, s.sweep, scan, search} {
		list[0].timeout = slowTimeout
	}
	s.Upkeep = s.sweep.of(OpVacuum)
	// sweep has no prepared statements, so it can connect without a schema.
	err = s.sweep.do(ctx, OpConnect, func(c Session) (int, error) {
		if err := s.checkPooler(c); err != nil {
			return 0, err
		}
		err := migrations.Check(c, c.Conn)
		if err == nil {
			_, err = c.Exec(c, `SELECT dispatcherd.owner()`) // an error if the setting of this name is wrong
		}
		return 0, err
	})
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends all connections. Calls in flight end first. Later calls are refused.
func (s *Store) Close() {
	for _, l := range s.all {
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

// checkPooler returns ErrTransactionPool if the connection goes through a pooler in
// transaction mode. A pooler reports another process id than the server. In
// transaction mode it assigns the server process of one session to the next session
// that begins a transaction, and the first session loses its settings.
func (s *Store) checkPooler(c Session) error {
	var pid uint32
	nonce := rand.Text()
	err := c.QueryRow(c, `SELECT pg_backend_pid(), set_config('dispatcherd.session', $1, false)`,
		pgx.QueryExecModeExec, nonce).Scan(&pid, nil)
	if err != nil || pid == c.PgConn().PID() {
		return err
	}
	other, err := pgx.ConnectConfig(c, s.sweep[0].config)
	if err != nil {
		return err
	}
	defer hangUp(other)
	tx, err := other.Begin(c)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(c) }() // the statement has changed nothing
	var same bool
	err = c.QueryRow(c, `SELECT current_setting('dispatcherd.session', true) IS NOT DISTINCT FROM $1`,
		pgx.QueryExecModeExec, nonce).Scan(&same)
	if err == nil && !same {
		err = ErrTransactionPool
	}
	return err
}
