package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

var ndjson = []string{"Content-Type", "application/x-ndjson"}

func TestLinesAndUploadsAreBounded(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.API.MaxPayload, cfg.API.MaxUpload = 1000, 5000
	h := w.start(cfg)
	c := h.caller()
	line := func(bytes int) string {
		const frame = `{"type":"x","payload":""}`
		return frame[:len(frame)-2] + strings.Repeat("x", bytes-len(frame)) + frame[len(frame)-2:]
	}
	for _, query := range []string{"", "?on_error=skip"} {
		got := c.ask(http.MethodPost, "/v1/jobs"+query, line(1000)+"\n"+line(1001)+"\n"+line(30)+"\n", ndjson...)
		require.Equal(t, http.StatusRequestEntityTooLarge, got.StatusCode, got.body)
		p := got.problem(t)
		require.Equal(t, 2, p.Line)
		require.NotContains(t, p.Detail, "xx")
	}
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
	require.InDelta(t, 2, metricsOn(t, cfg)[`dispatcherd_api_bound_hits_total{bound="payload"}`], 0)
	whole := c.ask(http.MethodPost, "/v1/jobs", strings.Repeat("{\"type\":\"x\"}\n", 500), ndjson...)
	require.Equal(t, http.StatusRequestEntityTooLarge, whole.StatusCode, "the sum of the lines")
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
	got := c.ask(http.MethodPost, "/v1/jobs", line(1000)+"\n"+line(1000), ndjson...)
	require.Equal(t, http.StatusCreated, got.StatusCode, got.body)
	require.Equal(t, 2, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
}

// An upload holds a connection to Postgres until its caller has sent everything.
func TestSlowUploadsLeaveAConnectionForOtherCalls(t *testing.T) {
	const uploads, connections = 2, 5 // one user has all but two connections, and one less for uploads
	w := newWorld(t)
	cfg := w.config("d")
	cfg.API.Connections, cfg.API.BodyTimeout = connections, time.Second
	h := w.start(cfg)
	c := h.caller()
	id := w.insert("unsupported", work{})
	enough := make(chan struct{})
	var dribbling sync.WaitGroup
	defer dribbling.Wait()
	stop := sync.OnceFunc(func() { close(enough) })
	defer stop()
	for range uploads {
		body, lines := io.Pipe()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://d/v1/jobs", body)
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/x-ndjson")
		dribbling.Go(func() {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for ; ; <-tick.C {
				select {
				case <-enough:
					_ = lines.Close() // never returns an error
					return
				default:
					_, _ = io.WriteString(lines, "{\"type\":\"dribble\"}\n") // the response reports an error
				}
			}
		})
		dribbling.Go(func() {
			res, err := c.client.Do(req)
			if err != nil || res.StatusCode != http.StatusCreated {
				t.Error(res, err)
				return
			}
			_ = res.Body.Close() // only the status matters
		})
	}
	eventually(t, func() bool { return h.samples()["dispatcherd_api_uploads"] == uploads },
		func() string { return "all uploads in progress" })
	require.Equal(t, http.StatusTooManyRequests, c.ask(http.MethodPost, "/v1/jobs", "{\"type\":\"third\"}\n", ndjson...).StatusCode)
	require.InDelta(t, 1, metricsOn(t, cfg)[`dispatcherd_api_bound_hits_total{bound="uploads"}`], 0)
	require.Equal(t, http.StatusOK, c.ask(http.MethodGet, fmt.Sprint("/v1/jobs/", id), "").StatusCode)
	stop()
	dribbling.Wait()
	require.Equal(t, http.StatusCreated, c.ask(http.MethodPost, "/v1/jobs", "{\"type\":\"third\"}\n", ndjson...).StatusCode)
	require.Zero(t, h.samples()["dispatcherd_api_uploads"])
}

// The process may open far fewer files than its bounds need, and workers fill what they may take. A caller needs a descriptor and a
// further connection to Postgres. Then all connections to Postgres break.
func TestConnectionsDoNotTakeTheDescriptorsOfPostgres(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cmd := exec.Command("sh", "-c", `ulimit -n 300; exec "$0" "$@"`, programPath(t), "serve", "--config", "",
		"--worker-socket", cfg.WorkerSocket, "--api-socket", cfg.APISocket)
	cmd.Env = append(programEnv(), "DATABASE_URL="+w.dsn)
	c := startCommand(t, cmd)
	w.worker("first", cfg.WorkerSocket, scriptSlots{Types: []string{"x"}, N: 1})
	w.await(w.insert("x", work{}), dispatcherd.Done)
	require.Contains(t, c.errors.text(), "this process may open few files")

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var crowd sync.WaitGroup
	for range 320 {
		crowd.Go(func() {
			at := workerproto.SocketAddress(cfg.WorkerSocket)
			if conn, err := workerproto.DialAt(ctx, at, &workerproto.Credentials{}, &workerproto.Hello{Worker: "crowd"}); err == nil {
				t.Cleanup(func() { _ = conn.Close() }) // the dispatcher may have closed it
			}
		})
	}
	crowd.Wait()
	for range 200 { // they wait to be accepted, or take a descriptor until HelloTimeout
		conn, err := net.Dial("unix", cfg.WorkerSocket)
		require.NoError(t, err)
		defer conn.Close()
	}
	soon, stop := context.WithTimeout(t.Context(), 4*time.Second) // less than HelloTimeout
	defer stop()
	got, err := callerOn(t, cfg).send(soon, http.MethodPost, "/v1/jobs", `{"type":"x"}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, got.StatusCode, got.body)
	w.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE 'dispatcherd%'`)
	w.await(w.insert("x", work{}), dispatcherd.Done)
	require.NotContains(t, c.errors.text(), "too many open files")
	c.signal(t, syscall.SIGTERM)
	c.ends(t, 0)
}
