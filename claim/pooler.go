package claim

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/jackc/pgx/v5"
)

// ErrTransactionPool refuses a pooler that gives a session another server
// process for every transaction: settings and prepared statements would get lost
// or, worse, reach other users of the pool, and LISTEN would hear nothing.
var ErrTransactionPool = errors.New("a connection pooler in transaction mode is between the dispatcher and Postgres: " +
	"LISTEN, SET and prepared statements do not work through it; set pool_mode = session for this user or database (PgBouncer), " +
	"or connect directly")

// checkPooler returns ErrTransactionPool if one is noticed. A pooler is known by
// the process id it tells, which is not the server's. In transaction mode it
// hands the server process that one session has just used to the next session
// that begins a transaction; the first one then finds its settings gone.
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
	defer func() { _ = tx.Rollback(ctx) }() // it has changed nothing
	var same bool
	err = conn.QueryRow(ctx, `SELECT current_setting('dispatcherd.session', true) IS NOT DISTINCT FROM $1`,
		pgx.QueryExecModeExec, nonce).Scan(&same)
	if err == nil && !same {
		err = ErrTransactionPool
	}
	return err
}
