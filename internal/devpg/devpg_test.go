package devpg

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// reachableDir returns a path that does not exist yet, in a directory that an unprivileged owner
// may enter, unlike t.TempDir of root.
func reachableDir(t *testing.T) string {
	t.Helper()
	parent, err := os.MkdirTemp("/tmp", "devpg-test-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(parent, 0o755))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(parent)) })
	return filepath.Join(parent, "pg")
}

func openRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, root.Close()) })
	return root
}

func start(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s
}

// ask runs a statement and returns its single value.
func ask[T any](t *testing.T, url, sql string) T {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	var v T
	require.NoError(t, conn.QueryRow(context.Background(), sql).Scan(&v))
	return v
}

func TestEphemeralServerAnswersAndRemovesItsData(t *testing.T) {
	s := start(t, Options{Ephemeral: true, Settings: map[string]string{"shared_buffers": "32MB"}})
	require.Equal(t, "32MB", ask[string](t, s.URL("postgres"), "SHOW shared_buffers"), "a setting overrides the default")
	require.Equal(t, "off", ask[string](t, s.URL("postgres"), "SHOW fsync"))
	require.Empty(t, ask[string](t, s.URL("postgres"), "SHOW listen_addresses"))

	info, err := os.Stat(s.dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.NotZero(t, postmasterOf(s.root))

	require.NoError(t, s.Stop())
	require.NoError(t, s.Stop(), "a second Stop has no effect")
	require.NoDirExists(t, s.dir)
	<-s.Done()
}

func TestDataRemainAfterStop(t *testing.T) {
	dir := reachableDir(t)
	first := start(t, Options{Dir: dir})
	require.Equal(t, "on", ask[string](t, first.URL("postgres"), "SHOW fsync"))
	ask[int](t, first.URL("postgres"), "WITH t AS (SELECT 1) SELECT 1 FROM t")
	require.Equal(t, 42, ask[int](t, first.URL("postgres"), "SELECT lo_create(42)::int"))
	require.NoError(t, first.Stop())
	require.Zero(t, postmasterOf(openRoot(t, dir)))

	second := start(t, Options{Dir: dir})
	require.Equal(t, 42, ask[int](t, second.URL("postgres"), "SELECT oid::int FROM pg_largeobject_metadata"), "it was kept")
	require.Equal(t, first.URL("x"), second.URL("x"), "the URL is the same in each run")
}

func TestSecondServerOnADirectoryIsRejected(t *testing.T) {
	dir := reachableDir(t)
	first := start(t, Options{Dir: dir})

	_, err := Start(t.Context(), Options{Dir: dir})
	var inUse *InUseError
	require.ErrorAs(t, err, &inUse)
	require.Equal(t, os.Getpid(), inUse.PID)
	require.Equal(t, 1, ask[int](t, inUse.URL, "SELECT 1"), "the URL in the error works")
	require.Contains(t, err.Error(), dir)
	require.Equal(t, 1, ask[int](t, first.URL("postgres"), "SELECT 1"), "the first still runs")
}

func TestLongDirectoryNameGetsAShortSocketPath(t *testing.T) {
	dir := filepath.Join(reachableDir(t), strings.Repeat("long", 30))
	s := start(t, Options{Dir: dir})
	require.LessOrEqual(t, len(socketFile(s.socket)), maxSocketPath)
	require.Equal(t, 1, ask[int](t, s.URL("postgres"), "SELECT 1"))
	require.NoError(t, s.Stop())
	require.NoDirExists(t, s.socket)
}

func TestInterruptedInitdbIsRepeated(t *testing.T) {
	dir := reachableDir(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "data.new", "base"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600))
	s := start(t, Options{Dir: dir})
	require.Equal(t, 1, ask[int](t, s.URL("postgres"), "SELECT 1"))
	require.NoDirExists(t, filepath.Join(dir, "data.new"))
}

func TestUnsuitableDirectoriesAreRejectedAndUnchanged(t *testing.T) {
	foreign := reachableDir(t)
	require.NoError(t, os.Mkdir(foreign, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "letters.txt"), nil, 0o644))
	_, err := Start(t.Context(), Options{Dir: foreign})
	require.ErrorAs(t, err, new(*DirError))
	require.EqualError(t, err, foreign+" is not empty and holds no private Postgres: choose another directory")
	info, err := os.Stat(foreign)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode().Perm())
	require.NoFileExists(t, filepath.Join(foreign, "lock"))

	old := reachableDir(t)
	require.NoError(t, os.MkdirAll(filepath.Join(old, "data"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(old, "lock"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(old, "data", "PG_VERSION"), []byte("9\n"), 0o600))
	_, err = Start(t.Context(), Options{Dir: old})
	require.ErrorContains(t, err, "were written by Postgres 9, but this machine has Postgres")
	require.ErrorContains(t, err, "install version 9, or move the directory away")

	_, err = Start(t.Context(), Options{Dir: old, Ephemeral: true})
	require.ErrorContains(t, err, "cannot be ephemeral")
}

// The directory above is closed to the user that Postgres runs as instead of root.
func TestDirectoryOutOfReachIsRejected(t *testing.T) {
	if os.Geteuid() != 0 {
		require.False(t, mustOwner(t).drop, "other callers run Postgres themselves")
		return
	}
	dir := reachableDir(t)
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o700))
	_, err := Start(t.Context(), Options{Dir: dir})
	require.ErrorAs(t, err, new(*DirError))
	require.ErrorContains(t, err, "cannot open "+dir+", because a directory above it is closed: choose another directory")
}

func TestInvalidSettingIsReportedWithTheServersMessage(t *testing.T) {
	_, err := Start(t.Context(), Options{Ephemeral: true, Settings: map[string]string{"work_mem": "plenty"}})
	require.ErrorContains(t, err, "it exited")
	require.ErrorContains(t, err, `invalid value for parameter "work_mem": "plenty"`)
	dir := regexp.MustCompile(`in (\S+):`).FindStringSubmatch(err.Error())
	require.Len(t, dir, 2, "%v", err)
	require.NoDirExists(t, dir[1])
}
