package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/worker"
)

const (
	traceA = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traceB = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
)

// tracedWorker reports type, attempt and trace context of each execution. A job with the payload "again" fails once. One with the
// payload "spawn" inserts two children, of which the second one has a trace context of its own.
func (w *world) tracedWorker(socket string) <-chan string {
	seen := make(chan string, 100)
	p := worker.New(worker.Options{Socket: socket, Name: "traced"})
	for _, typ := range []string{"pdf", "child"} {
		p.Handle(typ, func(ctx context.Context, job *worker.Job) (any, error) {
			seen <- fmt.Sprint(job.Type, " ", job.Attempt, " ", job.Traceparent)
			switch {
			case string(job.Payload) == `"again"` && job.Attempt == 1:
				return nil, worker.RetryAfter(errors.New("again"), 1)
			case string(job.Payload) == `"spawn"`:
				_, err := job.SpawnDetached(ctx, worker.Child{Type: "child"})
				if err == nil {
					_, err = job.SpawnDetached(ctx, worker.Child{Type: "child", Traceparent: traceB})
				}
				return nil, err
			}
			return nil, nil
		})
		p.Slots(1, typ)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		<-ended // the daemon may have ended before
	})
	return seen
}

func TestTraceContextReachesTheWorker(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	h := w.start(cfg)
	seen := w.tracedWorker(cfg.WorkerSocket)
	h.awaitSlots(2)
	c := h.caller()
	next := func() string { return receive(t, seen, "an execution") }

	for header, want := range map[string]string{
		traceA: traceA, "": "", "nonsense": "", "ff" + traceA[2:]: "", traceA + "-later": "", "cc" + traceA[2:] + "-later": traceA,
		"0g" + traceA[2:]: "", strings.ToUpper(traceA): "", "01" + traceA[2:]: traceA,
	} {
		require.Equal(t, http.StatusOK, c.request(`{"type":"pdf"}`, "Traceparent", header).StatusCode)
		require.Equal(t, "pdf 1 "+want, next(), "header %q", header)
	}
	c.request(`{"type":"pdf","traceparent":"`+traceB+`"}`, "Traceparent", traceA)
	require.Equal(t, "pdf 1 "+traceB, next(), "the member has precedence")
	for path, status := range map[string]int{"/v1/requests": http.StatusBadRequest, "/v1/jobs": http.StatusUnprocessableEntity} {
		refused := c.ask(http.MethodPost, path, `{"type":"pdf","traceparent":"x"}`)
		require.Equal(t, status, refused.StatusCode)
		require.Contains(t, refused.problem(t).Detail, `traceparent "x" must be 00-TRACE-PARENT-FLAGS`)
	}
	require.Equal(t, http.StatusOK, c.request(`{"type":"pdf","durable":true}`, "Traceparent", traceA).StatusCode)
	require.Equal(t, "pdf 1 "+traceA, next())

	c.ask(http.MethodPost, "/v1/jobs", `{"type":"pdf","payload":"again"}`, "Traceparent", traceA)
	require.Equal(t, []string{"pdf 1 " + traceA, "pdf 2 " + traceA}, []string{next(), next()}, "a retry keeps it")
	c.ask(http.MethodPost, "/v1/jobs", `{"type":"pdf","unique_key":"k"}`, "Traceparent", traceA)
	require.Equal(t, "pdf 1 "+traceA, next())
	c.ask(http.MethodPost, "/v1/jobs", `{"type":"pdf"}`+"\n", "Traceparent", traceA, "Content-Type", "application/x-ndjson")
	require.Equal(t, "pdf 1 "+traceA, next())
	answer := c.ask(http.MethodPost, "/v1/fanouts", `{"type":"pdf","chunks":[1],"durable":true,"per":"slot"}`, "Traceparent", traceA)
	require.Equal(t, http.StatusAccepted, answer.StatusCode, answer.body)
	require.Equal(t, "pdf 1 "+traceA, next())
	c.ask(http.MethodPost, "/v1/jobs", `{"type":"pdf","payload":"spawn"}`, "Traceparent", traceA)
	require.Equal(t, []string{"pdf 1 " + traceA, "child 1 " + traceA, "child 1 " + traceB}, []string{next(), next(), next()})

	answer = c.ask(http.MethodPost, "/v1/flows", `{"nodes":[{"name":"a","type":"pdf"},{"name":"b","type":"pdf","after":["a"]}],
		"callback":{"type":"child","traceparent":"`+traceB+`"}}`, "Traceparent", traceA)
	require.Equal(t, http.StatusCreated, answer.StatusCode, answer.body)
	require.Equal(t, []string{"pdf 1 " + traceA, "pdf 1 " + traceA, "child 1 " + traceB}, []string{next(), next(), next()})
	w.exec(`SELECT dispatcherd.insert_unique('{"type": "pdf", "traceparent": "` + traceB + `"}', 'other')`)
	require.Equal(t, "pdf 1 "+traceB, next(), "nothing of an earlier call is left in a session")
	w.exec(`INSERT INTO dispatcherd.jobs (type) VALUES ('pdf')`)
	require.Equal(t, "pdf 1 ", next())

	frames, err := client.New(client.Options{Socket: cfg.APISocket})
	require.NoError(t, err)
	defer frames.Close()
	_, err = frames.Do(t.Context(), client.Request{Type: "pdf", Traceparent: traceA})
	require.NoError(t, err)
	require.Equal(t, "pdf 1 "+traceA, next())
	_, err = frames.Do(t.Context(), client.Request{Type: "pdf", Traceparent: "x"})
	require.ErrorContains(t, err, "traceparent")
}

func TestProgramOfATracedJobGetsItsTraceContext(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	h := w.start(cfg)
	w.program("worker", "run", "--worker-socket", cfg.WorkerSocket, "--types", "pdf", "--", "sh", "-c", `echo "$TRACEPARENT"`)
	h.awaitSlots(1)
	require.JSONEq(t, `"`+traceA+`"`, h.caller().request(`{"type":"pdf"}`, "Traceparent", traceA).body)
}
