package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/cli"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/worker"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// dev is a running `dispatcherd dev`.
type dev struct {
	socket string // socket of the workers
	script string // the settings that it printed
	out    *bufio.Reader
	log    bytes.Buffer
	stop   context.CancelFunc
	ended  chan int // receives its exit code; the log is complete then
}

// startDev returns when dev has printed the settings for another terminal.
func startDev(t *testing.T, more ...string) *dev {
	t.Helper()
	return startDevWith(t, nil, more...)
}

func startDevWith(t *testing.T, env map[string]string, more ...string) *dev {
	t.Helper()
	dir, err := os.MkdirTemp("", "dev") // t.TempDir is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	d := &dev{socket: filepath.Join(dir, "it's w"), ended: make(chan int, 1)}
	ctx, stop := context.WithCancel(t.Context())
	d.stop = stop
	out, in := io.Pipe()
	a := bare(env)
	a.Console = cli.Console{In: strings.NewReader(""), Out: in, Err: &d.log}
	args := append(
		[]string{"--config", "", "dev", "--ephemeral", "--worker-socket", d.socket, "--api-socket", filepath.Join(dir, "a")},
		more...)
	go func() {
		d.ended <- a.run(ctx, args)
		_ = in.Close() // never returns an error
	}()
	d.out = bufio.NewReader(out)
	for range 3 {
		line, err := d.out.ReadString('\n')
		require.NoError(t, err)
		d.script += line
	}
	return d
}

// told evaluates the printed settings in a shell and returns the database URL, the workers' socket and the API socket.
func (d *dev) told(t *testing.T) []string {
	t.Helper()
	told, err := exec.Command("sh", "-c", d.script+
		`printf '%s\n' "$DATABASE_URL" "$DISPATCHERD_WORKER_SOCKET" "$DISPATCHERD_API_SOCKET"`).Output()
	require.NoError(t, err)
	return strings.Split(string(told), "\n")
}

// The printed settings are sufficient if the log is JSON and goes to another
// stream.
func TestDevPrintsSettingsForAnotherTerminal(t *testing.T) {
	d := startDev(t)
	words := d.told(t)
	require.Equal(t, d.socket, words[1])

	got := invocation{args: []string{"job", "list", "--api-socket", words[2]}}.runs(t)
	require.Equal(t, exit.OK, got.code, got.err)
	d.stop()
	require.Equal(t, exit.OK, <-d.ended, "%v", &d.log)
	require.True(t, strings.HasPrefix(d.log.String(), `{"level":`), "the log is not JSON: %v", &d.log)
}

// What dev --tls prints is sufficient for a worker on another host, also after dev was started again.
func TestDevPrintsWhatAWorkerOnAnotherHostNeeds(t *testing.T) {
	state := t.TempDir()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(free.Addr().String())
	require.NoError(t, err)
	require.NoError(t, free.Close())
	var before string
	for range 2 {
		d := startDevWith(t, map[string]string{"XDG_STATE_HOME": state}, "--tls", "--worker-listen", ":"+port)
		var said [4]string
		for i := range said {
			said[i], err = d.out.ReadString('\n')
			require.NoError(t, err)
		}
		var ca, token, address string
		for i, pattern := range []string{
			"", `scp -p \S+:'(.*)' ca.pem`, `scp -p \S+:'(.*)' token`, `worker run --dispatcher (\S+) --token-file token --ca ca.pem`,
		} {
			if found := regexp.MustCompile(pattern).FindStringSubmatch(said[i]); i > 0 {
				require.NotNil(t, found, said[i])
				*[]*string{&ca, &token, &address}[i-1] = found[1]
			}
		}
		files, err := filepath.Glob(filepath.Join(state, "dispatcherd", "tls", "*"))
		require.NoError(t, err)
		require.Len(t, files, 6)
		for _, file := range files {
			info, err := os.Stat(file)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), file)
		}
		welcomed := make(chan workerproto.Welcome, 1)
		w := worker.New(worker.Options{
			Dispatcher: address, Credentials: workerproto.Credentials{TokenFile: token, CA: ca},
			Connected: func(hello workerproto.Welcome) { welcomed <- hello },
		})
		w.Handle("echo", func(context.Context, *worker.Job) (any, error) { return nil, nil })
		w.Slots(1, "echo")
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- w.Run(ctx) }()
		select {
		case <-welcomed:
		case err := <-ran:
			require.NoError(t, err, "the worker ended")
		}
		stop()
		require.NoError(t, <-ran)
		d.stop()
		require.Equal(t, exit.OK, <-d.ended, "%v", &d.log)
		text, err := os.ReadFile(token)
		require.NoError(t, err)
		require.NotContains(t, d.log.String(), strings.TrimSpace(string(text)))
		if before != "" {
			require.Equal(t, before, string(text), "the token is kept")
		}
		before = string(text)
	}
	got := invocation{args: []string{"dev", "--ephemeral", "--tls", "--tls-cert", "c", "--tls-key", "k", "--worker-socket",
		filepath.Join(state, "w"), "--api-socket", filepath.Join(state, "a")}}.runs(t)
	require.Equal(t, exit.Usage, got.code)
	require.Contains(t, got.err, "--tls makes a certificate and a token of its own")
}

