package devpg

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// If root is the caller, the directory belongs to the user that Postgres runs as. This user may replace each file in it.
func TestFilesThatLeadOutOfTheDirectoryAreNotOpened(t *testing.T) {
	for name, c := range map[string]struct {
		replace func(t *testing.T, dir, precious string)
		want    string
	}{
		"a lock that is a link": {func(t *testing.T, dir, precious string) {
			require.NoError(t, os.Symlink(precious, filepath.Join(dir, "lock")))
		}, "path escapes from parent"},
		"a lock with a second name": {func(t *testing.T, dir, precious string) {
			require.NoError(t, os.Link(precious, filepath.Join(dir, "lock")))
		}, "lock is no lock of a private Postgres: remove it or choose another directory"},
		"a lock that is a pipe": {func(t *testing.T, dir, _ string) {
			require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "lock"), 0o600))
		}, "lock is no lock of a private Postgres: remove it or choose another directory"},
		"data that are a link": {func(t *testing.T, dir, precious string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600))
			require.NoError(t, os.Symlink(filepath.Dir(precious), filepath.Join(dir, "data")))
		}, "path escapes from parent"},
		"a version that is a pipe": {func(t *testing.T, dir, _ string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600))
			require.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
			require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "data", "PG_VERSION"), 0o600))
		}, "PG_VERSION is no regular file: remove it"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := reachableDir(t)
			precious := filepath.Join(filepath.Dir(dir), "PG_VERSION")
			require.NoError(t, os.WriteFile(precious, []byte("precious"), 0o600))
			require.NoError(t, os.Mkdir(dir, 0o700))
			c.replace(t, dir, precious)
			_, err := Start(t.Context(), Options{Dir: dir})
			require.ErrorContains(t, err, c.want)
			text, err := os.ReadFile(precious)
			require.NoError(t, err)
			require.Equal(t, "precious", string(text))
		})
	}
}

func TestUmaskOfRootDoesNotExcludePostgres(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	s := start(t, Options{Dir: filepath.Join(reachableDir(t), "state", "pg")})
	require.Equal(t, 1, ask[int](t, s.URL("postgres"), "SELECT 1"))
}
