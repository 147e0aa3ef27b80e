package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dispatcherd/dispatcherd/internal/spelling"
)

func TestEditsIsAMetric(t *testing.T) {
	word := rapid.StringMatching(`[ab-]{0,6}`)
	rapid.Check(t, func(rt *rapid.T) {
		a, b, c := word.Draw(rt, "a"), word.Draw(rt, "b"), word.Draw(rt, "c")
		require.Equal(rt, a == b, spelling.Edits(a, b) == 0)
		require.Equal(rt, spelling.Edits(a, b), spelling.Edits(b, a))
		require.LessOrEqual(rt, spelling.Edits(a, c), spelling.Edits(a, b)+spelling.Edits(b, c))
		require.LessOrEqual(rt, spelling.Edits(a, b), max(len(a), len(b)))
	})
	require.Equal(t, 3, spelling.Edits("kitten", "sitting"))
	require.Equal(t, "worker-socket", Nearest("worker-sokcet", strings.Fields("weight-age worker-socket worker-token")))
	require.Equal(t, "fast", Nearest("fats", strings.Fields("pdf fast lease")), "two letters are exchanged")
	require.Equal(t, "poll", Nearest("pol", strings.Fields("beat poll lease")))
	require.Empty(t, Nearest("database", strings.Fields("beat name lease")), "no name is similar")
	require.Empty(t, Nearest("db", strings.Fields("beat o d")), "a name of two letters has no similar name")
}

func TestMissingFileIsAnErrorOnlyIfNamed(t *testing.T) {
	file, err := readConfig("/does/not/exist.toml", false)
	require.NoError(t, err)
	require.Empty(t, file.values)
	_, err = readConfig("/does/not/exist.toml", true)
	require.ErrorContains(t, err, "/does/not/exist.toml")
}
