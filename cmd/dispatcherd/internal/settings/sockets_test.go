package settings

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/workerproto"
)

func TestDefaultSocketIsInADirectoryOfTheUser(t *testing.T) {
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
		a := &Invocation{UID: c.uid, Env: func(name string) (string, bool) { v, ok := c.env[name]; return v, ok }}
		require.Equal(t, c.want, a.OwnSocket("worker.sock"), "%+v", c)
	}
}

func TestDispatcherOfTheUserIsFoundFirst(t *testing.T) {
	dir := t.TempDir()
	own, system := filepath.Join(dir, "own.sock"), filepath.Join(dir, "system.sock")
	require.Equal(t, own, firstSocket(own, system), "neither socket exists: the default is the one that dev would create")
	for _, c := range []struct{ opened, found string }{{system, system}, {own, own}} {
		l, err := workerproto.Listen(c.opened, 0o600)
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }()
		require.Equal(t, c.found, firstSocket(own, system))
	}
}
