package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// connectUntil opens connections, sends text on each, and returns the first line that
// begins with want. It closes each connection.
func connectUntil(t *testing.T, socket, text, want string) (line string, rest *bufio.Reader) {
	t.Helper()
	for range 1000 {
		conn, err := net.Dial("unix", socket)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(longWait)))
		_, _ = io.WriteString(conn, text) // a rejected connection may be closed already
		in := bufio.NewReader(conn)
		line, err := in.ReadString('\n')
		if err == nil && strings.HasPrefix(line, want) {
			return line, in
		}
		require.NoError(t, conn.Close())
	}
	t.Fatalf("no connection to %s was rejected", socket)
	return "", nil
}

const rawHello = `{"op":"hello","versions":[1,1],"worker":"flood","slots":[{"slot":0,"types":["x"]}]}` + "\n"

func TestUserThatConnectsTooFastIsRejected(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.ConnectionRate = 20
	h := w.start(cfg)
	good := helloRaw(t, cfg.WorkerSocket, "good")

	line, _ := connectUntil(t, cfg.WorkerSocket, rawHello, `{"op":"error"`)
	require.Contains(t, line, "too_many_connections")
	require.Contains(t, line, "more than 20 connections per second")
	require.Contains(t, h.log.text(), "a user opens connections too fast")

	job := w.insert("good", work{})
	good.say(`{"op":"done","job":%d,"attempt":1,"session":"%s"}`, good.expect("job").Job, good.nonce)
	w.await(job, dispatcherd.Done)

	_, rest := connectUntil(t, cfg.APISocket, "GET /livez HTTP/1.1\r\nHost: d\r\n\r\n", "HTTP/1.1 429")
	text, err := io.ReadAll(rest)
	require.NoError(t, err)
	require.Contains(t, string(text), "Retry-After: 1\r\n")
	_, body, _ := strings.Cut(string(text), "\r\n\r\n")
	var p struct {
		Type   string
		Status int
	}
	require.NoError(t, json.Unmarshal([]byte(body), &p))
	require.Equal(t, "urn:dispatcherd:problem:queue-full", p.Type)
	require.Equal(t, http.StatusTooManyRequests, p.Status)
	line, _ = connectUntil(t, cfg.APISocket, `{"op":"hello","versions":[1,1]}`+"\n", `{"op":"error"`)
	require.Contains(t, line, "too_many_connections")

	require.Positive(t, gathered(t, h, "dispatcherd_worker_errors_total", "too_many_connections"))
	require.Positive(t, gathered(t, h, "dispatcherd_api_bound_hits_total", "connection-rate"))
	require.InDelta(t, 20, gathered(t, h, "dispatcherd_limit", "connections_per_second"), 0)
}

// gathered returns the sample of a metric whose only label has a value.
func gathered(t *testing.T, h *host, name, label string) float64 {
	t.Helper()
	families, err := h.Metrics().Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("there is no sample of %s with label %s", name, label)
	return 0
}
