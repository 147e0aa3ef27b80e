package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/client"
)

// elsewhere is a dispatcher without workers, where the callers are, and one with a worker of type pdf.
func elsewhere(t *testing.T, slots int) (*world, *host, *host, *callee) {
	w := newWorld(t)
	here, there := w.start(w.config("here")), w.start(w.config("there"))
	c := serveCalls(t, there.cfg.WorkerSocket, slots, "pdf")
	there.awaitSlots(slots)
	here.awaitOthers("pdf", slots)
	return w, here, there, c
}

// awaitOthers waits until the dispatcher has read the slots of others in a heartbeat.
func (h *host) awaitOthers(typ string, slots int) {
	h.t.Helper()
	eventually(h.t, func() bool {
		known := 0
		h.Ask(func(c *actor.Core) { _, known = c.Capacity(typ) })
		return known == slots
	}, func() string { return fmt.Sprintf("%d slots for %s at other dispatchers", slots, typ) })
}

func (h *host) framesClient() *client.Client {
	c, err := client.New(client.Options{Socket: h.cfg.APISocket})
	require.NoError(h.t, err)
	h.t.Cleanup(c.Close)
	return c
}

func TestRequestReachesTheSlotOfAnotherDispatcher(t *testing.T) {
	w, here, there, c := elsewhere(t, 2)
	got := here.caller().request(`{"type":"pdf","payload":{"page":1}}`)
	require.Equal(t, http.StatusOK, got.StatusCode, got.body)
	require.JSONEq(t, `{"page":1}`, got.body)
	require.Equal(t, "queue", got.Header.Get("Dispatcherd-Via"))
	id, err := strconv.ParseInt(got.Header.Get("Dispatcherd-Job"), 10, 64)
	require.NoError(t, err)
	require.Equal(t, dispatcherd.Done, w.get(dispatcherd.JobID(id)).Status)
	require.Equal(t, "/v1/jobs/"+strconv.FormatInt(id, 10), got.Header.Get("Location"))

	frames := here.framesClient()
	a, err := frames.Ask(t.Context(), client.Request{Type: "pdf", Payload: 7})
	require.NoError(t, err)
	require.Equal(t, "queue", a.Via)
	require.Positive(t, a.Job)
	require.JSONEq(t, "7", string(a.Result))
	var queued string
	_, err = frames.Stream(t.Context(), client.Request{Type: "pdf"}, func(e client.Event) error {
		if e.Name == "queued" {
			queued = string(e.Data)
		}
		return nil
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"rank":1,"waiting":1,"via":"queue"}`, queued)

	later := here.caller().request(`{"type":"pdf"}`, "Prefer", "respond-async")
	require.Equal(t, http.StatusAccepted, later.StatusCode)
	require.Contains(t, later.body, `"via":"queue"`)
	eventually(t, func() bool {
		return here.caller().ask(http.MethodGet, later.Header.Get("Location"), "").StatusCode == http.StatusOK
	}, func() string { return "the answer" })

	failed := here.caller().request(`{"type":"pdf","payload":{"do":"fail"}}`)
	require.Equal(t, http.StatusUnprocessableEntity, failed.StatusCode)
	p := failed.problem(t)
	require.Equal(t, "queue", p.Via)
	require.Contains(t, p.Detail, "the page is torn")
	require.Equal(t, 1, w.get(p.Job).MaxAttempts)
	require.EqualValues(t, 5, c.runs.Load(), "each request runs once, also the one that fails")

	direct := there.caller().request(`{"type":"pdf"}`)
	require.Equal(t, http.StatusOK, direct.StatusCode)
	require.Empty(t, direct.Header.Get("Dispatcherd-Via"), "the dispatcher with the slots serves from memory")
	require.Equal(t, 5, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
	requireMetric(t, here.cfg, "dispatcherd_requests_diverted_total 5")
	requireMetric(t, here.cfg, `dispatcherd_requests_submitted_total{kind="durable"} 5`)
	requireMetric(t, here.cfg, `dispatcherd_requests_submitted_total{kind="memory"} 0`)
}

// The caller gets the answer as soon as the other dispatcher has recorded the end, not when its own one next reads the rows, which it does
// ten times per second.
func TestAnswerViaTheQueueDoesNotWaitForTheNextRead(t *testing.T) {
	w, here, _, _ := elsewhere(t, 1)
	c := here.caller()
	const calls = 40
	took := make([]time.Duration, calls)
	rounds := 0
	for rounds == 0 || rounds < 10 && took[calls/2] >= 50*time.Millisecond { // a loaded machine may need several
		rounds++
		for i := range took {
			begun := time.Now()
			require.Equal(t, http.StatusOK, c.request(`{"type":"pdf"}`).StatusCode)
			took[i] = time.Since(begun)
		}
		slices.Sort(took)
		t.Logf("p50 %v, p90 %v", took[calls/2], took[calls*9/10])
	}
	require.Less(t, took[calls/2], 50*time.Millisecond)
	require.Equal(t, rounds*calls, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
}

// The events of the worker reach a caller at another dispatcher, in their order, and before the result. A table carries them.
func TestEventsOfAWorkerReachACallerAtAnotherDispatcher(t *testing.T) {
	w, here, there, _ := elsewhere(t, 1)
	serveCalls(t, there.cfg.WorkerSocket, 1, "pdf", "other")
	here.awaitOthers("pdf", 2)
	slot := there.slots()[0].Slot
	for range 20 {
		stream := here.caller().request(`{"type":"pdf","payload":{"do":"talk"}}`, "Accept", "text/event-stream")
		require.Equal(t, "queue", stream.Header.Get("Dispatcherd-Via"))
		require.Equal(t, fmt.Sprintf(`id: 0
event: queued
data: {"rank":1,"waiting":1,"via":"queue"}

id: 1
event: started
data: {"slot":%d,"worker":"callee"}

id: 2
event: progress
data: {"done":1,"total":2,"message":"half"}

id: 3
event: partial
data: {"line":1}

id: 4
event: progress
data: {"done":2,"total":2,"message":"all"}

id: 5
event: result
data: {"do": "talk"}

`, slot), stream.body)
	}
	plain := here.caller().request(`{"type":"pdf"}`)
	require.Equal(t, "callee", plain.Header.Get("Dispatcherd-Worker"))
	// A start is told while the job runs.
	events := make(chan string, 10)
	go func() {
		_, _ = here.framesClient().Stream(t.Context(), client.Request{Type: "pdf", Payload: map[string]string{"do": "gate"}},
			func(e client.Event) error { events <- e.Name; return nil })
	}()
	require.Equal(t, "queued", receive(t, events, "it is queued"))
	require.Equal(t, "started", receive(t, events, "it starts"))
	w.exec(`UPDATE dispatcherd.reports SET made_at = now() - interval '2 minutes'`)
	require.Equal(t, http.StatusOK, here.caller().request(`{"type":"pdf"}`).StatusCode)
	require.LessOrEqual(t, w.number(`SELECT count(*) FROM dispatcherd.reports`), 2, "old reports are deleted")
}

func TestDurableFalseKeepsARequestFromTheQueue(t *testing.T) {
	w, here, _, _ := elsewhere(t, 1)
	for _, more := range []string{"", `,"coalesce_key":"c"`} {
		got := here.caller().request(`{"type":"pdf","durable":false` + more + `}`)
		require.Equal(t, http.StatusServiceUnavailable, got.StatusCode)
		require.Equal(t, `no slot of this dispatcher supports type "pdf", but slots of there do; `+
			`"durable": false keeps the request from the queue: leave it out, or send it there`, got.problem(t).Detail)
	}
	_, err := here.framesClient().Do(t.Context(), client.Request{Type: "pdf", LocalOnly: true})
	require.ErrorContains(t, err, "slots of there do")
	code := here.onAPI("", "request", "pdf", "--durable=false")
	require.Contains(t, code.err, "slots of there do")
	// With wait_for_worker, it waits for a slot of its own dispatcher.
	answered := make(chan response, 1)
	go func() {
		answered <- here.caller().request(`{"type":"pdf","durable":false,"wait_for_worker":60,"timeout":60}`)
	}()
	eventually(t, func() bool { return here.gauges().Requests == 1 }, func() string { return "a waiting request" })
	serveCalls(t, here.cfg.WorkerSocket, 1, "pdf")
	require.Equal(t, http.StatusOK, receive(t, answered, "the request is answered").StatusCode)
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
}

func TestWithoutAnySlotARequestIsRefusedAsBefore(t *testing.T) {
	w, here, _, _ := elsewhere(t, 1)
	got := here.caller().request(`{"type":"excel"}`)
	require.Equal(t, http.StatusServiceUnavailable, got.StatusCode)
	require.Contains(t, got.problem(t).Detail, `no slot supports type "excel"`)
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
}

func TestDeadlineOfARequestViaTheQueue(t *testing.T) {
	w, here, there, c := elsewhere(t, 1)
	late := here.caller().request(`{"type":"pdf","timeout":"3s","payload":{"do":"gate"}}`)
	require.Equal(t, http.StatusGatewayTimeout, late.StatusCode)
	p := late.problem(t)
	require.Equal(t, "queue", p.Via)
	require.Equal(t, p.Job, c.awaitCancelled(there))
	eventually(t, func() bool { // the timeout of the row expires a few milliseconds after the deadline, and may end the job first
		status := w.get(p.Job).Status
		return status == dispatcherd.Cancelled || status == dispatcherd.Failed
	}, func() string { return "the end of the job" })

	// The slot disappears while the row waits for it.
	blocked := make(chan response, 1)
	go func() { blocked <- there.caller().request(`{"type":"pdf","payload":{"do":"gate"},"timeout":60}`) }()
	eventually(t, func() bool { return c.runs.Load() == 2 }, func() string { return "a busy slot" })
	answered := make(chan response, 1)
	go func() { answered <- here.caller().request(`{"type":"pdf","timeout":2}`) }()
	eventually(t, func() bool { return w.number(`SELECT count(*) FROM dispatcherd.jobs`) == 2 }, func() string { return "the row" })
	require.NoError(t, there.stop())
	p = receive(t, answered, "the deadline passes").problem(t)
	require.Equal(t, http.StatusGatewayTimeout, p.Status)
	require.Contains(t, p.Detail, "this dispatcher had not started it; it was a job in the queue, because only slots of other dispatchers "+
		"supported the type when it arrived; no slot supports the type, here or at another dispatcher")
	w.await(p.Job, dispatcherd.Cancelled)
	receive(t, blocked, "the stop ends the other request")
	require.EqualValues(t, 2, c.runs.Load())
}

func TestCallerOfARequestViaTheQueueDisconnects(t *testing.T) {
	w, here, there, c := elsewhere(t, 1)
	disconnect := func(headers ...string) dispatcherd.JobID {
		before := c.runs.Load()
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = here.caller().send(ctx, http.MethodPost, "/v1/requests", `{"type":"pdf","timeout":60,"payload":{"do":"gate"}}`, headers...)
		}()
		eventually(t, func() bool { return c.runs.Load() == before+1 }, func() string { return "its start" })
		require.Zero(t, here.gauges().Requests, "it counts as a row, and not as a request in memory as well")
		cancel()
		<-gone
		return dispatcherd.JobID(w.number(`SELECT max(id) FROM dispatcherd.jobs`))
	}
	id := disconnect()
	require.Equal(t, id, c.awaitCancelled(there))
	w.await(id, dispatcherd.Cancelled)

	// With a key it continues, and the repeated call gets its answer, as for any durable request.
	key := []string{"Idempotency-Key", "k"}
	id = disconnect(key...)
	answers := make(chan response, 3)
	var calls sync.WaitGroup
	for range 3 {
		calls.Go(func() {
			answers <- here.caller().request(`{"type":"pdf","timeout":60,"payload":{"do":"gate"}}`, key...)
		})
	}
	close(c.open)
	calls.Wait()
	for range 3 {
		got := <-answers
		require.Equal(t, http.StatusOK, got.StatusCode, got.body)
		require.Equal(t, fmt.Sprint(id), got.Header.Get("Dispatcherd-Job"))
	}
	other := here.caller().request(`{"type":"pdf","timeout":60,"payload":{"do":"gate"},"durable":true}`, key...)
	require.Equal(t, "idempotency-key-reused", strings.TrimPrefix(other.problem(t).Type, "urn:dispatcherd:problem:"))
	require.EqualValues(t, 2, c.runs.Load())
	require.Equal(t, 2, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
}

// The key of a request via the queue is in the table. So a dispatcher that started anew finds the row.
func TestKeyOfARequestViaTheQueueOutlivesItsDispatcher(t *testing.T) {
	p := newPair(newWorld(t))
	const body = `{"type":"pdf","timeout":60,"payload":{"result":{"n":1}}}`
	first := callerOn(t, p.here).request(body, "Idempotency-Key", "k")
	require.Equal(t, http.StatusOK, first.StatusCode, first.body)
	p.caller.kill()
	p.caller = p.serve(p.here)
	p.awaitWorker()
	again := callerOn(t, p.here).request(body, "Idempotency-Key", "k")
	require.Equal(t, http.StatusOK, again.StatusCode, again.body)
	require.Equal(t, first.Header.Get("Dispatcherd-Job"), again.Header.Get("Dispatcherd-Job"))
	require.Len(t, p.seen.ofJobs("start"), 1)
}

// A payload that a worker may receive from memory, but that does not fit into a row, is refused with the place where it fits.
func TestPayloadThatFitsIntoNoRowNamesTheOtherDispatcher(t *testing.T) {
	w, here, there, _ := elsewhere(t, 1)
	body := `{"type":"pdf","payload":[` + strings.Repeat("1,", 200_000) + `1]}`
	got := here.caller().request(body)
	require.Equal(t, http.StatusServiceUnavailable, got.StatusCode, got.body)
	require.Contains(t, got.problem(t).Detail, `slots of there do; the request cannot be a job in the queue (`)
	require.Contains(t, got.problem(t).Detail, "send it there")
	require.Equal(t, http.StatusOK, there.caller().request(body).StatusCode)
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
}

// A pause of requests holds for those that only other dispatchers can serve, too. They do not get past it as rows.
func TestPausedRequestIsNotServedThroughTheQueue(t *testing.T) {
	w, here, _, _ := elsewhere(t, 1)
	require.Zero(t, here.onAPI("", "type", "pause", "pdf", "--requests").code)
	eventually(t, func() bool {
		got := here.caller().request(`{"type":"pdf"}`)
		return strings.HasSuffix(got.problem(t).Type, "paused")
	}, func() string { return "a refusal because of the pause" })
	before := w.number(`SELECT count(*) FROM dispatcherd.jobs`)
	require.Equal(t, http.StatusServiceUnavailable, here.caller().request(`{"type":"pdf"}`).StatusCode)
	require.Equal(t, before, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
	require.Zero(t, here.onAPI("", "type", "resume", "pdf").code)
	eventually(t, func() bool { return here.caller().request(`{"type":"pdf"}`).StatusCode == http.StatusOK },
		func() string { return "an answer after the pause" })
}

// The rights of a caller are those at its own dispatcher.
func TestCallerWithoutTheTypeDoesNotReachAnotherDispatcher(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("here")
	require.NoError(t, cfg.AllowAPI.Set("pdf=4000"))
	here, there := w.start(cfg), w.start(w.config("there"))
	serveCalls(t, there.cfg.WorkerSocket, 1, "pdf")
	here.awaitOthers("pdf", 1)
	for _, body := range []string{`{"type":"pdf"}`, `{"type":"pdf","durable":false}`} {
		got := here.caller().request(body)
		require.Equal(t, http.StatusForbidden, got.StatusCode)
		require.NotContains(t, got.body, "there", "it does not learn who supports the type")
	}
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
}
