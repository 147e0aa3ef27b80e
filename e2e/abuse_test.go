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

	for _, c := range []struct {
		name       string
		send       string
		code, says string
		fatal      bool
	}{
		{"a frame over the limit", `{"op":"log","message":"` + strings.Repeat("x", 65<<10), "frame_too_long", "65536", true},
		{"an unknown frame", `{"op":"frobnicate"}` + "\n", "unknown_op", "frobnicate", false},
		{
			"the nonce of another session", `{"op":"done","job":1,"attempt":1,"session":"00112233445566778899aabbccddeeff"}` + "\n",
			"wrong_session", "job 1", false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := helloRaw(t, cfg.WorkerSocket, "bad").answering()
			r.send(c.send)
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
