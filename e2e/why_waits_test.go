package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/devpg"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// why returns the output of "job why".
func (w *world) why(h *host, id dispatcherd.JobID) string {
	w.t.Helper()
	return h.shown("job why %d", id)
}

func TestWhyWithoutASlotForTheType(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	serveCalls(t, h.cfg.WorkerSocket, 1, "excel", "pdf")
	h.awaitSlots(1)
	id := w.insert("pfd", work{})
	text := w.why(h, id)
	require.Contains(t, text, `no slot of any dispatcher supports the type; is "pdf" meant?`)
	require.Regexp(t, `offered +pdf, excel\n`, text)
	require.NotContains(t, w.why(h, w.insert("invoice", work{})), "meant?")
	eventually(t, func() bool {
		var list contract.TypePage
		got := h.caller().ask(http.MethodGet, "/v1/types", "")
		require.NoError(t, json.Unmarshal([]byte(got.body), &list))
		for _, known := range list.Items {
			if known.Type == "pfd" && known.Capacity == 0 && known.Pending != nil && *known.Pending == 1 {
				return true
			}
		}
		return false
	}, func() string { return "the type in the list of types" })
}

func TestWhyWhileAllSlotsAreBusy(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	callee := serveCalls(t, h.cfg.WorkerSocket, 1, "x")
	h.awaitSlots(1)
	running := w.insertNew(claim.New{Type: "x", Timeout: time.Hour}, work{Do: "gate"})
	h.awaitState("busy", running)
	waiting := w.insert("x", work{})
	eventually(t, func() bool { return h.slots()[0].Busy > 0 }, func() string { return "a duration" })
	text := w.why(h, waiting)
	require.Contains(t, text, "CapacityBusy: every slot that supports the type is taken")
	require.Regexp(t, fmt.Sprintf(`busy with job %d \(x\) for \S+, timeout in 59m`, running), text)
	close(callee.open)
	w.await(waiting, dispatcherd.Done)
	h.awaitSlots(1)
}

func TestWhyWhilePostgresIsDown(t *testing.T) {
	w, server, options := newWorldOnOwnServer(t)
	h := w.start(w.config("d"))
	callee := serveCalls(t, h.cfg.WorkerSocket, 1, "x")
	h.awaitSlots(1)
	running := w.insert("x", work{Do: "gate"})
	h.awaitState("busy", running)
	waiting := w.insert("x", work{})
	w.db.Reset()
	require.NoError(t, server.Stop())
	require.Regexp(t, fmt.Sprintf(`job +%d x, priority 0, running`, running), w.why(h, running))
	got := h.onAPI("", "job", "why", fmt.Sprint(waiting))
	require.Equal(t, exit.Unavailable, got.code)
	require.Contains(t, got.err, "Postgres does not answer; dispatchers claim no job until it does")

	again, err := devpg.Start(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, again.Stop()) })
	close(callee.open)
	w.await(waiting, dispatcherd.Done)
	h.awaitSlots(1)
	require.NoError(t, h.stop()) // the daemon stops before the server
	w.db.Close()
}

func TestWhyOfARowThatAnotherSessionHasLocked(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	id := w.insert("x", work{})
	require.NotContains(t, w.why(h, id), "RowLocked")
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	var pid int
	require.NoError(
		t,
		tx.QueryRow(t.Context(), `UPDATE dispatcherd.jobs SET progress = NULL WHERE id = $1 RETURNING pg_backend_pid()`, id).Scan(&pid),
	)
	serveCalls(t, h.cfg.WorkerSocket, 1, "x")
	eventually(t, func() bool { return h.gauges().Slots == 1 }, func() string { return "a slot" })
	require.Regexp(
		t,
		fmt.Sprintf(`RowLocked: the session of Postgres with process id %d \(.+\) has locked the row since \S+Z; dispatchers skip it`, pid),
		w.why(h, id),
	)
	require.NoError(t, tx.Commit(t.Context()))
	tx, err = w.db.Begin(t.Context()) // for the deferred rollback
	require.NoError(t, err)
	w.await(id, dispatcherd.Done)
	h.awaitSlots(1)
}

func TestWhyDuringBackoff(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Core.Retry.Base, cfg.Core.Retry.Max = time.Hour, time.Hour
	h := w.start(cfg)
	w.worker("w", cfg.WorkerSocket, oneSlot("x"))
	id := w.insert("x", work{Do: "fail", Times: 9})
	eventually(t, func() bool { return w.get(id).Failures == 1 }, func() string { return "a failure" })
	due := w.get(id).RunAt.UTC().Format("2006-01-02T15:04:05.000Z")
	require.Regexp(t, `Backoff: it failed; its next attempt is in the future(?s:.*)run_at +`+due+`, in \d+m.*\nfailures +1 of at most 5`,
		w.why(h, id))
	h.awaitSlots(1)
}

// Another dispatcher, whose decision log does not contain the job, reads the row.
func TestWhyOfAJobThatAnEarlierDispatcherPlaced(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	id := w.insert("x", work{})
	w.exec(`UPDATE dispatcherd.jobs SET run_at = run_at - interval '2 s'`) // the row keeps the placement after a wait of a second
	serveCalls(t, h.cfg.WorkerSocket, 1, "x")
	w.await(id, dispatcherd.Done)
	h.awaitSlots(1)
	require.NoError(t, h.stop())
	text := w.why(w.start(w.config("e")), id)
	require.Regexp(t, `placed +\S+ on slot \d+ of callee\n`, text)
	require.Regexp(t, `ended +\S+ done after \S+, attempt 1\n`, text)
}
