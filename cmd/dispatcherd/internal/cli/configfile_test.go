package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNearestNameHasTheFewestEdits(t *testing.T) {
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