// Another terminal has another working directory.
func TestDevPrintsAbsolutePaths(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	var out bytes.Buffer
	a := bare(nil)
	a.Out = &out
	a.sayHowToConnect(&daemon.Config{DSN: "postgres://h/d", WorkerSocket: "w.sock", APISocket: "/run/a.sock"})
	require.Equal(t, "export DATABASE_URL='postgres://h/d'\nexport DISPATCHERD_WORKER_SOCKET='"+absolute("w.sock")+
		"'\nexport DISPATCHERD_API_SOCKET='/run/a.sock'\n", out.String())
	require.True(t, filepath.IsAbs(absolute("w.sock")))
}

// Without Postgres no result could be recorded, so dev does not wait for
// running jobs.
func TestDevEndsWhenItsPostgresIsKilled(t *testing.T) {
	for _, asked := range []bool{false, true} {
		d := startDev(t, "--grace", "10m")
		words := d.told(t)
		conn, err := pgx.Connect(t.Context(), words[0])
		require.NoError(t, err)
		var data string
		require.NoError(t, conn.QueryRow(t.Context(), `SHOW data_directory`).Scan(&data))
		require.NoError(t, conn.Close(t.Context()))
		runs, working := make(chan struct{}), make(chan error, 1)
		w := worker.New(worker.Options{Socket: d.socket, Grace: time.Millisecond})
		w.Handle("x", func(ctx context.Context, _ *worker.Job) (any, error) {
			close(runs)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		w.Slots(1, "x")
		ctx, stopWorker := context.WithCancel(t.Context())
		go func() { working <- w.Run(ctx) }()
		got := invocation{args: []string{"job", "insert", "--type", "x", "--api-socket", words[2]}}.runs(t)
		require.Equal(t, exit.OK, got.code, got.err)
		<-runs

		if asked {
			d.stop() // the daemon then waits for this job
		}
		text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.SplitN(string(text), "\n", 2)[0])
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		require.Equal(t, exit.Unavailable, <-d.ended, "%v", &d.log)
		require.Contains(t, d.log.String(), "dispatcherd: the private Postgres, process "+strconv.Itoa(pid)+", has ended")
		require.NotContains(t, d.log.String(), "leaving the dispatchers")
		require.NoDirExists(t, filepath.Dir(data))
		stopWorker()
		require.NoError(t, <-working)
	}
}

// Postgres needs an empty directory, so the files are beside it.
func TestTLSFilesOfDevAreBesideItsData(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	var cfg daemon.Config
	f, err := bare(nil).prepareTLS(&cfg, data+"/")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(data+"-tls", "token"), f.token)
	require.Equal(t, f.cert, cfg.TLS.Cert)
	require.NoDirExists(t, data)
}

// The names of the host change, and a crash leaves files that do not belong together. Copies of the authority and of the token stay valid,
// unless the authority itself is unusable.
func TestCopiesOfTheFilesOfDevStayValid(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	prepared := func() (f devFiles, ca, token string) {
		t.Helper()
		f, err := bare(nil).prepareTLS(new(daemon.Config), data)
		require.NoError(t, err)
		pair, err := workerproto.ReadPair(f.cert, f.key)
		require.NoError(t, err)
		roots, err := workerproto.ReadCA(f.ca)
		require.NoError(t, err)
		for _, name := range hostNames() {
			_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots})
			require.NoError(t, err)
		}
		token, err = (&workerproto.Credentials{TokenFile: f.token}).Token()
		require.NoError(t, err)
		hashes, err := os.ReadFile(f.tokens)
		require.NoError(t, err)
		require.Contains(t, string(hashes), fmt.Sprintf("dev %x\n", sha256.Sum256([]byte(token))))
		text, err := os.ReadFile(f.ca)
		require.NoError(t, err)
		return f, string(text), token
	}
	f, ca, token := prepared()
	require.NoError(t, os.WriteFile(f.cert, []byte("half a certif"), 0o600))
	_, again, same := prepared()
	require.Equal(t, ca, again)
	require.Equal(t, token, same)
	require.NoError(t, os.Rename(f.key, f.caKey))
	require.NoError(t, os.Remove(f.token))
	_, again, same = prepared()
	require.NotEqual(t, ca, again, "its key is lost")
	require.NotEqual(t, token, same)
}
