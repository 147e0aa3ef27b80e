package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"
	"github.com/dispatcherd/dispatcherd/worker"
)

// A dispatcher is killed with kill -9 while its caller waits. Repetitions with the same key,
// through another dispatcher and through the restarted one, get the result of the same row,
// during the execution and afterwards.
func TestKeyOfADurableRequestSurvivesItsDispatcher(t *testing.T) {
	w := newWorld(t)
	p := newPair(w)
	const body = `{"type":"pdf","durable":true,"timeout":60,"payload":{"do":"gate"}}`
	call := func(c *caller) <-chan response {
		got := make(chan response, 1)
		go func() { got <- c.request(body, "Idempotency-Key", "k") }()
		return got
	}
	lost := make(chan error, 1)
	here := callerOn(t, p.here)
	go func() {
		_, err := here.send(t.Context(), http.MethodPost, "/v1/requests", body, "Idempotency-Key", "k")
		lost <- err
	}()
	running := w.seen.await(t, "the first attempt", func(s sighting) bool { return s.What == "start" })
	p.caller.kill()
	require.Error(t, <-lost)
	there := callerOn(t, p.there)
	second := call(there)
	p.caller = p.serve(p.here)
	third := call(callerOn(t, p.here))
	reused := there.request(`{"type":"pdf","durable":true}`, "Idempotency-Key", "k")
	require.Equal(t, problem.KeyReused.Name, reused.problem(t).Type[len("urn:dispatcherd:problem:"):])
	w.seen.open(t, running)
	want := <-second
	require.Equal(t, http.StatusOK, want.StatusCode, want.body)
	require.Equal(t, want.body, (<-third).body)
	p.caller.kill()
	p.caller = p.serve(p.here)
	again := <-call(callerOn(t, p.here))
	require.Equal(t, want.body, again.body, "the row has ended")
	require.Equal(t, want.Header.Get("Dispatcherd-Job"), again.Header.Get("Dispatcherd-Job"))
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
	require.Len(t, w.seen.ofJobs("start")[running.Job], 1)
}

// The connection of a caller breaks while its dispatcher lives. The job continues, and the
// repetition at another dispatcher gets its result.
func TestDisconnectKeepsTheRowOfAKey(t *testing.T) {
	w := newWorld(t)
	here, there := w.start(w.config("here")), w.start(w.config("there"))
	callee := serveCalls(t, here.cfg.WorkerSocket, 1, "pdf")
	here.awaitSlots(1)
	const body = `{"type":"pdf","durable":true,"timeout":60,"payload":{"do":"gate"}}`
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	lost := make(chan error, 1)
	go func() {
		_, err := here.caller().send(ctx, http.MethodPost, "/v1/requests", body, "Idempotency-Key", "k")
		lost <- err
	}()
	eventually(t, func() bool { return callee.runs.Load() == 1 }, func() string { return "a running request" })
	hangUp()
	require.ErrorIs(t, <-lost, context.Canceled)
	eventually(t, func() bool { return here.Books().API.Connections == 0 }, func() string { return "the end of the connection" })
	got := make(chan response, 1)
	again := there.caller()
	go func() { got <- again.request(body, "Idempotency-Key", "k") }()
	eventually(t, func() bool { return followers(there) == 1 }, func() string { return "the repetition" })
	close(callee.open)
	answer := <-got
	require.Equal(t, http.StatusOK, answer.StatusCode, answer.body)
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
	require.EqualValues(t, 1, callee.runs.Load())
}

