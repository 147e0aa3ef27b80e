package e2e

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// manager acts like systemd: it holds the sockets and receives the service's messages.
type manager struct {
	w       *world
	sockets []*os.File
	notices chan string
	env     []string
}

func (w *world) manager(paths ...string) *manager {
	w.t.Helper()
	m := &manager{w: w, notices: make(chan string, 1000)}
	for _, path := range paths {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		require.NoError(w.t, err)
		file, err := l.File()
		require.NoError(w.t, err)
		w.t.Cleanup(func() {
			require.NoError(w.t, file.Close())
			require.NoError(w.t, l.Close()) // fails if the service has removed the socket
		})
		m.sockets = append(m.sockets, file)
	}
	address := filepath.Join(w.dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	require.NoError(w.t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for buf := make([]byte, 1024); ; {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			m.notices <- string(buf[:n])
		}
	}()
	w.t.Cleanup(func() {
		require.NoError(w.t, conn.Close())
		<-ended
	})
	m.env = []string{"NOTIFY_SOCKET=" + address, "WATCHDOG_USEC=200000"}
	return m
}

// starts runs the program as systemd does. The shell sets LISTEN_PID to its own pid, which the
// program inherits by exec.
func (m *manager) starts(args ...string) *child {
	m.w.t.Helper()
	line := append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@" --config=`, programPath(m.w.t)}, args...)
	cmd := exec.Command("sh", line...)
	cmd.ExtraFiles = m.sockets
	cmd.Env = append(programEnv(), "DATABASE_URL="+m.w.dsn, "LISTEN_FDS=2")
	cmd.Env = append(cmd.Env, m.env...)
	return startCommand(m.w.t, cmd)
}

func (m *manager) hears(want string) {
	m.w.t.Helper()
	timeout := time.After(longWait)
	for {
		select {
		case got := <-m.notices:
			if got == want {
				return
			}
		case <-timeout:
			require.FailNow(m.w.t, "the service did not send "+want)
		}
	}
}

func TestSystemdSocketsOutliveTheDaemon(t *testing.T) {
	w := newWorld(t)
	workers, api := filepath.Join(w.dir, "worker.sock"), filepath.Join(w.dir, "api.sock")
	m := w.manager(workers, api)
	serve := []string{"serve", "--worker-socket", workers, "--api-socket", api}
	d := m.starts(serve...)
	m.hears("READY=1")
	m.hears("WATCHDOG=1")
	d.signal(t, syscall.SIGHUP) // there is nothing to reload, and the daemon continues
	eventually(t, func() bool { return strings.Contains(d.errors.text(), "no such file is used") }, d.errors.text)
	m.hears("WATCHDOG=1")
	r := helloRaw(t, workers, "x")
	job := w.insert("x", work{})
	r.say(`{"op":"done","job":%d,"attempt":1,"session":"%s"}`, r.expect("job").Job, r.nonce)
	w.await(job, dispatcherd.Done)
	_, err := askAPI(daemon.Config{APISocket: api}, "/livez")
	require.NoError(t, err)
	d.signal(t, syscall.SIGTERM)
	m.hears("STOPPING=1")
	d.ends(t, exit.OK)

	waiting := dialRaw(t, workers) // no daemon runs, but the connection is accepted by the kernel
	waiting.say(`{"op":"hello","versions":[1,1],"worker":"early","slots":[]}`)
	d = m.starts(serve...)
	m.hears("READY=1")
	require.NotEmpty(t, waiting.expect("welcome").Session)
	d.signal(t, syscall.SIGTERM)
	d.ends(t, exit.OK)
}

func TestUnexpectedSystemdSocketIsAnError(t *testing.T) {
	w := newWorld(t)
	other, api := filepath.Join(w.dir, "other.sock"), filepath.Join(w.dir, "api.sock")
	d := w.manager(other, api).starts("serve", "--worker-socket", filepath.Join(w.dir, "worker.sock"), "--api-socket", api,
		"--worker-listen", "127.0.0.1:0")
	d.ends(t, exit.Usage)
	require.Contains(t, d.errors.text(), "passes a socket on "+other)
	require.Contains(t, d.errors.text(), `--worker-listen "127.0.0.1:0" and --api-listen ""`)
}

// unitLines returns the values of a key in a unit file, in order.
func unitLines(t *testing.T, name, key string) (values []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "packaging", "systemd", name))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), key+"="); found {
			values = append(values, value)
		}
	}
	return values
}

func TestUnitFilesServeOnTheirSockets(t *testing.T) {
	w := newWorld(t)
	require.Equal(t, []string{"0"}, unitLines(t, "dispatcherd.service", "StartLimitIntervalSec"),
		"an outage of Postgres at the start does not end the restarts")
	line := strings.Fields(unitLines(t, "dispatcherd.service", "ExecStart")[0])
	require.Equal(t, []string{"/usr/bin/dispatcherd", "serve"}, line[:2])
	here := func(path string) string { return strings.Replace(path, "/run/dispatcherd", w.dir, 1) }
	var sockets []string
	groups := map[string]bool{}
	for unit := range strings.FieldsSeq(unitLines(t, "dispatcherd.service", "Sockets")[0]) {
		sockets = append(sockets, unitLines(t, unit, "ListenStream")...)
		require.Equal(t, []string{"0660"}, unitLines(t, unit, "SocketMode"))
		group := unitLines(t, unit, "SocketGroup")[0]
		require.False(t, groups[group], "each socket has its own group")
		groups[group] = true
		users, err := os.ReadFile("../packaging/systemd/dispatcherd.sysusers")
		require.NoError(t, err)
		require.Contains(t, string(users), "\ng "+group+" ")
	}
	require.Len(t, sockets, 2)
	for i := range sockets {
		require.Contains(t, line, sockets[i])
		sockets[i] = here(sockets[i])
	}
	for i := range line {
		line[i] = here(line[i])
	}
	m := w.manager(sockets...)
	d := m.starts(line[1:]...)
	m.hears("READY=1")
	d.signal(t, syscall.SIGTERM)
	d.ends(t, exit.OK)
}
