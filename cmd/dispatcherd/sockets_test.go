package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

func TestEverybodyHasADefaultSocketInADirectoryOfTheirOwn(t *testing.T) {
	for _, c := range []struct {
		uid  int
		env  map[string]string
		want string
	}{
		{0, map[string]string{"XDG_RUNTIME_DIR": "/run/user/0", "HOME": "/root"}, "/run/dispatcherd/worker.sock"},
		{7, map[string]string{"XDG_RUNTIME_DIR": "/run/user/7", "HOME": "/home/u"}, "/run/user/7/dispatcherd/worker.sock"},
		{7, map[string]string{"XDG_STATE_HOME": "/s", "HOME": "/home/u"}, "/s/dispatcherd/worker.sock"},
		{7, map[string]string{"HOME": "/home/u"}, "/home/u/.local/state/dispatcherd/worker.sock"},
		{7, nil, "/run/dispatcherd/worker.sock"},
	} {
		a := &app{uid: c.uid, env: func(name string) (string, bool) { v, ok := c.env[name]; return v, ok }}
		require.Equal(t, c.want, a.ownSocket("worker.sock"), "%+v", c)
	}
}

func TestADispatcherOfOnesOwnIsFoundFirst(t *testing.T) {
	dir := t.TempDir()
	own, system := filepath.Join(dir, "own.sock"), filepath.Join(dir, "system.sock")
	require.Equal(t, own, firstSocket(own, system), "neither is there: name the one that dev would make")
	for _, c := range []struct{ opened, found string }{{system, system}, {own, own}} {
		l, err := (&daemon{cfg: daemonConfig{SocketMode: 0o600}}).listen(c.opened)
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }()
		require.Equal(t, c.found, firstSocket(own, system))
	}
}

func TestDevLooksAtItsSocketsBeforeItMakesADatabase(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	long := filepath.Join(dir, strings.Repeat("x", 120))
	got := invocation{args: []string{"dev", "--data-dir", data, "--worker-socket", filepath.Join(dir, "w"), "--api-socket", long}}.runs(t)
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.err, "choose a shorter one")
	require.NoDirExists(t, data)
	require.NoFileExists(t, filepath.Join(dir, "w"), "the socket that was good is gone again")
}

func TestASecondDispatcherOnASocketIsToldThatTheFirstMayBeStopping(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w")
	held, err := workerproto.Listen(path, 0o600)
	require.NoError(t, err)
	defer func() { require.NoError(t, held.Close()) }()
	got := invocation{args: []string{"dev", "--data-dir", t.TempDir(), "--worker-socket", path, "--api-socket", path + "a"}}.runs(t)
	require.Equal(t, exitConflict, got.code)
	require.Contains(t, got.err, "is in use by another dispatcher")
	require.Contains(t, got.err, "one that was told to stop lets running jobs end first")
	_, err = (&daemon{cfg: daemonConfig{SocketMode: 0o600}}).listen(path)
	require.Equal(t, exitConflict, (&app{}).exitCode(t.Context(), err), "serve says the same")
}

func TestADeadSocketIsNotBlamedOnTheServer(t *testing.T) {
	got := invocation{args: []string{"slot", "list", "--api-socket", filepath.Join(t.TempDir(), "none.sock")}}.runs(t)
	require.Equal(t, exitUnavailable, got.code)
	require.Contains(t, got.err, "no dispatcher answers on ")
	require.NotContains(t, got.err, "Postgres")
	require.NotContains(t, got.err, "database")
}
