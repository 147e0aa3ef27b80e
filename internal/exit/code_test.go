package exit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/devpg"
)

func TestUnusableDirectoryIsAWrongSetting(t *testing.T) {
	require.Equal(t, Usage, CodeOf(t.Context(), &devpg.DirError{}))
}

// A driver that fails twice for the same reason reports the reason twice.
func TestRepeatedLineIsRemoved(t *testing.T) {
	require.Equal(t, "tried: a", Once("tried:\n\ta\n\ta"))
	require.Equal(t, "tried:\n\ta\n\tb", Once("tried:\n\ta\n\tb\n\ta"), "different lines remain")
}
