package migrations_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// Values of keys that the table accepts and rejects. The message names the word and the rule.
func TestInvalidKeysAreRejectedWithTheWordAndTheRule(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	for _, keys := range []string{"k", "tenant:42 stripe*3 cache*all", "a b c d", "ä*1000000"} {
		exec(t, conn, `INSERT INTO dispatcherd.jobs (type, keys) VALUES ('pdf', $1)`, keys)
	}
	for keys, part := range map[string]string{
		"": `""`, " ": `""`, "a  b": `""`, "a*": `"a*"`, "a*0": `"a*0"`, "a*1000001": `"a*1000001"`, "*": `"*"`, "a*b": `"a*b"`,
		"a*2*3":     `"a*2*3"`,
		"a b c d e": "5 words", "a\tb": "KEY*COST", "a\n": "KEY*COST",
	} {
		_, err := conn.Exec(t.Context(), `INSERT INTO dispatcherd.jobs (type, keys) VALUES ('pdf', $1)`, keys)
		require.ErrorContains(t, err, part, "%q", keys)
		require.ErrorContains(t, err, "keys", "%q", keys)
	}
}

// The controller and the programs count per in seconds. A comparison of intervals takes a year for 360 days, so it would accept limits
// that no program can edit.
func TestWindowOfALimitIsBoundedInSeconds(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	const insert = `INSERT INTO dispatcherd.limits (key, rate, per) VALUES (replace($1::text, ' ', '-'), 1, $1::text::interval)`
	for _, per := range []string{"1 year 2 days", "-1 year 361 days"} {
		_, err := conn.Exec(t.Context(), insert, per)
		require.ErrorContains(t, err, "per_is_10_milliseconds_to_31622400_seconds", per)
	}
	for _, per := range []string{"366 days", "1 year", "12 months", "10 ms"} {
		_, err := conn.Exec(t.Context(), insert, per)
		require.NoError(t, err, per)
	}
}
