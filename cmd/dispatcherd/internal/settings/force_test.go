package settings

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// A link that leads nowhere would be written through.
func TestExistingFileIsNotOverwritten(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	require.NoError(t, MustBeNew("--file", filepath.Join(dir, "new"), link))
	require.NoError(t, os.Symlink("/does/not/exist", link))
	err := MustBeNew("--file", filepath.Join(dir, "new"), link)
	require.Equal(t, exit.Conflict, exit.CodeOf(t.Context(), err))
	require.ErrorContains(t, err, "--file: "+link+" is there already; give another name, or --force to replace it")
}
