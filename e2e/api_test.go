package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/worker"
)

// callee is a worker in this process. The payload of a job says what the job does.
type callee struct {
	runs      atomic.Int64
	cancelled chan dispatcherd.JobID // jobs whose context was cancelled
	open      chan struct{}          // closed to end every "gate"
}

// serveCalls runs a worker until the test ends.
func serveCalls(t *testing.T, socket string, slots int, types ...string) *callee {
	t.Helper()
	c := &callee{cancelled: make(chan dispatcherd.JobID, 20_000), open: make(chan struct{})}
	w := worker.New(worker.Options{Socket: socket, Name: "callee"})
	for _, typ := range types {
		w.Handle(typ, c.handle)
	}
	w.Slots(slots, types...)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended // the daemon may have ended before
	})
	return c
}

// startCallee runs a daemon with a worker that has slots of type pdf.
func (w *world) startCallee(slots int) (*host, *callee) {
	w.t.Helper()
	h := w.start(w.config("d"))
	c := serveCalls(w.t, h.cfg.WorkerSocket, slots, "pdf")
	h.awaitSlots(slots)
	return h, c
}

func (c *callee) handle(ctx context.Context, job *worker.Job) (any, error) {
	c.runs.Add(1)
	var p struct {
		Do    string
		Error string // the error of "fail"
		Bytes int    // the length of the result of "big"
		Nap   string // the duration of "nap"
	}
	_ = json.Unmarshal(job.Payload, &p)
	switch p.Do {
	case "fail":
		return nil, worker.Permanent(errors.New(cmp.Or(p.Error, "the page is torn")))
	case "gate":
		select {
		case <-c.open:
		case <-ctx.Done():
			c.cancelled <- job.ID
			return nil, ctx.Err()
		}
	case "big":
		return strings.Repeat("x", p.Bytes), nil
	case "nap":
		d, err := time.ParseDuration(p.Nap)
		if err != nil {
			return nil, worker.Permanent(err)
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case "talk":
		job.Progress(1, 2, "half")
		if err := job.Partial(map[string]int{"line": 1}); err != nil {
			return nil, err
		}
		job.Progress(2, 2, "all")
	}
	return job.Payload, nil
}

// awaitCancelled waits for the end of the context of a job that was cancelled.
func (c *callee) awaitCancelled(h *host) dispatcherd.JobID {
	h.t.Helper()
	eventually(h.t, func() bool { return len(c.cancelled) > 0 },
		func() string {
			return fmt.Sprintf("the end of a handler's context; %d runs, %+v", c.runs.Load(), h.gauges())
		})
	return <-c.cancelled
}

// caller speaks HTTP to a daemon's socket.
type caller struct {
	t      *testing.T
	client *http.Client
}

func (h *host) caller() *caller { return callerOn(h.t, h.cfg) }

func callerOn(t *testing.T, cfg daemon.Config) *caller {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", cfg.APISocket)
		},
		MaxIdleConnsPerHost: 100,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{t: t, client: &http.Client{Transport: transport}}
}

// response is a response with its complete body.
type response struct {
	*http.Response

	body string
}

func (r response) problem(t *testing.T) rest.Problem {
	t.Helper()
	require.Equal(t, "application/problem+json", r.Header.Get("Content-Type"), r.body)
	var p rest.Problem
	require.NoError(t, json.Unmarshal([]byte(r.body), &p))
	require.Equal(t, r.StatusCode, p.Status)
	return p
}

