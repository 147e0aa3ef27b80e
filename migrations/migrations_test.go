package migrations_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
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

// list returns the rows of a query with one column.
func list[T any](t testing.TB, conn *pgx.Conn, query string, args ...any) []T {
	t.Helper()
	rows, err := conn.Query(t.Context(), query, args...)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[T])
	require.NoError(t, err)
	return all
}

// leftovers returns all objects outside the system schemas.
func leftovers(t testing.TB, conn *pgx.Conn) []string {
	t.Helper()
	return list[string](t, conn, `
		SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname !~ '^pg_|^information_schema$|^public$'
		UNION ALL SELECT 'relation ' || c.oid::regclass FROM pg_class c WHERE c.relnamespace::regnamespace::text !~ '^pg_|^information_schema$'
		UNION ALL SELECT 'type ' || t.oid::regtype FROM pg_type t WHERE t.typnamespace::regnamespace::text !~ '^pg_|^information_schema$'
		UNION ALL SELECT 'function ' || p.oid::regprocedure FROM pg_proc p
			WHERE p.pronamespace::regnamespace::text !~ '^pg_|^information_schema$'`)
}

// Each role that can connect may create temporary objects that depend on objects of the schema.
func TestDownRemovesWhatDependsOnTheSchemaInOtherSessions(t *testing.T) {
	dsn := pgtest.New(t)
	conn := connect(t, dsn)
	exec(t, conn, `SET ROLE dispatcherd_producer`)
	exec(t, conn, `CREATE TEMP VIEW ids AS SELECT id FROM dispatcherd.jobs; CREATE TEMP TABLE copies AS SELECT id FROM dispatcherd.jobs;
		CREATE TEMP TABLE payloads (p dispatcherd.payload, n bigint DEFAULT nextval('dispatcherd.job_ids'));
		CREATE FUNCTION pg_temp.f(dispatcherd.payload) RETURNS int LANGUAGE sql AS 'SELECT 1';
		CREATE TYPE pg_temp.pair AS (p dispatcherd.payload); CREATE DOMAIN pg_temp.own AS dispatcherd.priority;
		CREATE INDEX ON payloads (dispatcherd.duration_class(n)); CREATE TEMP TABLE parts (s dispatcherd.status) PARTITION BY LIST (s)`)
	removed, err := migrations.Down(t.Context(), dsn)
	require.NoError(t, err)
	require.True(t, removed)
	_, err = migrations.Up(t.Context(), dsn)
	require.NoError(t, err)
}

func TestDownRemovesEverythingThatUpCreated(t *testing.T) {
	dsn := pgtest.Empty(t)
	conn := connect(t, dsn)
	require.Empty(t, leftovers(t, conn))
	for range 2 {
		applied, err := migrations.Up(t.Context(), dsn)
		require.NoError(t, err)
		require.Equal(t, []int64{migrations.Baseline}, applied)
		require.NoError(t, migrations.Check(t.Context(), conn))
		removed, err := migrations.Down(t.Context(), dsn)
		require.NoError(t, err)
		require.True(t, removed)
		require.Empty(t, leftovers(t, conn))
	}
	removed, err := migrations.Down(t.Context(), dsn)
	require.NoError(t, err, "down without a schema changes nothing")
	require.False(t, removed)
}

// The encoding of the database has no character of the SQL files that is not ASCII.
func TestSchemaFitsADatabaseOfAnotherEncoding(t *testing.T) {
	dsn := pgtest.Empty(t)
	const name = "dispatcherd_latin9"
	owner := connect(t, dsn)
	_, err := owner.Exec(t.Context(), `CREATE DATABASE `+name+` TEMPLATE template0 ENCODING 'LATIN9' LC_COLLATE 'C' LC_CTYPE 'C'`)
	require.NoError(t, err)
	defer func() {
		_, err := owner.Exec(context.Background(), `DROP DATABASE `+name)
		require.NoError(t, err)
	}()
	other, err := url.Parse(dsn)
	require.NoError(t, err)
	other.Path = "/" + name
	applied, err := migrations.Up(t.Context(), other.String())
	require.NoError(t, err)
	require.Equal(t, []int64{migrations.Baseline}, applied)
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
	require.Equal(t, 1, sum, "the baseline is created once")
}

