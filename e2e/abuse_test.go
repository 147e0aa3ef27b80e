package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// Every invalid frame gets an error that names the defect. Other workers and their jobs are not
// affected.
func TestInvalidFrameGetsAnErrorAndOtherSessionsContinue(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Workers.MaxFrame = 64 << 10
	h := w.start(cfg)
	w.worker("honest", cfg.WorkerSocket, oneSlot("x"))
	h.awaitSlots(1)
	honest := h.slots()[0].Session

	dial := func(t *testing.T) *rawWorker { return dialRaw(t, cfg.WorkerSocket) }
	hello := func(slots string) func(*testing.T) *rawWorker {
		return func(t *testing.T) *rawWorker {
			r := dial(t)
			r.say(`{"op":"hello","versions":[1,1],"worker":"bad","slots":[%s]}`, slots)
			return r
		}
	}
	welcomed := func(t *testing.T) *rawWorker { return helloRaw(t, cfg.WorkerSocket, "bad").answering() }
	for _, c := range []struct {
		name       string
		open       func(*testing.T) *rawWorker
		send       string // NONCE stands for the nonce of the session
		code, says string
		fatal      bool
	}{
		{"a frame over the limit", welcomed, `{"op":"log","message":"` + strings.Repeat("x", 65<<10), "frame_too_long", "65536", true},
		{"a hello over the limit", dial, strings.Repeat("x", 65<<10), "frame_too_long", "65536", true},
		{"no JSON", welcomed, "this is not JSON\n", "bad_json", "", false},
		{"first line is not JSON", dial, "GET / HTTP/1.1\n", "bad_json", "", true},
		{"an array", welcomed, "[1,2]\n", "bad_json", "", false},
		{"text that is not UTF-8", welcomed, "{\"op\":\"log\",\"message\":\"\xff\"}\n", "bad_json", "", false},
		{"an unknown frame", welcomed, `{"op":"frobnicate"}` + "\n", "unknown_op", "frobnicate", false},
		{"first frame is not hello", dial, `{"op":"drain"}` + "\n", "not_hello", "hello", true},
		{"a slot without types", hello(`{"slot":0,"types":[]}`), "", "bad_slot", "slot 0 supports no types", true},
		{"a duplicate slot", hello(`{"slot":3,"types":["a"]},{"slot":3,"types":["b"]}`), "", "bad_slot", "slot number 3 is taken", true},
		{"an empty type", hello(`{"slot":0,"types":[""]}`), "", "bad_slot", "type is missing", true},
		{"a duplicate slot later", welcomed, `{"op":"slot_add","slots":[{"slot":0,"types":["b"]}]}` + "\n", "bad_slot", "slot number 0 is taken", false},
		{"a slot that does not exist", welcomed, `{"op":"slot_remove","slots":[77]}` + "\n", "unknown_slot", "slot 77", false},
		{"a second hello", welcomed, `{"op":"hello","versions":[1,1],"worker":"bad","slots":[]}` + "\n", "second_hello", "slot_add", true},
		{"a later version", dial, `{"op":"hello","versions":[7,9],"worker":"bad","slots":[]}` + "\n", "version", "7 to 9", true},
		{"the nonce of another session", welcomed, `{"op":"done","job":1,"attempt":1,"session":"00112233445566778899aabbccddeeff"}` + "\n", "wrong_session", "job 1", false},
		{"an attempt below one", welcomed, `{"op":"done","job":1,"attempt":0,"session":"NONCE"}` + "\n", "bad_value", "attempt", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.open(t)
			r.send(strings.ReplaceAll(c.send, "NONCE", r.nonce))
			r.refused(c.code, c.fatal, c.says)
			w.await(w.insert("x", work{}), dispatcherd.Done)
			if !c.fatal { // the session continues as if nothing had been sent
				id := w.insert("bad", work{})
				job := r.expect("job")
				require.Equal(t, id, job.Job)
				r.done(id, job.Attempt, r.nonce, `"fine"`)
				w.await(id, dispatcherd.Done)
			}
			require.NoError(t, r.conn.Close())
			h.awaitSlots(1)
		})
	}
	require.Equal(t, honest, h.slots()[0].Session, "the other worker must keep its session")
}

// A session that sends nothing, or half a frame, ends. Other sessions continue.
func TestSilentSessionEndsAndOtherSessionsContinue(t *testing.T) {
	w := newWorld(t)
	cfg := withShortHeartbeatTimeout(w.config("d"))
	cfg.Workers.HelloTimeout = 2 * time.Second
	h := w.start(cfg)
	w.worker("honest", cfg.WorkerSocket, oneSlot("x"))
	h.awaitSlots(1)
	honest := h.slots()[0].Session
	silent := map[string]*rawWorker{"hello_timeout": dialRaw(t, cfg.WorkerSocket), "heartbeat_timeout": helloRaw(t, cfg.WorkerSocket, "bad")}
	half := dialRaw(t, cfg.WorkerSocket)
	half.send(`{"op":"hel`)
	silent["heartbeat_timeout"].send(`{"op":"do`)
	half.refused("hello_timeout", true, "")
	for code, r := range silent {
		r.refused(code, true, "")
		require.NoError(t, r.conn.Close())
	}
	w.await(w.insert("x", work{}), dispatcherd.Done)
	h.awaitSlots(1)
	require.Equal(t, honest, h.slots()[0].Session, "the other worker must keep its session")
}

