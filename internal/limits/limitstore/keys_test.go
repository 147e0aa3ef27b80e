package limitstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// The key itself applies before a prefix, and a longer prefix before a shorter one, as for the controller.
func TestLimitOfTheLongestPrefixApplies(t *testing.T) {
	conn := connect(t)
	ctx := t.Context()
	k := Keys{DB: conn}
	of := func(key string) string {
		applies, err := k.Limits(ctx, []string{key})
		require.NoError(t, err)
		return applies[key].Key
	}
	require.Equal(t, "tenant:42", of("tenant:42"), "the default")
	for _, step := range []struct{ add, key, want string }{
		{"*", "tenant:42", "*"}, {"t*", "tenant:42", "t*"}, {"tenant:*", "tenant:42", "tenant:*"}, {"x*", "tenant:42", "tenant:*"},
		{"tenant:42*", "tenant:42", "tenant:42*"}, {"tenant:42", "tenant:42", "tenant:42"}, {"кл*", "ключ", "кл*"},
		{"tenant:421", "tenant:4", "tenant:*"}, {"y", "tenant:", "tenant:*"},
	} {
		_, err := Limits{DB: conn}.Set(ctx, contract.NewLimit(step.add))
		require.NoError(t, err)
		require.Equal(t, step.want, of(step.key), step.add)
	}
}

// Show reads at most 10,000 classes, but always those with exactly the key. It counts returned rows among the waiting ones.
func TestKeyAfterManyClassesIsExplained(t *testing.T) {
	conn := connect(t)
	ctx := t.Context()
	k := Keys{DB: conn}
	exec := func(sql string) {
		t.Helper()
		_, err := conn.Exec(ctx, sql)
		require.NoError(t, err)
	}
	exec(`INSERT INTO dispatcherd.jobs (type, keys) SELECT 'x', 'z' FROM generate_series(1, 3)`)
	exec(`INSERT INTO dispatcherd.jobs (type, priority, keys) VALUES ('y', 3, 'z'), ('x', 0, 'a z*2'), ('x', 0, 'z*2')`)
	exec(`UPDATE dispatcherd.jobs SET run_at = '2026-01-01 00:00Z'`)
	exec(`INSERT INTO dispatcherd.jobs (type, keys, run_at) SELECT 'x', 'z*all', '2199-01-01'`)
	s, err := k.Show(ctx, "z")
	require.NoError(t, err)
	require.False(t, s.Incomplete)
	require.Equal(t, 7, s.Waiting)
	require.Equal(t, 5, s.Classes)
	require.Nil(t, s.Next, "the table does not say which job the controller admits next")
	require.Equal(t, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), s.Oldest.UTC())
	require.Nil(t, s.Controller)

	exec(`UPDATE dispatcherd.jobs SET fence = -5 WHERE id = 1`)
	exec(`UPDATE dispatcherd.jobs SET fence = 7 WHERE id IN (2, 6)`)
	exec(`INSERT INTO dispatcherd.jobs (type, keys) SELECT 'x', 'k' || i FROM generate_series(1, 10000) i`)
	s, err = k.Show(ctx, "z")
	require.NoError(t, err)
	require.True(t, s.Incomplete)
	require.Equal(t, 5, s.Waiting, "two with exactly the key, one before and one behind it, and the returned one")
	require.EqualValues(t, 3, s.Held)
	require.Equal(t, 2, s.Holders)
	require.Equal(t, []int64{1, 2}, []int64{s.Jobs[0].Cost, s.Jobs[1].Cost})
	page, err := k.List(ctx, "", "k9", 2)
	require.NoError(t, err)
	require.True(t, page.Incomplete)
	require.Len(t, page.Items, 2)
	require.Equal(t, contract.Cursor(page.Items[1].Key), page.Next)
	_, err = k.Show(ctx, "z*2")
	require.ErrorIs(t, err, ErrInvalid)
}

// Jobs without keys do not slow down the statement about holders.
func TestHoldersAreReadByTheIndexOfPermits(t *testing.T) {
	conn := connect(t)
	ctx := t.Context()
	_, err := conn.Exec(ctx, `INSERT INTO dispatcherd.jobs (type) SELECT 'x' FROM generate_series(1, 20000)`)
	require.NoError(t, err)
	_, err = conn.Exec(ctx, `INSERT INTO dispatcherd.jobs (type, keys) SELECT 'x', 'k' || i % 10 FROM generate_series(1, 1000) i`)
	require.NoError(t, err)
	_, err = conn.Exec(ctx, `ANALYZE dispatcherd.jobs_live`)
	require.NoError(t, err)
	_, err = conn.Exec(ctx, `PREPARE holders (text[], bigint) AS `+holdersSQL)
	require.NoError(t, err)
	rows, _ := conn.Query(ctx, fmt.Sprintf(`EXPLAIN EXECUTE holders('{k1}', %d)`, maxPermits))
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, strings.Join(plan, "\n"), "jobs_live_permits")
}
