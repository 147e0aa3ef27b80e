package migrations_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/migrations"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// leftovers returns all objects outside the system schemas.
func leftovers(t testing.TB, conn *pgx.Conn) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname !~ '^pg_|^information_schema$|^public$'
		UNION ALL SELECT 'relation ' || c.oid::regclass FROM pg_class c WHERE c.relnamespace::regnamespace::text !~ '^pg_|^information_schema$'
		UNION ALL SELECT 'type ' || t.oid::regtype FROM pg_type t WHERE t.typnamespace::regnamespace::text !~ '^pg_|^information_schema$'
		UNION ALL SELECT 'function ' || p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace::regnamespace::text !~ '^pg_|^information_schema$'`)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return list
}

func TestDownRemovesEverythingThatUpCreated(t *testing.T) {
	dsn := pgtest.Empty(t)
	conn := connect(t, dsn)
	require.Empty(t, leftovers(t, conn))
	for range 2 {
		applied, err := migrations.Up(t.Context(), dsn)
		require.NoError(t, err)
		require.Len(t, applied, int(migrations.Latest()))
		require.NoError(t, migrations.Check(t.Context(), conn))
		undone, err := migrations.Down(t.Context(), dsn, 0)
		require.NoError(t, err)
		require.Len(t, undone, int(migrations.Latest()))
		require.Empty(t, leftovers(t, conn))
	}
	undone, err := migrations.Down(t.Context(), dsn, 0)
	require.NoError(t, err, "down without a schema changes nothing")
	require.Empty(t, undone)
}

func TestConcurrentUpsAreSafe(t *testing.T) {
	dsn := pgtest.Empty(t)
	const daemons = 4
	var (
		wg    sync.WaitGroup
		total [daemons]int
		errs  [daemons]error
	)
	for i := range daemons {
		wg.Go(func() {
			applied, err := migrations.Up(t.Context(), dsn)
			total[i], errs[i] = len(applied), err
		})
	}
	wg.Wait()
	sum := 0
	for i := range daemons {
		require.NoError(t, errs[i])
		sum += total[i]
	}
	require.EqualValues(t, migrations.Latest(), sum, "each migration is applied once")
}

func TestCheckSaysWhatToDo(t *testing.T) {
	dsn := pgtest.Empty(t)
	conn := connect(t, dsn)
	require.EqualError(t, migrations.Check(t.Context(), conn), "the database has no schema dispatcherd: run 'dispatcherd migrate up'")

	_, err := migrations.Up(t.Context(), dsn)
	require.NoError(t, err)
	_, err = migrations.Down(t.Context(), dsn, 1)
	require.NoError(t, err)
	require.EqualError(
		t,
		migrations.Check(t.Context(), conn),
		fmt.Sprintf("the schema is at version 1 and this build needs %d: run 'dispatcherd migrate up'", migrations.Latest()),
	)

	_, err = conn.Exec(t.Context(), "INSERT INTO dispatcherd.schema_version (version_id, is_applied) VALUES (99, true)")
	require.NoError(t, err)
	require.EqualError(
		t,
		migrations.Check(t.Context(), conn),
		fmt.Sprintf("the schema is at version 99, newer than version %d of this build: install a newer dispatcherd", migrations.Latest()),
	)
}

// A daemon of the previous version may restart during a rolling upgrade.
func TestNewerSchemaStatesWhichProgramsCanUseIt(t *testing.T) {
	dsn := pgtest.New(t)
	conn := connect(t, dsn)
	exec(t, conn, "INSERT INTO dispatcherd.schema_version (version_id, is_applied) VALUES (99, true)")
	says := func(version int64) error {
		exec(
			t,
			conn,
			fmt.Sprintf("CREATE OR REPLACE FUNCTION dispatcherd.compatible_from() RETURNS bigint LANGUAGE sql AS 'SELECT %d::bigint'", version),
		)
		return migrations.Check(t.Context(), conn)
	}
	require.NoError(t, says(1))
	require.NoError(t, says(migrations.Latest()))
	require.Error(t, says(migrations.Latest()+1))
	exec(t, conn, "DROP FUNCTION dispatcherd.compatible_from()")
	require.ErrorContains(t, migrations.Check(t.Context(), conn), "newer than version")
	exec(t, conn, "DELETE FROM dispatcherd.schema_version WHERE version_id = 99")
	require.NoError(t, migrations.Check(t.Context(), conn), "the schema of the program itself needs no statement")
}

func TestEveryMigrationStatesWhichProgramsCanUseTheSchema(t *testing.T) {
	files, err := filepath.Glob("sql/*.sql")
	require.NoError(t, err)
	require.Len(t, files, int(migrations.Latest()))
	for _, file := range files[5:] { // the first migration that states it
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		up, down, found := strings.Cut(string(text), "-- +goose Down")
		require.True(t, found, file)
		require.Contains(t, up, "dispatcherd.compatible_from()", file)
		require.Contains(t, down, "dispatcherd.compatible_from()", file)
	}
}

func TestStatusChangesNothing(t *testing.T) {
	dsn := pgtest.Empty(t)
	conn := connect(t, dsn)
	list, err := migrations.Status(t.Context(), dsn)
	require.NoError(t, err)
	require.Len(t, list, int(migrations.Latest()))
	require.Nil(t, list[0].AppliedAt)
	require.Empty(t, leftovers(t, conn))

	_, err = migrations.Up(t.Context(), dsn)
	require.NoError(t, err)
	list, err = migrations.Status(t.Context(), dsn)
	require.NoError(t, err)
	require.Equal(t, migrations.Latest(), list[len(list)-1].Version)
	require.NotNil(t, list[len(list)-1].AppliedAt)
}
