package console

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

func TestEachTableRowIsOneLine(t *testing.T) {
	var b strings.Builder
	require.NoError(t, writeTable(&b, []string{"id", "error"}, [][]string{
		{"1", "two\nlines\x1b[31m \u202efdp\u2028"}, {"22", ""}, {"333", "plain"},
	}))
	require.Equal(t, "ID   ERROR\n1    two lines<U+001B>[31m <U+202E>fdp \n22   -\n333  plain\n", b.String())
}

// Every kind of output is checked, because a terminal obeys whatever it receives.
func TestNoOutputContainsInvisibleCharacters(t *testing.T) {
	const foreign = "a\u202eb\u200b\u009b1m\x1b\U000e0041"
	for _, asJSON := range []bool{false, true} {
		var b strings.Builder
		c := &Console{Out: &b, Err: &b, Format: Format{JSON: asJSON}}
		c.Say("type %s", foreign)
		require.NoError(t, c.PrintLine("x", foreign, foreign))
		require.NoError(t, c.PrintRows("x", foreign, []string{"x"}, [][]string{{foreign}}))
		require.NoError(t, c.PrintFacts("x", foreign, func(add func(fact, format string, args ...any)) { add("x", "%s", foreign) }))
		require.NotContains(t, strings.Map(func(r rune) rune {
			if dispatcherd.Invisible(r) && r != '\n' {
				return '!'
			}
			return r
		}, strings.ReplaceAll(b.String(), "!", "")), "!", b.String())
	}
	var value string
	require.NoError(t, json.Unmarshal([]byte(`"`+replaceInvisible(foreign, jsonEscape)+`"`), &value))
	require.Equal(t, foreign, value, "JSON keeps the value")
}
