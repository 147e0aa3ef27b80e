package limitstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// handWritten are values at the bounds of the rules for keys, and beside them.
func handWritten() []string {
	long := func(n int) string { return strings.Repeat("k", n) }
	wide := func(n int) string { return strings.Repeat("日", n) }
	return []string{
		"",
		" ",
		"  ",
		"a",
		" a",
		"a ",
		"a  b",
		"a b c d",
		"a b c d e",
		"a b c d ",
		"a a a a",
		"tenant:42 stripe*3 cache*all",
		long(128),
		long(129),
		wide(128),
		wide(129),
		strings.Repeat("😀", 128),
		long(128) + "*1000000",
		long(127) + "é",
		strings.Repeat(
			wide(80)+" ",
			3,
		) + wide(
			80,
		),
		strings.Repeat(wide(100)+" ", 3) + wide(32),
		wide(110) + " " + wide(110) + " " + wide(112) + " k",
		wide(110) + " " + wide(110) + " " + wide(112) + " kk",
		strings.Repeat("😀", 128) + " " + strings.Repeat("😀", 123),
		"a*",
		"a**",
		"a*0",
		"a*1",
		"a*01",
		"a*-1",
		"a*+1",
		"a*1 ",
		"a*1.5",
		"a*999999",
		"a*1000000",
		"a*1000001",
		"a*10000000",
		"a*9999999999999999999",
		"a*1_0",
		"a*all",
		"a*ALL",
		"a*all*1",
		"a*1*1",
		"*",
		"*1",
		"*all",
		"all",
		"all*all",
		"a*１",
		"a*٣",
		"a*1\n",
		"a\n",
		"\na",
		"a\nb",
		"a\tb",
		"a\x01",
		"a\x1f",
		"a\x7f",
		"a\u0080",
		"a\u00a0b",
		"a\u2028b",
		"\ufeff",
		"a\u200b",
		"é",
		"e\u0301",
		"ключ:1*2",
		"a*1 b*all c d*7",
		`a"b`,
		`a'b`,
		`a\b`,
		`a%sb`,
		"[^a]",
		"a|b",
		"$",
		"^",
	}
}

// generated returns values of random words.
func generated(n int) (values []string) {
	r := rand.New(rand.NewPCG(1, 2))
	parts := []string{"a", "b", "*", "*", " ", " ", "1", "0", "9", "all", "é", "日本", "\n", "\x7f", "\u00a0", "-", ":", "tenant", "1000000"}
	for range n {
		var b strings.Builder
		for range 1 + r.IntN(8) {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		values = append(values, b.String())
	}
	return values
}

// The constraint of jobs, the constraint of schedules and Parse accept the same values, and reject the others with the same text.
func TestPostgresAndParseHaveTheSameRulesForKeys(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), pgtest.New(t))
	require.NoError(t, err)
	defer conn.Close(t.Context())
	accepted := 0
	for i, keys := range append(handWritten(), generated(3000)...) {
		_, parsed := permits.Parse(keys)
		_, inserted := conn.Exec(t.Context(), `INSERT INTO dispatcherd.jobs (type, keys) VALUES ('x', $1)`, keys)
		_, scheduled := conn.Exec(t.Context(),
			`INSERT INTO dispatcherd.schedules (name, kind, spec, type, keys) VALUES ($2, 'cron', '@daily', 'x', $1)`, keys,
			fmt.Sprint("s", i))
		if parsed == nil {
			accepted++
			require.NoError(t, inserted, "%q", keys)
			require.NoError(t, scheduled, "%q", keys)
			continue
		}
		for _, err := range []error{inserted, scheduled} {
			pg, ok := errors.AsType[*pgconn.PgError](err)
			require.True(t, ok, "%q: %v, but Parse: %v", keys, err, parsed)
			require.Equal(t, "keys_are_1_to_4_words", pg.ConstraintName)
			if text := fmt.Sprintf("%q", keys); text == `"`+keys+`"` { // Go escapes special characters
				require.True(t, strings.EqualFold(parsed.Error(), pg.Message+": "+strings.TrimSuffix(pg.Hint, ".")), "%s\n%s: %s",
					parsed, pg.Message, pg.Hint)
			}
		}
	}
	require.Greater(t, accepted, 100)
}

func TestKeysThatAreNotUTF8AreRejected(t *testing.T) {
	for _, keys := range []string{"\xff", "a\xc3", "a\x00b"} {
		_, err := permits.Parse(keys)
		require.Error(t, err, "%q", keys)
	}
}
