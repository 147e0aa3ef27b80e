package migrations_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/migrations"
)

// A backup reads the tables in one long transaction, and a migration waits for its
// locks. Other sessions must not queue behind the migration, because daemons must
// renew their leases.
func TestMigrationThatWaitsForALockBlocksOtherSessionsBriefly(t *testing.T) {
	dsn := pgtest.Empty(t)
	_, err := migrations.Up(t.Context(), dsn)
	require.NoError(t, err)
	_, err = migrations.Down(t.Context(), dsn, 2)
	require.NoError(t, err)
	backup, daemon := connect(t, dsn), connect(t, dsn)
	_, err = backup.Exec(t.Context(), "BEGIN; LOCK TABLE dispatcherd.dispatchers IN ACCESS SHARE MODE")
	require.NoError(t, err)
	var applied []int64
	migrated := make(chan error, 1)
	go func() {
		var err error
		applied, err = migrations.Up(t.Context(), dsn)
		migrated <- err
	}()

	_, err = daemon.Exec(t.Context(), "SET statement_timeout = '4s'") // as in the sessions of daemons
	require.NoError(t, err)
	met := false // a heartbeat has waited behind the migration
	for began := time.Now(); !met; {
		require.Less(t, time.Since(began), time.Minute, "the migration has not waited for a lock")
		beat := time.Now()
		_, err = daemon.Exec(t.Context(), "UPDATE dispatcherd.dispatchers SET beat_at = now()")
		require.NoError(t, err)
		met = time.Since(beat) > 50*time.Millisecond
	}
	_, err = backup.Exec(t.Context(), "COMMIT")
	require.NoError(t, err)
	require.NoError(t, <-migrated)
	require.Len(t, applied, int(migrations.Latest())-2)
	require.EqualValues(t, 3, applied[0])
}

// A migration of schema 16 or earlier holds an advisory lock.
func TestMigrationWaitsForAnOlderProgram(t *testing.T) {
	dsn := pgtest.New(t)
	older := connect(t, dsn)
	exec(t, older, `SELECT pg_advisory_lock(7233172)`)
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	_, err := migrations.Down(ctx, dsn, migrations.Latest()-1)
	require.ErrorContains(t, err, "an older dispatcherd migrates the schema")
	exec(t, older, `SELECT pg_advisory_unlock(7233172)`)
	undone, err := migrations.Down(t.Context(), dsn, migrations.Latest()-1)
	require.NoError(t, err)
	require.Len(t, undone, 1)
}
