package settings

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// CHANGELOG.md lists every removed setting, with its replacement on the same line, and every
// removed command.
func TestChangelogListsRemovedSettings(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "CHANGELOG.md"))
	require.NoError(t, err)
	for _, r := range removed {
		line := regexp.MustCompile("(?m)^.*`--" + r.name + "`.*$").FindString(string(text))
		require.NotEmpty(t, line, r.name)
		if r.instead != "" {
			require.Contains(t, line, "--"+r.instead)
		}
	}
	for path := range removedCommands {
		require.Contains(t, string(text), "command `"+strings.TrimPrefix(path, "dispatcherd ")+"`")
	}
}
