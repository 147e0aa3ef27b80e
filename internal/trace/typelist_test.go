package trace

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestListOfTypesIsSplitAndJoined(t *testing.T) {
	for text, types := range map[string][]string{
		`pdf`:         {"pdf"},
		`excel|pdf`:   {"excel", "pdf"},
		`a\|b|c`:      {"a|b", "c"},
		`a\b|\c`:      {`a\b`, `\c`}, // a backslash that escapes nothing stays
		`a\\|b`:       {`a\`, "b"},
		`a\\\|b`:      {`a\|b`},
		`\\`:          {`\`},
		`|a|`:         {"", "a", ""}, // an empty type is refused by Load
		`größe\||\|ß`: {"größe|", "|ß"},
	} {
		require.Equal(t, types, splitTypes(text), text)
		require.Equal(t, text, joinTypes(types))
	}
}

func TestListOfTypesSurvivesARoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 20_000 {
		types := make([]string, 1+rng.IntN(4))
		for i := range types {
			for range 1 + rng.IntN(5) {
				types[i] += string(`|\a`[rng.IntN(3)])
			}
		}
		require.Equal(t, types, splitTypes(joinTypes(types)), joinTypes(types))
	}
}
