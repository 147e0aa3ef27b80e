package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/background"
)

// A migration that waits for the lock of a table blocks all later statements on this table. During a
// backup of an hour no dispatcher could renew its lease. Therefore a migration waits for a short time,
// stops waiting, and tries again later. A migration that changes two tables holds the first lock while
// it waits for the second. A deadlock counts as a lock that was not granted.
const (
	lockWait   = "'250ms'" // unless the connection string sets lock_timeout
	lockPause  = time.Second
	lockRounds = 300
	notGranted = "55P03" // lock_not_available
	deadlocked = "40P01"
)

// retryLocked repeats try until all locks are granted.
func retryLocked(ctx context.Context, try func(context.Context) error) error {
	for round := 1; ; round++ {
		err := try(ctx)
		switch c := code(err); {
		case c != notGranted && c != deadlocked:
			return err
		case round == lockRounds:
			return fmt.Errorf(
				"%w: other sessions keep the tables locked; end those that pg_stat_activity shows with old transactions (a backup?), and try again",
				err,
			)
		}
		if !background.Pause(ctx, lockPause) {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

// versionLock lets one program migrate at a time. It locks the table of versions in a mode that only
// the owner can take, and that conflicts with itself but not with reads and writes. Every session could
// take an advisory lock, and so prevent migrations.
type versionLock struct{ tx *sql.Tx }

// Lock implements lock.Locker. If another program migrates, it returns lock_not_available. The transaction keeps no
// snapshot, because its isolation level is read committed: CREATE INDEX CONCURRENTLY would wait for one.
func (l *versionLock) Lock(ctx context.Context, db *sql.DB) (err error) {
	if l.tx, err = db.BeginTx(context.WithoutCancel(ctx), nil); err != nil {
		return err
	}
	_, err = l.tx.ExecContext(ctx, "LOCK TABLE "+versionTable+" IN SHARE UPDATE EXCLUSIVE MODE")
	if err != nil {
		_ = l.tx.Rollback()
	}
	return err
}

// Unlock implements lock.Locker.
func (l *versionLock) Unlock(context.Context, *sql.DB) error { return l.tx.Rollback() }
