package devpg

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeInstall creates a folder that looks like an installation of a version.
func fakeInstall(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + "'\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "postgres"), []byte(script), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "initdb"), []byte(script), 0o755))
	return dir
}

func TestNewestInstallationIsFirst(t *testing.T) {
	old, beta, middle := fakeInstall(t, "9.6.24"), fakeInstall(t, "19beta2"), fakeInstall(t, "15.18 (Debian 15.18-0)")
	broken := fakeInstall(t, "15.1")
	require.NoError(t, os.Remove(filepath.Join(broken, "initdb")))
	require.Equal(t, []Install{{beta, 19}, {middle, 15}, {old, 9}},
		installs([]string{old, middle, broken, beta, middle, "/does/not/exist"}))
}

func TestLinkToPostgresIsFollowedToItsFolder(t *testing.T) {
	home, bin := fakeInstall(t, "16.2"), t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(home, "postgres"), filepath.Join(bin, "postgres")))
	require.Equal(t, []Install{{home, 16}}, installs([]string{bin}))
}

func TestInstallationOfThisMachineIsFound(t *testing.T) {
	in, err := (&Server{root: openRoot(t, t.TempDir())}).chooseInstall()
	require.NoError(t, err)
	require.GreaterOrEqual(t, in.Version, MinVersion)
	require.FileExists(t, filepath.Join(in.BinDir, "initdb"))
}

func TestErrorOfAMissingPostgresNamesCommands(t *testing.T) {
	err := missing([]Install{{"/usr/lib/postgresql/11/bin", 11}})
	require.ErrorIs(t, err, ErrMissing)
	require.ErrorContains(
		t,
		err,
		"version 14 or newer is needed (/usr/lib/postgresql/11/bin has version 11); install it, such as with 'apt-get install postgresql'",
	)
}

func TestOnlyVersionLinesOfServersAreParsed(t *testing.T) {
	for _, line := range []string{"", "postgres", "psql (PostgreSQL) ", "postgres (MySQL) 8", "(PostgreSQL) x"} {
		_, err := parseVersion(line)
		require.ErrorContains(t, err, "is not the version line", line)
	}
}
