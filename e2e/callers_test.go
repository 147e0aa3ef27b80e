package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// stranger is the uid and gid of a user without rights.
const stranger = 4000

// callersWorld is a dispatcher whose API socket every user can open. Only this user may use
// jobs of type payroll.
func callersWorld(t *testing.T, list string) (*world, *host) {
	w := newWorld(t)
	require.NoError(t, os.Chmod(w.dir, 0o755))
	cfg := w.config("d")
	cfg.APIAccess.Mode = 0o666
	require.NoError(t, cfg.AllowAPI.Set(list))
	return w, w.start(cfg)
}

func (w *world) callerAs(h *host, uid int) (*caller, *client.Client) {
	w.t.Helper()
	path := w.relay(h.cfg.APISocket, uid, uid)
	frames, err := client.New(client.Options{Socket: path})
	require.NoError(w.t, err)
	w.t.Cleanup(frames.Close)
	return callerOn(w.t, daemon.Config{APISocket: path}), frames
}

const payrollIsMine = `uid 4000, gid 4000 may not use jobs of type "payroll": the entry "payroll" of --allow-api lists other users`

// A user who may not use payroll can neither read nor cancel nor submit such jobs, nor
// join the requests of other callers, over HTTP and frames.
func TestUnlistedCallerIsRejectedOverHTTPAndFrames(t *testing.T) {
	const secret = "salary-of-anna"
	w, h := callersWorld(t, fmt.Sprintf("payroll=%d;pdf=@%d", os.Getuid(), stranger))
	other, frames := w.callerAs(h, stranger)
	serveCalls(t, h.cfg.WorkerSocket, 1, "pdf")
	w.worker("w", h.cfg.WorkerSocket, scriptSlots{N: 1, Types: []string{"payroll"}})
	h.awaitSlots(2)
	mine := h.caller()
	running := w.insert("payroll", work{Do: "gate", Secret: secret})
	at := w.seen.start(t, running, 1)
	pending := w.insert("payroll", work{Secret: secret})
	body := fmt.Sprintf(`{"type":"payroll","wait_for_worker":60,"timeout":60,"coalesce_key":"c","payload":{"secret":%q}}`, secret)
	kept := mine.request(body, "Prefer", "respond-async", "Idempotency-Key", "k")
	require.Equal(t, http.StatusAccepted, kept.StatusCode, kept.body)
	id := kept.Header.Get("Location")
	rejected := 0
	for _, c := range []struct {
		method, path, body string
		headers            []string
	}{
		{"GET", fmt.Sprintf("/v1/jobs/%d", pending), "", nil},
		{"GET", fmt.Sprintf("/v1/jobs/%d/events", running), "", nil},
		{"GET", fmt.Sprintf("/v1/jobs/%d/why", pending), "", nil},
		{"GET", "/v1/jobs/-1/why", "", nil},
		{"DELETE", fmt.Sprintf("/v1/jobs/%d", pending), "", nil},
		{"DELETE", fmt.Sprintf("/v1/jobs/%d", running), "", nil},
		{"GET", id, "", nil},
		{"GET", id, "", []string{"Accept", "text/event-stream"}},
		{"DELETE", id, "", nil},
		{"POST", "/v1/jobs", `{"type":"payroll"}`, []string{"Content-Type", "application/json"}},
		{"POST", "/v1/jobs", "{\"type\":\"pdf\"}\n{\"type\":\"payroll\"}\n", ndjson},
		{"POST", "/v1/jobs?on_error=skip", "{\"type\":\"pdf\"}\n{\"type\":\"payroll\"}\n", ndjson},
		{"POST", "/v1/requests", `{"type":"payroll"}`, nil},
		{"POST", "/v1/requests", `{"type":"payroll","durable":true}`, nil},
		{"POST", "/v1/requests", body, nil}, // the same coalesce_key
		{"POST", "/v1/requests", body, []string{"Idempotency-Key", "k"}},
		{"POST", "/v1/requests", body, []string{"Accept", "text/event-stream"}},
		{"POST", "/v1/requests", body, []string{"Prefer", "respond-async"}},
	} {
		got := other.ask(c.method, c.path, c.body, c.headers...)
		require.Equal(t, http.StatusForbidden, got.StatusCode, "%s %s: %s", c.method, c.path, got.body)
		require.Contains(t, got.problem(t).Detail, payrollIsMine)
		require.NotContains(t, got.body, secret)
		rejected++
	}
	head := other.ask(http.MethodHead, fmt.Sprintf("/v1/jobs/%d/events", running), "")
	require.Equal(t, http.StatusForbidden, head.StatusCode)
	rejected++
	for _, r := range []client.Request{
		{Type: "payroll"}, {Type: "payroll", Durable: true}, {Type: "payroll", CoalesceKey: "c", Payload: work{Secret: secret}},
	} {
		_, err := frames.Do(t.Context(), r)
		require.ErrorContains(t, err, payrollIsMine)
		_, err = frames.Stream(t.Context(), r, func(client.Event) error { return nil })
		require.ErrorContains(t, err, payrollIsMine)
		rejected += 2
	}
	requireMetric(t, h.cfg, fmt.Sprintf(`dispatcherd_api_bound_hits_total{bound="user"} %d`, rejected))
	require.Contains(t, h.log.text(), "a caller uses a type that its user may not use")
	for _, path := range []string{"/v1/slots", "/v1/types", "/metrics", "/readyz"} { // open to every user, without payloads
		got := other.ask(http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, got.StatusCode)
		require.NotContains(t, got.body, secret)
	}
	require.Equal(t, http.StatusOK, other.request(`{"type":"pdf"}`).StatusCode, "the group of the stranger may use pdf")
	_, err := frames.Do(t.Context(), client.Request{Type: "pdf"})
	require.NoError(t, err)
	require.Equal(t, 2, w.number(`SELECT count(*) FROM dispatcherd.jobs`), "no row was inserted")
	require.Equal(t, http.StatusOK, mine.ask(http.MethodGet, fmt.Sprintf("/v1/jobs/%d", pending), "").StatusCode)
	w.seen.open(t, at)
	w.await(running, dispatcherd.Done)
	w.await(pending, dispatcherd.Done)
	eventually(t, func() bool { return mine.ask(http.MethodGet, id, "").StatusCode == http.StatusOK },
		func() string { return "the request of the permitted caller" })
}