func TestStatusChangesNothing(t *testing.T) {
	dsn := pgtest.Empty(t)
	conn := connect(t, dsn)
	steps, err := migrations.Status(t.Context(), dsn)
	require.NoError(t, err)
	require.Equal(t, []migrations.Migration{{Version: migrations.Baseline, Name: "baseline"}}, steps)
	require.Empty(t, leftovers(t, conn))
	require.EqualError(t, migrations.Check(t.Context(), conn), "the database has no schema dispatcherd: run 'dispatcherd migrate up'")

	_, err = migrations.Up(t.Context(), dsn)
	require.NoError(t, err)
	steps, err = migrations.Status(t.Context(), dsn)
	require.NoError(t, err)
	require.Len(t, steps, 1)
	require.NotNil(t, steps[0].AppliedAt)
}

func TestObjectsOfNoInstallationAreNamed(t *testing.T) {
	for _, object := range []string{"TABLE dispatcherd.jobs ()", "DOMAIN dispatcherd.job_id AS bigint"} {
		dsn := pgtest.Empty(t)
		exec(t, connect(t, dsn), `CREATE SCHEMA dispatcherd; CREATE `+object)
		_, err := migrations.Up(t.Context(), dsn)
		require.ErrorContains(t, err, "the schema dispatcherd contains objects, but no installation of any version. Recreate it, which "+
			"deletes them: dispatcherd migrate down --yes && dispatcherd migrate up")
		removed, err := migrations.Down(t.Context(), dsn)
		require.NoError(t, err)
		require.True(t, removed)
		_, err = migrations.Up(t.Context(), dsn)
		require.NoError(t, err)
	}
}

// Builds before the first release made schemas of other versions: 1 to 44 as numbered migrations, and one number per baseline.
func TestSchemaOfAnotherBuildIsRefusedAndNotChanged(t *testing.T) {
	for _, c := range []struct {
		first, last int
		of          string
	}{{1, 44, "an earlier build"},
		{migrations.Baseline - 1, migrations.Baseline - 1, "an earlier build"},
		{migrations.Baseline + 1, migrations.Baseline + 1, "a later build"},
	} {
		dsn := pgtest.Empty(t)
		conn := connect(t, dsn)
		exec(t, conn, `CREATE SCHEMA dispatcherd; CREATE TABLE dispatcherd.jobs (id bigint, type text)`)
		exec(t, conn, `CREATE TABLE dispatcherd.schema_version (
			id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, version_id bigint NOT NULL, is_applied boolean NOT NULL,
				tstamp timestamp NOT NULL DEFAULT now())`)
		exec(t, conn, `INSERT INTO dispatcherd.schema_version (version_id, is_applied) SELECT 0, true
			UNION ALL SELECT v, true FROM generate_series($1::int, $2::int) v`, c.first, c.last)
		before := append(leftovers(t, conn), list[string](t, conn, `SELECT v::text FROM dispatcherd.schema_version v`)...)

		_, up := migrations.Up(t.Context(), dsn)
		_, status := migrations.Status(t.Context(), dsn)
		for _, err := range []error{up, status, migrations.Check(t.Context(), conn)} {
			var version *migrations.VersionError
			require.ErrorAs(t, err, &version)
			require.EqualError(t, err, fmt.Sprintf("the schema dispatcherd is version %d of %s, and this build needs version %d. "+
				"Before the first release there is no upgrade from one to the other. Nothing was changed. Run the program that made the schema, "+
				"or recreate it, which deletes all jobs, schedules and limits: dispatcherd migrate down --yes && dispatcherd migrate up",
				c.last, c.of, migrations.Baseline))
		}
		require.Equal(t, before, append(leftovers(t, conn), list[string](t, conn, `SELECT v::text FROM dispatcherd.schema_version v`)...))

		removed, err := migrations.Down(t.Context(), dsn)
		require.NoError(t, err)
		require.True(t, removed)
		_, err = migrations.Up(t.Context(), dsn)
		require.NoError(t, err)
		require.NoError(t, migrations.Check(t.Context(), conn))
	}
}
