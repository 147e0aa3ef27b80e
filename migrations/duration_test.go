package migrations_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
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