func (c *caller) send(ctx context.Context, method, path, body string, headers ...string) (response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://dispatcherd"+path, strings.NewReader(body))
	if err != nil {
		return response{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := c.client.Do(req)
	if err != nil {
		return response{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return response{Response: res, body: string(text)}, err
}

func (c *caller) ask(method, path, body string, headers ...string) response {
	c.t.Helper()
	r, err := c.send(c.t.Context(), method, path, body, headers...)
	require.NoError(c.t, err)
	return r
}

func (c *caller) request(body string, headers ...string) response {
	c.t.Helper()
	return c.ask(http.MethodPost, "/v1/requests", body, headers...)
}

func TestRequestIsAnsweredByAWorker(t *testing.T) {
	w := newWorld(t)
	h, _ := w.startCallee(2)
	c := h.caller()
	got := c.request(`{"type":"pdf","payload":{"page":1}}`)
	require.Equal(t, http.StatusOK, got.StatusCode, got.body)
	require.JSONEq(t, `{"page":1}`, got.body)
	require.Equal(t, "callee", got.Header.Get("Dispatcherd-Worker"))
	got = c.request("{\"type\":\"pdf\",\"payload\":{\n\"page\":\r\n2}}")
	require.JSONEq(t, `{"page":2}`, got.body, "a payload over several lines")
	got = c.request(`{"type":"pdf","payload":{"do":"fail"}}`)
	require.Equal(t, http.StatusUnprocessableEntity, got.StatusCode)
	p := got.problem(t)
	require.Equal(t, "urn:dispatcherd:problem:job-failed", p.Type)
	require.Contains(t, p.Detail, "the page is torn")
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs`), "nothing was written to Postgres")
}

func TestHangingUpCancelsTheJob(t *testing.T) {
	w := newWorld(t)
	h, callee := w.startCallee(1)
	c := h.caller()
	for _, headers := range [][]string{nil, {"Accept", "text/event-stream"}, {"Idempotency-Key", "k"}} {
		var calls sync.WaitGroup
		var hangUps []context.CancelFunc
		for n := range 3 { // one runs, two wait
			ctx, hangUp := context.WithCancel(t.Context())
			hangUps = append(hangUps, hangUp)
			own := headers
			if len(headers) > 0 && headers[0] == "Idempotency-Key" {
				own = []string{headers[0], fmt.Sprintf("%s%d", headers[1], n)}
			}
			calls.Go(func() {
				_, err := c.send(ctx, http.MethodPost, "/v1/requests", `{"type":"pdf","payload":{"do":"gate"}}`, own...)
				require.ErrorIs(t, err, context.Canceled)
			})
			eventually(t, func() bool { return h.gauges().InHand == n+1 }, func() string { return "a running request" })
		}
		hangUps[2]()
		eventually(t, func() bool { return h.gauges().Requests == 1 }, func() string { return "a queue without the request" })
		hangUps[0]()
		callee.awaitCancelled(h)
		eventually(t, func() bool { return callee.runs.Load()%2 == 0 }, func() string { return "the start of the waiting request" })
		hangUps[1]()
		callee.awaitCancelled(h)
		calls.Wait()
		eventually(t, func() bool { return h.gauges().InHand == 0 && h.gauges().Free == 1 }, func() string { return "nothing in hand" })
	}
}

func TestDurableRequestIsServedByAnotherDispatcher(t *testing.T) {
	w := newWorld(t)
	here, there := w.start(w.config("here")), w.start(w.config("there"))
	callee := serveCalls(t, there.cfg.WorkerSocket, 1, "pdf")
	there.awaitSlots(1)
	c := here.caller()
	close(callee.open)
	got := c.request(`{"type":"pdf","durable":true,"payload":{"page":1}}`)
	require.Equal(t, http.StatusOK, got.StatusCode, got.body)
	require.JSONEq(t, `{"page":1}`, got.body)
	require.Equal(t, "1", got.Header.Get("Dispatcherd-Job"))
	got = c.request(`{"type":"pdf","durable":true,"payload":{"do":"fail"}}`)
	require.Equal(t, http.StatusUnprocessableEntity, got.StatusCode)
	require.Contains(t, got.problem(t).Detail, "the page is torn")
	require.EqualValues(t, 2, got.problem(t).Job)
	eventually(t, func() bool { return here.samples()["dispatcherd_api_watched_rows"] == 0 }, func() string { return "no watched row" })
}

func TestJobsAreInsertedFollowedExplainedAndCancelledOverHTTP(t *testing.T) {
	w := newWorld(t)
	h, callee := w.startCallee(1)
	c := h.caller()
	got := c.ask(http.MethodPost, "/v1/jobs", `{"type":"pdf","payload":{"do":"gate"}}`)
	require.Equal(t, http.StatusCreated, got.StatusCode, got.body)
	require.Equal(t, "/v1/jobs/1", got.Header.Get("Location"))
	w.await(1, dispatcherd.Running)
	require.Equal(t, http.StatusCreated, c.ask(http.MethodPost, "/v1/jobs", `{"type":"pdf","priority":3}`).StatusCode)
	var why httpapi.Why
	eventually(t, func() bool {
		require.NoError(t, json.Unmarshal([]byte(c.ask(http.MethodGet, "/v1/jobs/2/why", "").body), &why))
		return why.Rank == 1 && len(why.Reasons) == 1 && why.Reasons[0] == "CapacityBusy"
	}, func() string { return fmt.Sprintf("job 2 next, but busy: %+v", why) })
	require.Equal(t, 1, why.Capacity)
	require.EqualValues(t, 1, why.Slots[0].Job)
	require.InDelta(t, 1439.25, why.Overtaking.Window, 0.001)
	shown := h.onAPI("", "job", "why", "2")
	require.Equal(t, exit.OK, shown.code, shown.err)
	require.Contains(t, shown.out, "CapacityBusy: every slot that supports the type is taken")
	require.Contains(t, shown.out, "busy with job 1 (pdf)")
	for id, says := range map[string]string{
		"77":  "job 77: no such job: it was never inserted, or it was removed",
		"-77": "request -77 is not in memory: it was answered",
	} {
		shown = h.onAPI("", "job", "why", id)
		require.Equal(t, exit.NotFound, shown.code)
		require.Contains(t, shown.err, says)
	}

	stream := make(chan response, 1)
	go func() { stream <- c.ask(http.MethodGet, "/v1/jobs/1/events", "") }()
	eventually(t, func() bool { return h.samples()["dispatcherd_api_watched_rows"] == 1 },
		func() string { return "a caller that waits for the job" })
	require.Equal(t, http.StatusAccepted, c.ask(http.MethodDelete, "/v1/jobs/1", "").StatusCode)
	callee.awaitCancelled(h)
	story := (<-stream).body
	require.Contains(t, story, "id: 1-running")
	require.Contains(t, story, "id: 1-cancelled")
	require.Contains(t, story, "job-cancelled")
	again := c.ask(http.MethodGet, "/v1/jobs/1/events", "", "Last-Event-ID", "1-cancelled").body
	require.NotContains(t, again, "event: status")
	w.await(2, dispatcherd.Done)
	require.Equal(t, http.StatusConflict, c.ask(http.MethodDelete, "/v1/jobs/2", "").StatusCode)
	require.Contains(t, c.ask(http.MethodGet, "/v1/jobs/2", "").body, `"status":"done"`)
}

func TestProgressReachesTheRow(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	reported := make(chan struct{})
	release := make(chan struct{})
	wk := worker.New(worker.Options{Socket: h.cfg.WorkerSocket})
	wk.Handle("pdf", func(_ context.Context, job *worker.Job) (any, error) {
		job.Progress(3, 10, "page 3")
		close(reported)
		<-release
		return nil, nil
	})
	wk.Slots(1, "pdf")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- wk.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	id := w.insert("pdf", work{})
	<-reported
	eventually(t, func() bool { return w.get(id).Progress != nil }, func() string { return "progress in the row" })
	require.JSONEq(t, `{"done":3,"total":10,"message":"page 3"}`, string(w.get(id).Progress))
	close(release)
	w.await(id, dispatcherd.Done)
}

// curl runs the program curl, a client that is independent of this project.
func curl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	cmd := exec.Command("curl", append([]string{"--silent", "--show-error", "--max-time", "60"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, errs.String())
	return string(out)
}

func TestCurlDrivesTheAPI(t *testing.T) {
	w := newWorld(t)
	h, _ := w.startCallee(2)
	on := []string{"--unix-socket", h.cfg.APISocket}
	require.JSONEq(t, `{"page":1}`, curl(t, "", append(on, "http://d/v1/requests", "-d", `{"type":"pdf","payload":{"page":1}}`)...))
	story := curl(
		t,
		"",
		append(on, "-N", "-H", "Accept: text/event-stream", "http://d/v1/requests", "-d", `{"type":"pdf","payload":{"do":"talk"}}`)...)
	var names []string
	for lines := bufio.NewScanner(strings.NewReader(story)); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			names = append(names, name)
		}
	}
	require.Equal(t, []string{"queued", "started", "progress", "partial", "progress", "result"}, names)
	lines := strings.Repeat("{\"type\":\"pdf\"}\n", 5000) + "{\"type\":\"\"}\nnonsense\n"
	upload := append(slices.Clone(on), "-H", "Content-Type: application/x-ndjson", "--data-binary", "@-")
	var refused rest.Problem
	require.NoError(t, json.Unmarshal([]byte(curl(t, lines, append(upload, "http://d/v1/jobs")...)), &refused))
	require.Equal(t, 2, refused.Bad)
	require.Equal(t, 5001, refused.Problems[0].Line)
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
	joined := append(slices.Clone(on), "-H", "Content-Type: application/x-ndjson", "-d", "@-", "http://d/v1/jobs")
	require.Contains(t, curl(t, lines, joined...), "--data-binary keeps them", "curl -d joins all lines to one")
	require.Contains(t, curl(t, "", append(on, "http://d/v1/jobs", "-d", "")...), "it is empty: write a JSON object")
	var report httpapi.Uploaded
	require.NoError(
		t,
		json.Unmarshal([]byte(curl(t, lines, append(upload, "-H", "Transfer-Encoding: chunked", "http://d/v1/jobs?on_error=skip")...)), &report),
	)
	require.EqualValues(t, 5000, report.Inserted)
	require.Len(t, report.Problems, 2)
	w.awaitCounts(map[dispatcherd.Status]int64{dispatcherd.Done: 5000})
	require.Contains(t, curl(t, "", append(on, "http://d/readyz?verbose")...), "[+] postgres")
	require.Contains(t, curl(t, "", append(on, "http://d/metrics")...), `dispatcherd_requests_ended_total{end="done",kind="memory"} 2`)
}

func TestTCPNeedsATokenBeyondLoopback(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.API.Listen = "0.0.0.0:0"
	_, err := daemon.Start(t.Context(), cfg, zap.NewNop())
	require.ErrorContains(t, err, "beyond loopback only with --api-tokens")
	cfg.API.Listen = "127.0.0.1:0"
	cfg.API.TokenFile = filepath.Join(w.dir, "tokens")
	require.NoError(
		t,
		os.WriteFile(cfg.API.TokenFile, []byte("# name sha256\nanna a15f8b81a160b4eebe5c84e9e3b65c87b9b2f18a8bd8a2b4a2d4ac8d1f8a1b7c\nben "+
			"2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n"), 0o600),
	) // the token of ben is "secret"
	h := w.start(cfg)
	url := "http://" + regexp.MustCompile(`"API on TCP","address":"([^"]+)"`).FindStringSubmatch(h.log.text())[1]
	for token, want := range map[string]string{"": "401", "Bearer wrong": "401", "Basic secret": "401", "Bearer secret": "200"} {
		require.Equal(t, want, curl(t, "", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Authorization: "+token, url+"/v1/slots"), token)
	}
	require.Contains(t, curl(t, "", url+"/livez"), "ok")
}
