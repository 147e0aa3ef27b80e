package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// raiseFiles raises the limit of open files of this process and its children to wanted, or as
// far as possible. It returns the resulting limit.
func raiseFiles(t *testing.T, wanted int) int {
	t.Helper()
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	limit.Cur = limit.Max // the runtime does this at the start unless a program has lowered the limit
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	if limit.Cur < uint64(wanted) {
		t.Logf("RLIMIT_NOFILE is %d instead of %d", limit.Cur, wanted)
		return int(limit.Cur)
	}
	return wanted
}

// resident returns the resident memory of a process in bytes, or 0 if the system does not
// report it.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	found := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(text)
	require.NotNil(t, found)
	kb, err := strconv.ParseInt(string(found[1]), 10, 64)
	require.NoError(t, err)
	return kb << 10
}

// visit connects, sends one request, reads the response and keeps the connection open.
func visit(t *testing.T, network, address, header string) (net.Conn, int) {
	t.Helper()
	conn, err := net.Dial(network, address)
	require.NoError(t, err)
	_, err = io.WriteString(conn, "GET /v1/types HTTP/1.1\r\nHost: d\r\n"+header+"\r\n")
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return conn, res.StatusCode
}

// measuredCalls is the number of calls that measureCalls makes.
const measuredCalls = 50

// measureCalls sends requests, each over a new connection, and returns the median latency.
func measureCalls(t *testing.T, cfg daemon.Config) time.Duration {
	t.Helper()
	took := make([]time.Duration, measuredCalls)
	for i := range took {
		c := callerOn(t, cfg)
		began := time.Now()
		got := c.request(`{"type":"x","payload":{"result":"fine"}}`)
		took[i] = time.Since(began)
		require.Equal(t, http.StatusOK, got.StatusCode, got.body)
		require.JSONEq(t, `"fine"`, got.body)
		c.client.CloseIdleConnections()
	}
	slices.Sort(took)
	return took[measuredCalls/2]
}

// idleCaller bounds the memory of one idle connection in bytes. The test logs the measured
// value.
const idleCaller = 40 << 10

// Ten thousand callers stay connected and send nothing; the default bound is lower. Then as
// many connect with invalid tokens. The memory of the daemon stays bounded, and new callers are
// served as fast as before.
func TestIdleCallersAndBadTokensUseBoundedMemory(t *testing.T) {
	const over, spare = 100, 300
	most := daemon.DefaultAPIConfig().MaxConnections
	if files := raiseFiles(t, most+over+spare); files < most+over+spare {
		t.Skipf("the limit of open files is %d, %d are needed", files, most+over+spare)
	}
	w := newWorldAlone(t)
	cfg := w.config("d")
	tokens := filepath.Join(w.dir, "tokens")
	require.NoError(
		t,
		os.WriteFile(tokens, []byte("ben 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n"), 0o600),
	) // "secret"
	process := w.serve(cfg, "--api-listen", "127.0.0.1:0", "--api-tokens", tokens, "--log-format", "json")
	said := regexp.MustCompile(`"address":"(127\.0\.0\.1:\d+)"`).FindStringSubmatch(process.errors.text())
	require.NotNil(t, said, process.errors.text())
	w.worker("honest", cfg.WorkerSocket, oneSlot("x"))
	eventually(t, func() bool { return slotsOf(cfg) == 1 }, func() string { return "a slot" })
	machine := measureNoise(t)
	alone := measureCalls(t, cfg)
	memory := resident(t, process.pid())

	for _, load := range []struct {
		name, network, address, header string
		status                         int
	}{
		{"idle", "unix", cfg.APISocket, "", http.StatusOK},
		{"bad tokens", "tcp", said[1], "Authorization: Bearer guess\r\n", http.StatusUnauthorized},
	} {
		var conns []net.Conn
		began := time.Now()
		for range most + over {
			conn, status := visit(t, load.network, load.address, load.header)
			for status == http.StatusTooManyRequests { // the callers connect faster than one user may
				require.NoError(t, conn.Close())
				conn, status = visit(t, load.network, load.address, load.header)
			}
			require.Equal(t, load.status, status)
			conns = append(conns, conn)
		}
		arrived := time.Since(began)
		answered := 0
		eventually(t, func() bool { // the user may open 1,000 connections per second again
			conn, status := visit(t, "unix", cfg.APISocket, "")
			require.NoError(t, conn.Close())
			if status == http.StatusOK {
				answered++
			}
			return answered == 200
		}, func() string { return "200 answers" })
		beside, holds := measureCalls(t, cfg), resident(t, process.pid())
		shown := metricsOn(t, cfg)
		require.LessOrEqual(
			t,
			shown["dispatcherd_api_connections"],
			float64(most+2),
			"including the connection of this request and one of the other listener",
		)
		require.GreaterOrEqual(t, shown[`dispatcherd_api_bound_hits_total{bound="connections"}`], float64(over))
		_, err := conns[0].Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "the connection that was idle longest is closed")
		t.Logf(
			"%s: %d connections in %v; a request took %v before and %v while they were open; memory %d MB, then %d MB: %d bytes per connection",
			load.name,
			most+over,
			arrived.Round(time.Millisecond),
			alone,
			beside,
			memory>>20,
			holds>>20,
			(holds-memory)/int64(most),
		)
		require.Less(t, holds-memory, int64(most*idleCaller*raceFactor))
		require.Less(t, beside, alone+50*time.Millisecond+10*machine.usual(), "with the delays of a shared machine")
		for _, conn := range conns {
			require.NoError(t, conn.Close())
		}
		eventually(
			t,
			func() bool { return metricsOn(t, cfg)["dispatcherd_api_connections"] <= 2 },
			func() string { return "no other connection" },
		)
	}
	require.InDelta(t, most+over, metricsOn(t, cfg)[`dispatcherd_api_bound_hits_total{bound="token"}`], 0)
	conn, status := visit(t, "tcp", said[1], "Authorization: Bearer secret\r\n")
	require.Equal(t, http.StatusOK, status)
	require.NoError(t, conn.Close())
	require.Less(t, strings.Count(process.errors.text(), "\n"), 100, "events that any caller can cause are not logged each time")
	process.signal(t, syscall.SIGTERM)
	process.ends(t, exit.OK)
}