// The frame cancel ends the row of a key, in contrast to the end of the connection. The callers
// that share the row continue.
func TestCancelFrameEndsTheRowOfAKey(t *testing.T) {
	w := newWorld(t)
	h, callee := w.startCallee(1)
	request := func(id int) string {
		return fmt.Sprintf(
			`{"op":"request","id":%d,"type":"pdf","durable":true,"timeout_ms":60000,"payload":{"do":"gate"},"idempotency_key":"k"}`+"\n",
			id,
		)
	}
	open := func(frames string) net.Conn {
		conn, err := net.Dial("unix", h.cfg.APISocket)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = io.WriteString(conn, `{"op":"hello","versions":[1,1]}`+"\n"+frames)
		require.NoError(t, err)
		return conn
	}
	shares := func(n int64) {
		eventually(t, func() bool { return followers(h) == n }, func() string { return fmt.Sprint(n, " callers") })
	}
	broken := open(request(1))
	eventually(t, func() bool { return callee.runs.Load() == 1 }, func() string { return "a running request" })
	require.NoError(t, broken.Close())
	eventually(t, func() bool {
		g := h.Books().API
		return g.Connections == 0 && g.FrameSessions == 0 && g.FrameRequests == 0
	}, func() string { return "the end of the connection" })
	shares(1) // it stands for the caller that has disconnected

	conn := open(request(1) + request(2))
	shares(3)
	_, err := io.WriteString(conn, `{"op":"cancel","id":1}`+"\n")
	require.NoError(t, err)
	shares(2)
	require.Equal(t, dispatcherd.Running, w.get(1).Status)
	_, err = io.WriteString(conn, `{"op":"cancel","id":2}`+"\n")
	require.NoError(t, err)
	receive(t, callee.cancelled, "the worker gets the cancel")
	w.await(1, dispatcherd.Cancelled)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(longWait)))
	in := bufio.NewReader(conn)
	for _, want := range []string{`"op":"welcome"`, `"id":1,"code":"job-cancelled"`, `"id":2,"code":"job-cancelled"`} {
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, line, want)
	}
	shares(0)
	_, err = io.WriteString(conn, request(3))
	require.NoError(t, err)
	eventually(t, func() bool { return callee.runs.Load() == 2 }, func() string { return "a second row, because the key is free again" })
	close(callee.open)
	w.await(2, dispatcherd.Done)
}

// After a 504 at one dispatcher, a repetition at another one gets the same 504.
func TestLateDurableRequestIsLateAtEachDispatcher(t *testing.T) {
	w := newWorld(t)
	here, there := w.start(w.config("here")), w.start(w.config("there"))
	const body = `{"type":"pdf","durable":true,"timeout":0.2}`
	var jobs []dispatcherd.JobID
	for _, h := range []*host{here, there} {
		got := h.caller().request(body, "Idempotency-Key", "k")
		require.Equal(t, http.StatusGatewayTimeout, got.StatusCode, got.body)
		jobs = append(jobs, got.problem(t).Job)
	}
	require.Equal(t, jobs[0], jobs[1])
	w.awaitCounts(map[dispatcherd.Status]int64{dispatcherd.Cancelled: 1})
}

// Forty callers wait for one slot, which is busy for longer than all deadlines.
func TestNoAttemptStartsAfterTheDeadline(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	var mu sync.Mutex
	started := map[dispatcherd.JobID]time.Time{}
	slot := worker.New(worker.Options{Socket: h.cfg.WorkerSocket, Name: "w"})
	slot.Handle("pdf", func(_ context.Context, j *worker.Job) (any, error) {
		mu.Lock()
		started[j.ID] = time.Now()
		mu.Unlock()
		<-time.After(200 * time.Millisecond)
		return nil, nil
	})
	slot.Slots(1, "pdf")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- slot.Run(ctx) }()
	h.awaitSlots(1)

	// The cancellation of a row whose deadline has passed fails, as if Postgres were busy.
	w.exec(
		`CREATE OR REPLACE FUNCTION dispatcherd.cancel_pending(job bigint, by text DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE lock_not_available; END'`,
	)
	answers, late := map[int]int{}, map[dispatcherd.JobID]time.Time{}
	var calls sync.WaitGroup
	for range 40 {
		calls.Go(func() {
			got := h.caller().request(`{"type":"pdf","durable":true,"timeout":0.2}`)
			mu.Lock()
			defer mu.Unlock()
			answers[got.StatusCode]++
			if got.StatusCode == http.StatusGatewayTimeout {
				late[got.problem(t).Job] = time.Now()
			}
		})
	}
	calls.Wait()
	eventually(t, func() bool { return w.number(`SELECT count(*) FROM dispatcherd.jobs_live`) == 0 },
		func() string { return "the end of all rows" })
	stop()
	<-ended
	require.Greater(t, answers[http.StatusGatewayTimeout], 30, answers)
	t.Log(len(late), "rows with a 504,", len(started), "attempts")
	for job, at := range started {
		if due, is := late[job]; is {
			require.True(t, at.Before(due), "job %d started %v after the 504", job, at.Sub(due))
		}
	}
}
