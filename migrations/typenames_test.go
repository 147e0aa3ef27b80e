package migrations_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/migrations"
	"github.com/stretchr/testify/require"
)

func TestTableRejectsExactlyTheCharactersThatGoRejects(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	rule := one[string](t, conn, `SELECT string_agg(substring(pg_get_constraintdef(oid) FROM '^CHECK (.*?)( NOT VALID)?$'), ' AND ')
		FROM pg_constraint WHERE contypid = 'dispatcherd.job_type'::regtype`)
	rejected := one[[]int32](t, conn, `SELECT array_agg(i ORDER BY i) FROM generate_series(1, 1114111) i
		WHERE i NOT BETWEEN 55296 AND 57343 AND NOT (`+strings.ReplaceAll(rule, "VALUE", "chr(i)")+`)`)
	var want []int32
	for r := rune(1); r <= utf8.MaxRune; r++ {
		if dispatcherd.CheckType(string(r)) != nil && utf8.ValidRune(r) {
			want = append(want, r)
		}
	}
	require.Equal(t, want, rejected)
}

// Rows with such types do not stop the migration, and can be cancelled and retried after it.
func TestRowsWithInvisibleCharactersSurviveTheMigration(t *testing.T) {
	url := pgtest.New(t)
	_, err := migrations.Down(t.Context(), url, 17)
	require.NoError(t, err)
	conn := connect(t, url)
	exec(t, conn, `INSERT INTO dispatcherd.jobs (type) VALUES (E'payroll\u200b')`)
	_, err = migrations.Up(t.Context(), url)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `INSERT INTO dispatcherd.jobs (type) VALUES (E'payroll\u200b')`)
	require.ErrorContains(t, err, "type_has_no_invisible_character")

	exec(t, conn, `UPDATE dispatcherd.jobs SET status = 'cancelled', finished_at = now()`)
	require.Equal(t, 1, one[int](t, conn, `SELECT dispatcherd.retry_jobs(array_agg(id)) FROM dispatcherd.jobs`))
	require.Equal(t, "payroll\u200b pending", one[string](t, conn, `SELECT type || ' ' || status FROM dispatcherd.jobs`))
}

// The table accepts exactly the types that every program accepts.
func FuzzType(f *testing.F) {
	conn := connect(f, pgtest.New(f))
	for _, name := range []string{"pdf", "", "a b", "payroll\u200b", "\u202efdp", "a\u2028", "é", "\xff", "\U000e0041", strings.Repeat("é", 64), strings.Repeat("é", 65)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		_, err := conn.Exec(t.Context(), `SELECT $1::text::dispatcherd.job_type`, name)
		require.Equal(t, dispatcherd.CheckType(name) == nil, err == nil, "%q: %v", name, err)
	})
}
