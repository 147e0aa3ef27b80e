package daemon

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	thisBoot  = "1d7f4b1e-8f0f-4a6e-9a53-0c6f8f3b2f11"
	otherBoot = "9b2f6d0c-1c35-4b53-8b0e-7d5a0f0c8e22"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() }) // some tests close it
	return f
}

func nameOf(t *testing.T, boot string, f *os.File) string {
	t.Helper()
	name, err := nameOn(boot, f)
	require.NoError(t, err)
	require.NotEmpty(t, name)
	return name
}

// recorded is a lock file with the record of a process on a host.
func recorded(t *testing.T, boot string) (path string, me lockRecord) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "w.sock.lock")
	f := open(t, path)
	me = lockRecord{nameOf(t, boot, f), []byte{1, 2, 15: 3}, 40 * time.Second}
	require.NoError(t, recordHolder(f, me))
	require.NoError(t, f.Close())
	return path, me
}

func TestPredecessorOnTheSameFileIsKnown(t *testing.T) {
	path, me := recorded(t, thisBoot)
	f := open(t, path)
	got, known := predecessorOf(f, nameOf(t, thisBoot, f))
	require.True(t, known)
	require.Equal(t, me, got)
}

func TestCopiedLockFileProvesNothing(t *testing.T) {
	path, _ := recorded(t, thisBoot)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	f := open(t, filepath.Join(t.TempDir(), "w.sock.lock"))
	_, err = f.Write(text)
	require.NoError(t, err)
	_, known := predecessorOf(f, nameOf(t, thisBoot, f))
	require.False(t, known)
}

// The directory of the original is renamed, and a copy gets its path. The dispatcher of
// the original still runs and holds the lock of the original file.
func TestCopyInPlaceOfTheOriginalProvesNothing(t *testing.T) {
	path, _ := recorded(t, thisBoot)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	original := open(t, path)
	require.NoError(t, syscall.Flock(int(original.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	require.NoError(t, os.Rename(path, path+".moved"))
	f := open(t, path)
	_, err = f.Write(text)
	require.NoError(t, err)
	require.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), "the lock is on another inode")
	_, known := predecessorOf(f, nameOf(t, thisBoot, f))
	require.False(t, known)
}

// A shared file system shows the same device and inode to both hosts, and may not
// enforce the lock between them.
func TestRecordOfAnotherHostProvesNothing(t *testing.T) {
	path, _ := recorded(t, otherBoot)
	f := open(t, path)
	_, known := predecessorOf(f, nameOf(t, thisBoot, f))
	require.False(t, known)
}

func TestHostWithoutBootIDProvesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.sock.lock")
	f := open(t, path)
	require.NoError(t, recordHolder(f, lockRecord{Incarnation: make([]byte, 16)}))
	_, known := predecessorOf(f, "")
	require.False(t, known)
}

func TestDamagedRecordProvesNothing(t *testing.T) {
	path, _ := recorded(t, thisBoot)
	f := open(t, path)
	name := nameOf(t, thisBoot, f)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	damaged := [][]byte{
		{}, []byte("null"), []byte("{}"), []byte(`{"lock":"` + name + `"}`), []byte(`{"lock":"` + name + `","incarnation":"00"}`),
		[]byte(`{"lock":"` + name + `","incarnation":"00000000000000000000000000000000"}`), []byte(`{"lock":"` + name + `","incarnation":"xyz"}`),
	}
	for n := range len(whole) - 2 {
		damaged = append(damaged, whole[:n])
	}
	for _, text := range damaged {
		require.NoError(t, os.WriteFile(path, text, 0o600)) // keeps the inode
		_, known := predecessorOf(f, name)
		require.False(t, known, "%q", text)
	}
}

func TestRecordReplacesALongerOne(t *testing.T) {
	path, _ := recorded(t, thisBoot)
	f := open(t, path)
	name := nameOf(t, thisBoot, f)
	_, err := f.WriteAt(make([]byte, 2000), 100)
	require.NoError(t, err)
	require.NoError(t, recordHolder(f, lockRecord{Lock: name, Incarnation: []byte{7, 15: 0}}))
	got, known := predecessorOf(f, name)
	require.True(t, known)
	require.Equal(t, []byte{7, 15: 0}, got.Incarnation)
}

func TestLinuxHostHasAName(t *testing.T) {
	if _, err := os.Stat(bootIDFile); err != nil {
		t.Skip("this system has no boot id")
	}
	f := open(t, filepath.Join(t.TempDir(), "lock"))
	name, err := lockName(f)
	require.NoError(t, err)
	require.Regexp(t, `^[0-9a-f-]{36} \d+ \d+$`, name)
}