// A member of the workers' group cannot open the API socket, and a member of the callers' group
// cannot open the worker socket.
func TestEachSocketAdmitsItsGroupOnly(t *testing.T) {
	const workers, callers = 4001, 4002
	w := newWorld(t)
	require.NoError(t, os.Chmod(w.dir, 0o755))
	cfg := w.config("d")
	if os.Getuid() == 0 {
		cfg.WorkerAccess = workerproto.Access{Group: strconv.Itoa(workers)}
		cfg.APIAccess = workerproto.Access{Mode: 0o620, Group: strconv.Itoa(callers)}
	}
	h := w.start(cfg)
	for _, c := range []struct {
		socket   string
		gid      int
		admitted bool
	}{
		{h.cfg.WorkerSocket, workers, true}, {h.cfg.WorkerSocket, callers, false},
		{h.cfg.APISocket, workers, false}, {h.cfg.APISocket, callers, true},
	} {
		conn, err := net.Dial("unix", w.relay(c.socket, stranger, c.gid))
		require.NoError(t, err)
		_, _ = fmt.Fprintln(conn, `{"op":"hello"}`) // a connection that is not admitted ends at once
		answer, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, !c.admitted, strings.Contains(answer, "permission denied"), "%s, gid %d: %s", c.socket, c.gid, answer)
		require.NoError(t, conn.Close())
	}
}
