package cli

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
		a := &Invocation{UID: c.uid, Env: c.env}
		require.Equal(t, c.want, a.OwnSocket("worker.sock"), "%+v", c)
	}
}

func TestDispatcherOfTheUserIsFoundFirst(t *testing.T) {
	dir := t.TempDir()
	own, system := filepath.Join(dir, "own.sock"), filepath.Join(dir, "system.sock")
	require.Equal(t, own, firstSocket(own, system), "neither socket exists: the default is the one that dev would create")
	for _, c := range []struct{ opened, found string }{{system, system}, {own, own}} {
		l, err := workerproto.Access{Mode: 0o600}.Listen(c.opened)
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }()
		require.Equal(t, c.found, firstSocket(own, system))
	}
}

func TestSocketSettingHasModeAndGroup(t *testing.T) {
	for text, want := range map[string]struct {
		path   string
		access workerproto.Access
	}{
		"/s":                              {"/s", workerproto.Access{}},
		"/s,mode=0600":                    {"/s", workerproto.Access{Mode: 0o600}},
		"/s,group=workers,mode=660":       {"/s", workerproto.Access{Mode: 0o660, Group: "workers"}},
		"/a,group=b/c":                    {"/a,group=b/c", workerproto.Access{}},
		"/a,b":                            {"/a,b", workerproto.Access{}},
		"/x,mode=0600/a=b,c,group=50":     {"/x,mode=0600/a=b,c", workerproto.Access{Group: "50"}},
		"/s,mode=0640,group=a b,mode=999": {},
		"/s,mode=0":                       {},
		"/s,mode=0660,mode=0600":          {},
		"/s,group=":                       {},
		"/s,grp=50":                       {},
	} {
		var path string
		var access workerproto.Access
		s := Socket(&path, &access)
		err := s.Set(text)
		require.Equal(t, want.path == "", err != nil, "%s: %v", text, err)
		require.Equal(t, want.path, path, text)
		require.Equal(t, want.access, access, text)
	}
}

// A text that is accepted is printed in a form that means the same.
func FuzzSocketSetting(f *testing.F) {
	f.Add("/run/w.sock,mode=0660,group=workers")
	f.Add("/a,b=c/d,group=1")
	f.Fuzz(func(t *testing.T, text string) {
		var path, again string
		var access, same workerproto.Access
		s := Socket(&path, &access)
		if s.Set(text) != nil {
			return
		}
		require.NoError(t, Socket(&again, &same).Set(s.String()))
		require.Equal(t, path, again)
		require.Equal(t, access, same)
	})
}
