package e2e

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/daemon"
)

// The tests of this file attack what docs/explanation/security.md promises and no other test attacks.

// Every role that can connect may NOTIFY. Here it names running, waiting and missing jobs, another type and
// another order, and requests cancellations.
func TestForgedNotificationsChangeNoRow(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	h := w.start(cfg)
	w.worker("w", cfg.WorkerSocket, oneSlot("x"), oneSlot("y"))
	h.awaitSlots(2)
	running := w.seen.start(t, w.insert("x", work{Do: "gate"}), 1)
	other := w.seen.start(t, w.insert("y", work{Do: "gate"}), 1)
	waiting, missing := w.insert("x", work{}), running.Job+1000
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SET LOCAL ROLE dispatcherd_reader`)
	require.NoError(t, err)
	for _, id := range []dispatcherd.JobID{running.Job, waiting, missing, -1} {
		for _, payload := range []string{"%d", "%d 10 0 x", "%d 0 1000000 y", "%d 99 0 z", "%d \u202e"} {
			for _, topic := range []string{"cancel ", "jobs ", "keys ", "edits ", "ends ", "self ", ""} {
				_, err = tx.Exec(t.Context(), `SELECT pg_notify('dispatcherd', $1)`, topic+fmt.Sprintf(payload, id))
				require.NoError(t, err)
			}
		}
	}
	require.NoError(t, tx.Commit(t.Context()))
	_, err = w.jobs.Cancel(t.Context(), other.Job)
	require.NoError(t, err)
	w.await(other.Job, dispatcherd.Cancelled) // so the dispatcher has read the notifications before
	w.seen.open(t, running)
	w.await(running.Job, dispatcherd.Done)
	require.EqualValues(t, 1, w.await(waiting, dispatcherd.Done).Attempt)
	requireAttemptsOnce(t, w)
	w.awaitCounts(map[dispatcherd.Status]int64{dispatcherd.Cancelled: 1, dispatcherd.Done: 2})
}

func TestSupplementaryGroupPermitsNoType(t *testing.T) {
	const group = 5000
	w, h := callersWorld(t, fmt.Sprintf("payroll=@%d", group))
	member := callerOn(t, daemon.Config{APISocket: w.relay(h.cfg.APISocket, stranger, group)})
	other := callerOn(t, daemon.Config{APISocket: w.relay(h.cfg.APISocket, stranger, stranger, group)})
	for c, status := range map[*caller]int{member: http.StatusCreated, other: http.StatusForbidden} {
		require.Equal(t, status, c.ask(http.MethodPost, "/v1/jobs", `{"type":"payroll"}`, "Content-Type", "application/json").StatusCode)
	}
}

// The environment contains the password of the database.
func TestOtherUsersCannotReadTheEnvironmentOfTheDaemon(t *testing.T) {
	w := newWorld(t)
	p := w.serve(w.config("d"))
	file, err := os.Stat(fmt.Sprintf("/proc/%d/environ", p.pid()))
	require.NoError(t, err)
	require.Equal(t, "-r--------", strings.ToLower(file.Mode().String()))
}
