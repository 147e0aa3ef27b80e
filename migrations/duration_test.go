package migrations_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/migrations"
)

const (
	beforeExpected  = 40 // the schema of daemons that know no expected durations
	expectedIndexed = 42 // daemons that know them can use the schema, and former ones, too
)

// The table and the programs must agree on the lane of a row.
func TestDurationClassInSQLIsThatOfThePrograms(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	require.Nil(t, one[*int16](t, conn, `SELECT dispatcherd.duration_class(NULL)`))
	for power := range 63 {
		for _, ms := range []int64{1<<power - 1, 1 << power, 1<<power + 1} {
			want := dispatcherd.ClassOf(time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond)
			if ms > 0 {
				require.EqualValues(t, want-1, one[int16](t, conn, `SELECT dispatcherd.duration_class($1)`, ms), ms)
			}
		}
	}
	require.EqualValues(
		t,
		dispatcherd.ClassOf(dispatcherd.MaxExpected)-1,
		one[int16](t, conn, `SELECT dispatcherd.duration_class(2147483647)`),
	)
}

// Postgres computes the class of each row that it inserts, so it must not call a function in SQL for that.
func TestDurationClassIsInlined(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	require.Contains(
		t,
		one[string](t, conn, `EXPLAIN (VERBOSE, FORMAT JSON) SELECT dispatcherd.duration_class(expected_ms) FROM dispatcherd.jobs_live`),
		"width_bucket",
	)
}

// A daemon of the former version runs beside the new schema. Producers cannot insert expected durations, and both versions can use the schema.
func TestExpectedDurationsWaitForDaemonsOfTheFormerVersion(t *testing.T) {
	dsn := pgtest.New(t)
	conn := connect(t, dsn)
	_, err := migrations.Down(t.Context(), dsn, beforeExpected)
	require.NoError(t, err)
	exec(t, conn, `INSERT INTO dispatcherd.dispatchers (name, lease, incarnation, program) VALUES ('old', '1 s', gen_random_uuid(), 40)`)
	_, err = migrations.Up(t.Context(), dsn)
	var postponed *migrations.PostponedError
	require.ErrorAs(t, err, &postponed)
	require.Equal(t, expectedIndexed, one[int](t, conn, `SELECT max(version_id) FROM dispatcherd.schema_version WHERE is_applied`))
	require.Equal(t, 37, one[int](t, conn, `SELECT dispatcherd.compatible_from()`))
	require.NoError(t, migrations.Check(t.Context(), conn), "this build can use the schema")
	const insert = `INSERT INTO dispatcherd.jobs (type, expected_ms) VALUES ('pdf', 1)`
	require.Error(t, attempt(t, conn, "dispatcherd_producer", insert))
	require.NotContains(t, one[string](t, conn, lanesOfPermit), "expected_ms")

	exec(t, conn, `UPDATE dispatcherd.dispatchers SET leaving = true`)
	_, err = migrations.Up(t.Context(), dsn)
	require.NoError(t, err)
	require.NoError(t, attempt(t, conn, "dispatcherd_producer", insert))
	require.Error(t, attempt(t, conn, "dispatcherd_operator", `UPDATE dispatcherd.jobs SET expected_ms = 1`), "it never changes")
	require.Contains(t, one[string](t, conn, lanesOfPermit), "expected_ms IS NULL")
	require.Equal(t, 41, one[int](t, conn, `SELECT dispatcherd.compatible_from()`))
}
