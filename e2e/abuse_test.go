package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
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
		{
			"a duplicate slot later", welcomed, `{"op":"slot_add","slots":[{"slot":0,"types":["b"]}]}` + "\n", "bad_slot",
			"slot number 0 is taken", false,
		},
		{"a slot that does not exist", welcomed, `{"op":"slot_remove","slots":[77]}` + "\n", "unknown_slot", "slot 77", false},
		{"a second hello", welcomed, `{"op":"hello","versions":[1,1],"worker":"bad","slots":[]}` + "\n", "second_hello", "slot_add", true},
		{"a later version", dial, `{"op":"hello","versions":[7,9],"worker":"bad","slots":[]}` + "\n", "version", "7 to 9", true},
		{
			"the nonce of another session", welcomed,
			`{"op":"done","job":1,"attempt":1,"session":"00112233445566778899aabbccddeeff"}` + "\n", "wrong_session", "job 1", false,
		},
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
