package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
)

// resuming starts the example worker that keeps its job. Its work is changed to
// wait until the file exists that the payload names.
func (w *world) resuming(socket string) {
	w.t.Helper()
	interpreter, err := python()
	require.NoError(w.t, err, "python3 is needed: install it with 'apt-get install python3' or 'brew install python3'")
	source, err := os.ReadFile("../../examples/python/resuming.py")
	require.NoError(w.t, err)
	changed := strings.Replace(string(source), "    return {", "    while not os.path.exists(job['payload']): time.sleep(0.01)\n    return {", 1)
	require.NotEqual(w.t, string(source), changed)
	path := filepath.Join(w.dir, "resuming.py")
	require.NoError(w.t, os.WriteFile(path, []byte(changed), 0o600))
	startCommand(w.t, exec.Command(interpreter, path, socket, "x"))
}

// A worker of thirty lines more keeps its job while the dispatcher is killed and
// started again, whether it ends in the gap or afterwards, and goes on to work.
func TestAWorkerInPythonKeepsItsJobOverARestart(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Lease = time.Minute
	daemon := w.serve(cfg)
	w.resuming(cfg.WorkerSocket)
	for n, inTheGap := range []bool{false, true, false} {
		gate := filepath.Join(w.dir, fmt.Sprint("gate", n))
		payload, err := json.Marshal(gate)
		require.NoError(t, err)
		id, err := w.jobs.Insert(t.Context(), claim.New{Type: "x", Payload: payload})
		require.NoError(t, err)
		w.await(id, dispatcherd.Running)
		open := func() { require.NoError(t, os.WriteFile(gate, nil, 0o600)) }
		daemon.kill()
		if inTheGap {
			open()
		}
		daemon = w.serve(cfg)
		eventually(t, func() bool { return slotsOf(cfg) == 1 }, func() string { return "the slot that it presents" })
		if !inTheGap {
			open()
		}
		job := w.await(id, dispatcherd.Done)
		require.EqualValues(t, 1, job.Attempt)
		require.Zero(t, job.Failures+job.Crashes)
		require.JSONEq(t, fmt.Sprintf(`{"echo":%s,"type":"x"}`, payload), string(job.Result))
	}
}

// What was cancelled meanwhile is not the worker's any more: it is told, and the
// slot is offered again once the work has ended.
func TestAWorkerInPythonLetsGoOfWhatIsNotTakenBack(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Lease = time.Minute
	daemon := w.serve(cfg)
	w.resuming(cfg.WorkerSocket)
	gate := filepath.Join(w.dir, "gate")
	payload, err := json.Marshal(gate)
	require.NoError(t, err)
	id, err := w.jobs.Insert(t.Context(), claim.New{Type: "x", Payload: payload})
	require.NoError(t, err)
	w.await(id, dispatcherd.Running)
	daemon.kill()
	w.exec(`UPDATE dispatcherd.jobs SET attempt = attempt + 1 WHERE id = $1`, int64(id)) // somebody else has it
	w.serve(cfg)
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	eventually(t, func() bool { return slotsOf(cfg) == 1 }, func() string { return "the slot, free again" })
	require.Equal(t, dispatcherd.Running, w.get(id).Status, "its result counts no more")
	other, err := w.jobs.Insert(t.Context(), claim.New{Type: "x", Payload: payload})
	require.NoError(t, err)
	w.await(other, dispatcherd.Done)
}