// A finish changes nothing if the session does not hold the job. The job may be pending, run in
// another session, or have ended already.
func TestFinishOfAJobOfAnotherSessionChangesNothing(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.worker("honest", h.cfg.WorkerSocket, oneSlot("x"))
	running := w.insert("x", work{Do: "gate"})
	held := w.seen.start(t, running, 1)
	waiting := w.insert("unsupported", work{})
	thief := helloRaw(t, h.cfg.WorkerSocket, "y")
	thief.done(running, 1, thief.nonce, `"stolen"`)
	thief.refused("not_held", false, fmt.Sprint("job ", running))
	for _, id := range []dispatcherd.JobID{waiting, 4711, -1} {
		thief.done(id, 1, thief.nonce, `"stolen"`)
		require.Equal(t, id, thief.expect("stale").Job)
	}
	own := w.insert("y", work{})
	thief.expect("job")
	thief.done(own, 1, thief.nonce, `"first"`)
	thief.done(own, 1, thief.nonce, `"second"`)
	require.Equal(t, own, thief.expect("stale").Job)
	require.JSONEq(t, `"first"`, string(w.await(own, dispatcherd.Done).Result))
	require.Equal(t, dispatcherd.Pending, w.get(waiting).Status)
	require.Equal(t, dispatcherd.Running, w.get(running).Status)
	w.seen.open(t, held)
	w.await(running, dispatcherd.Done)
	require.NoError(t, thief.conn.Close())
	h.awaitSlots(1)
}

// A jsonb value may be larger than a frame. If such a value is inserted, the sessions of
// workers that run other jobs must not end.
func TestUnreadablePayloadDoesNotEndTheSession(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.worker("honest", h.cfg.WorkerSocket, scriptSlots{N: 2, Types: []string{"x"}})
	h.awaitSlots(2)
	honest := h.slots()[0].Session
	held := w.seen.start(t, w.insert("x", work{Do: "gate"}), 1)
	for _, payload := range []string{`{"x": 1e5000}`, strings.Repeat("[", 200) + strings.Repeat("]", 200)} {
		id, err := w.jobs.Insert(t.Context(), claim.New{Type: "x", Payload: []byte(payload)})
		require.NoError(t, err)
		job := w.await(id, dispatcherd.Failed)
		require.Contains(t, string(job.Errors), "the payload cannot be sent to a worker")
		require.Zero(t, job.Crashes)
		require.EqualValues(t, 1, job.Attempt)
	}
	w.seen.open(t, held)
	w.await(held.Job, dispatcherd.Done)
	h.awaitSlots(2)
	require.Equal(t, honest, h.slots()[0].Session, "the worker must keep its session")
	requireAttemptsOnce(t, w)
}

// A worker that does not read loses its session when its outbox is full. Its jobs then run on
// other workers.
func TestWorkerThatDoesNotReadLosesItsSession(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Workers.WriteTimeout = 500 * time.Millisecond
	h := w.start(cfg)
	const slots = 50
	types := make([]string, slots)
	for i := range types {
		types[i] = "x"
	}
	silent := helloRaw(t, cfg.WorkerSocket, types...)
	h.awaitSlots(slots)
	payload := work{Secret: strings.Repeat("x", 50<<10)}
	for range slots {
		w.insert("x", payload)
	}
	eventually(t, func() bool { return h.gauges().Slots == 0 }, func() string { return fmt.Sprint("no slots; ", h.gauges()) })
	w.worker("honest", cfg.WorkerSocket, scriptSlots{N: 4, Types: []string{"x"}})
	w.awaitCounts(map[dispatcherd.Status]int64{dispatcherd.Done: slots})
	require.NoError(t, silent.conn.Close())
	h.awaitSlots(4)
}

// Connections that send only hello do not slow down others. The daemon is a separate process
// because both ends of each connection need a descriptor.
func TestTenThousandIdleConnectionsDoNotSlowWorkers(t *testing.T) {
	const wanted, spare = 10_000, 200
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	limit.Cur = limit.Max // the runtime does this at the start unless a program has lowered the limit
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	n := wanted
	if limit.Cur < wanted+spare {
		n = int(limit.Cur) - spare
		t.Logf("RLIMIT_NOFILE is %d: only %d connections instead of %d", limit.Cur, n, wanted)
	}
	w := newWorldAlone(t)
	cfg := w.config("d")
	process := w.serve(cfg, "--log-level", "warn")
	w.worker("honest", cfg.WorkerSocket, oneSlot("x"))
	w.await(w.insert("x", work{}), dispatcherd.Done)
	began := time.Now()
	idle := make([]*rawWorker, 0, n)
	for range n {
		idle = append(idle, helloPaced(t, cfg.WorkerSocket))
	}
	connected := time.Since(began)
	began = time.Now()
	const jobs = 50
	for range jobs {
		w.await(w.insert("x", work{}), dispatcherd.Done)
	}
	t.Logf(
		"%d idle connections opened in %v; a job took %v while they were open",
		n,
		connected.Round(time.Millisecond),
		(time.Since(began) / jobs).Round(time.Microsecond),
	)
	for _, r := range idle {
		require.NoError(t, r.conn.Close())
	}
	eventually(t, func() bool { return slotsOf(cfg) == 1 }, func() string { return "one slot" })
	process.signal(t, syscall.SIGTERM)
	process.ends(t, exit.OK)
}
