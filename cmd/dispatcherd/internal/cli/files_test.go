package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// A plain write would follow a link to a missing file.
func TestExistingFileIsNotOverwritten(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	require.NoError(t, MustBeNew("--file", filepath.Join(dir, "new"), link))
	require.NoError(t, os.Symlink("/does/not/exist", link))
	err := MustBeNew("--file", filepath.Join(dir, "new"), link)
	require.Equal(t, exit.Conflict, exit.CodeOf(t.Context(), err))
	require.ErrorContains(t, err, "--file: "+link+" exists; give another name, or --force to replace it")
}
