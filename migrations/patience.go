package migrations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"
)

// A migration that waits for a table keeps everybody behind it waiting as well:
// behind a backup that reads for an hour no dispatcher could renew its lease.
// So it waits for less than anybody's patience, gives up, lets the others
// through, and tries again. One that changes two tables holds the first for as
// long while it waits for the second; two sessions that want them in opposite
// order end in one that gives way, and that counts as not granted.
const (
	lockWait   = "250ms"
	lockPause  = time.Second
	lockRounds = 300
	notGranted = "55P03" // lock_not_available
	deadlocked = "40P01"
)

// modest limits how long a session waits for a lock, unless its owner did.
func modest(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, `SELECT set_config('lock_timeout', '`+lockWait+`', false) WHERE current_setting('lock_timeout') = '0'`)
	return err
}

// patiently repeats what stands back for others until it is done. It returns
// what all tries have applied.
func patiently(ctx context.Context, try func(context.Context) ([]*goose.MigrationResult, error)) (applied []*goose.MigrationResult, err error) {
	for round := 1; ; round++ {
		some, err := try(ctx)
		if partial, ok := errors.AsType[*goose.PartialError](err); ok {
			some = partial.Applied
		}
		applied = append(applied, some...)
		switch c := code(err); {
		case c != notGranted && c != deadlocked:
			return applied, err
		case round == lockRounds:
			return applied, fmt.Errorf("%w: other sessions keep the tables locked; end those that pg_stat_activity shows with old transactions (a backup?), and try again", err)
		}
		select {
		case <-ctx.Done():
			return applied, errors.Join(ctx.Err(), err)
		case <-time.After(lockPause):
		}
	}
}
