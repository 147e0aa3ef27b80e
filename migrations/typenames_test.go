package migrations_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
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

// The table accepts exactly the types that every program accepts.
func FuzzType(f *testing.F) {
	conn := connect(f, pgtest.New(f))
	for _, name := range []string{"pdf", "", "a b", "payroll\u200b", "\u202efdp", "a\u2028", "é", "\xff", "\U000e0041",
		strings.Repeat("é", 64), strings.Repeat("é", 65)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		_, err := conn.Exec(t.Context(), `SELECT $1::text::dispatcherd.job_type`, name)
		require.Equal(t, dispatcherd.CheckType(name) == nil, err == nil, "%q: %v", name, err)
	})
}
