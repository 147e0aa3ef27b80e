package migrations_test

import (
	"fmt"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/migrations"
)

// invented are two later versions. Daemons of this build can use the first one, which adds a column, and not the second one, which
// removes it.
func invented(versions int) fstest.MapFS {
	statements := []string{
		`ALTER TABLE dispatcherd.dispatchers ADD COLUMN invented int;`,
		fmt.Sprintf(`ALTER TABLE dispatcherd.dispatchers DROP COLUMN invented;
		CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT %d::bigint';`,
			migrations.Baseline+1),
	}
	files := fstest.MapFS{}
	for i, s := range statements[:versions] {
		files[fmt.Sprintf("00%d_invented.sql", migrations.Baseline+1+i)] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + s)}
	}
	return files
}

// A later upgrade has two steps. First "migrate up" changes the schema while daemons of this build run, and start again. Then the daemons
// are replaced. Only a later version may change what the replaced daemons need.
func TestLaterUpgradeIsDoneInTwoSteps(t *testing.T) {
	dsn := pgtest.New(t)
	conn := connect(t, dsn)
	now, next := int64(migrations.Baseline), int64(migrations.Baseline+1)
	require.EqualError(t, migrations.CheckOf(t.Context(), conn, next),
		fmt.Sprintf("the schema is at version %d and this build needs %d: run 'dispatcherd migrate up'", now, next))

	applied, err := migrations.UpTo(t.Context(), dsn, invented(1))
	require.NoError(t, err)
	require.Equal(t, []int64{next}, applied)
	require.NoError(t, migrations.CheckOf(t.Context(), conn, next))
	require.NoError(t, migrations.Check(t.Context(), conn), "daemons of this build can start")
	applied, err = migrations.Up(t.Context(), dsn)
	require.NoError(t, err, "and migrate at their start")
	require.Empty(t, applied)

	_, err = migrations.UpTo(t.Context(), dsn, invented(2))
	require.NoError(t, err)
	require.NoError(t, migrations.CheckOf(t.Context(), conn, next))
	require.EqualError(t, migrations.Check(t.Context(), conn),
		fmt.Sprintf("the schema is at version %d, newer than version %d of this build: install a newer dispatcherd", next+1, now))
}

// A backup reads the tables in one long transaction, and a migration waits for its
// locks. Other sessions must not queue behind the migration, because daemons must
// renew their leases.
func TestMigrationThatWaitsForALockBlocksOtherSessionsBriefly(t *testing.T) {
	dsn := pgtest.New(t)
	backup, daemon := connect(t, dsn), connect(t, dsn)
	_, err := backup.Exec(t.Context(), "BEGIN; LOCK TABLE dispatcherd.dispatchers IN ACCESS SHARE MODE")
	require.NoError(t, err)
	var applied []int64
	migrated := make(chan error, 1)
	go func() {
		var err error
		applied, err = migrations.UpTo(t.Context(), dsn, invented(1))
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
	require.Len(t, applied, 1)
}
