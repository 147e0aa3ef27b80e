package e2e

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// While the daemon runs, a token is revoked and another one is added. An invalid file changes
// nothing, and the error does not contain the content of the file. A changed file is read without a signal, too, so it may be read twice.
func TestSIGHUPReloadsTheTokens(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(w.dir, "tokens")
	holds := func(text string) { // replaces the file atomically
		require.NoError(t, os.WriteFile(file+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	line := func(name, token string) string {
		sum := sha256.Sum256([]byte(token))
		return name + " " + hex.EncodeToString(sum[:]) + "\n"
	}
	holds(line("anna", "first"))
	d := w.serve(w.config("d"), "--api-listen", "127.0.0.1:0", "--api-tokens", file, "--log-format", "json")
	said := regexp.MustCompile(`"address":"(127\.0\.0\.1:\d+)"`).FindStringSubmatch(d.errors.text())
	require.NotNil(t, said, d.errors.text())
	status := func(token string) int {
		conn, status := visit(t, "tcp", said[1], "Authorization: Bearer "+token+"\r\n")
		require.NoError(t, conn.Close())
		return status
	}
	hears := func(what string, times int) {
		d.signal(t, syscall.SIGHUP)
		eventually(t, func() bool { return strings.Count(d.errors.text(), what) >= times }, d.errors.text)
	}
	require.Equal(t, http.StatusOK, status("first"))

	holds(line("anna", "second") + line("ben", "third"))
	hears(`"msg":"tokens and certificates reloaded"`, 1)
	eventually(t, func() bool { return status("first") == http.StatusUnauthorized }, d.errors.text)
	require.Contains(t, d.errors.text(), `"tokens":2`)
	require.Equal(t, http.StatusUnauthorized, status("first"))
	require.Equal(t, http.StatusOK, status("second"))
	require.Equal(t, http.StatusOK, status("third"))

	holds(line("anna", "second") + "carl fourth\n")
	hears(`"msg":"a file of tokens or certificates is invalid: the current ones remain valid"`, 1)
	require.Equal(t, http.StatusOK, status("third"))
	require.Contains(t, d.errors.text(), "line 2")
	require.NotContains(t, d.errors.text(), "fourth")
	require.NoError(t, os.Remove(file))
	hears(`"msg":"a file of tokens or certificates is invalid: the current ones remain valid"`, 2)
	require.Equal(t, http.StatusOK, status("third"))
	for _, empty := range []string{"", "# no tokens\n\n"} { // so the only token can be revoked
		holds(empty)
		eventually(t, func() bool { return status("third") == http.StatusUnauthorized }, d.errors.text)
		holds(line("ben", "third"))
		eventually(t, func() bool { return status("third") == http.StatusOK }, d.errors.text)
	}

	holds(line("carl", "fourth"))
	eventually(t, func() bool { return status("fourth") == http.StatusOK }, d.errors.text)
	require.NotContains(t, d.errors.text(), "token file and add", "mode 0600 needs no warning")
	require.NotContains(t, d.errors.text(), "without encryption", "loopback needs no warning")
	require.Equal(t, http.StatusOK, status("fourth"))
	require.Equal(t, http.StatusUnauthorized, status("third"))
	d.signal(t, syscall.SIGTERM)
	d.ends(t, exit.OK)
}

// A daemon warns at its start and at each reload.
func TestUnsafeTokensCauseWarnings(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(w.dir, "tokens")
	require.NoError(t, os.WriteFile(file, []byte("anna "+strings.Repeat("ab", 32)+"\n"), 0o600))
	require.NoError(t, os.Chmod(file, 0o666))
	d := w.serve(w.config("d"), "--api-listen", "0.0.0.0:0", "--api-tokens", file, "--log-format", "json")
	warnings := func(text string) int { return strings.Count(d.errors.text(), text) }
	require.Equal(t, 1, warnings("other users may change the token file"), d.errors.text())
	require.Equal(t, 1, warnings(`"mode":"0666"`))
	require.Equal(t, 1, warnings("callers send their tokens without encryption"))
	d.signal(t, syscall.SIGHUP)
	eventually(t, func() bool { return warnings("other users may change the token file") >= 2 }, d.errors.text)
	d.signal(t, syscall.SIGTERM)
	d.ends(t, exit.OK)
}

// The error names the TCP address, not Postgres.
func TestUnusableTCPAddressIsNamedInTheError(t *testing.T) {
	w := newWorld(t)
	held, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer held.Close()
	file := filepath.Join(w.dir, "tokens")
	require.NoError(t, os.WriteFile(file, []byte("garbage\n"), 0o600))
	large := filepath.Join(w.dir, "large")
	require.NoError(t, os.WriteFile(large, []byte("anna "+strings.Repeat("ab", 32)+"\n"+strings.Repeat("# old\n", 1<<18)), 0o600))
	for _, c := range []struct {
		code  int
		says  string
		flags []string
	}{
		{exit.Conflict, "another program listens there", []string{"--api-listen", held.Addr().String()}},
		{exit.Usage, "unknown port", []string{"--api-listen", "127.0.0.1:nix"}},
		{exit.Usage, "line 1 is not a name", []string{"--api-listen", "127.0.0.1:0", "--api-tokens", file}},
		{exit.Usage, "it has more than 1048576 bytes", []string{"--api-listen", "127.0.0.1:0", "--api-tokens", large}},
		{exit.Usage, "no such file", []string{"--api-listen", "127.0.0.1:0", "--api-tokens", file + ".not"}},
	} {
		cfg := w.config("d")
		p := w.program(
			append([]string{"serve", "--database-url", w.dsn, "--worker-socket", cfg.WorkerSocket, "--api-socket", cfg.APISocket}, c.flags...)...)
		p.ends(t, c.code)
		require.Contains(t, p.errors.text(), c.says)
		require.NotContains(t, p.errors.text(), "check that Postgres runs")
		require.NoFileExists(t, cfg.APISocket)
	}
}

// visit connects, sends one request, reads the response and keeps the connection open. The status is 0 if the dispatcher closes the
// connection instead of answering, as it does when it revokes the token meanwhile.
func visit(t *testing.T, network, address, header string) (net.Conn, int) {
	t.Helper()
	conn, err := net.Dial(network, address)
	require.NoError(t, err)
	_, err = io.WriteString(conn, "GET /v1/types HTTP/1.1\r\nHost: d\r\n"+header+"\r\n")
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return conn, 0
	}
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return conn, res.StatusCode
}
