package e2e

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

// keeper is an example worker that resumes its job.
type keeper struct {
	program     string
	interpreter func() (string, error)
	imports     string
	// Replaces the last line of its work: it creates a file as a sign that it has started, and waits until the
	// file named by the payload exists.
	wait string
}

var keepers = []keeper{
	{
		"python/resuming.py",
		python,
		"",
		"    open(job['payload'] + '.begun', 'w').close()\n    while not os.path.exists(job['payload']): time.sleep(0.01)\n    return {",
	},
	{
		"node/resuming.mjs", func() (string, error) { return exec.LookPath("node") },
		"import { existsSync, writeFileSync } from 'node:fs';\n",
		"    writeFileSync(job.payload + '.begun', '');\n    while (!existsSync(job.payload)) await sleep(10);\n  return {",
	},
}

// eachKeeper runs a test with each example worker that this machine can run.
func eachKeeper(t *testing.T, test func(t *testing.T, k keeper)) {
	for _, k := range keepers {
		t.Run(k.program, func(t *testing.T) {
			if _, err := k.interpreter(); err != nil {
				t.Skipf("%s cannot be run: %v", k.program, err)
			}
			test(t, k)
		})
	}
}

func (w *world) resuming(k keeper, socket string) {
	w.t.Helper()
	interpreter, err := k.interpreter()
	require.NoError(w.t, err)
	source, err := os.ReadFile(filepath.Join("../examples", k.program))
	require.NoError(w.t, err)
	begin := k.wait[strings.LastIndex(k.wait, "\n")+1:]
	changed := strings.Replace(string(source), begin, k.wait, 1)
	require.NotEqual(w.t, string(source), changed)
	path := filepath.Join(w.dir, filepath.Base(k.program))
	require.NoError(w.t, os.WriteFile(path, []byte(k.imports+changed), 0o600))
	startCommand(w.t, exec.Command(interpreter, path, socket, "x"))
}

// begun waits until the worker has received the job. The status of the row is not sufficient:
// it is running from the claim on.
func begun(t *testing.T, gate string) {
	t.Helper()
	eventually(t, func() bool {
		_, err := os.Stat(gate + ".begun")
		return err == nil
	}, func() string { return "the start of the job" })
}

// The example worker keeps its job while the dispatcher is killed and started again. The job
// ends before or after the restart. Afterwards the worker accepts new jobs.
func TestExampleWorkerKeepsItsJobAcrossARestart(t *testing.T) {
	eachKeeper(t, keepsItsJob)
}

func keepsItsJob(t *testing.T, k keeper) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.Lease = time.Minute
	daemon := w.serve(cfg)
	w.resuming(k, cfg.WorkerSocket)
	for n, inTheGap := range []bool{false, true, false} {
		gate := filepath.Join(w.dir, fmt.Sprint("gate", n))
		payload, err := json.Marshal(gate)
		require.NoError(t, err)
		id, err := w.jobs.Insert(t.Context(), claim.New{Type: "x", Payload: payload})
		require.NoError(t, err)
		begun(t, gate)
		open := func() { require.NoError(t, os.WriteFile(gate, nil, 0o600)) }
		daemon.kill()
		if inTheGap {
			open()
		}
		daemon = w.serve(cfg)
		eventually(t, func() bool { return slotsOf(cfg) == 1 }, func() string { return "the slot of the resume offer" })
		if !inTheGap {
			open()
		}
		job := w.await(id, dispatcherd.Done)
		require.EqualValues(t, 1, job.Attempt)
		require.Zero(t, job.Failures+job.Crashes)
		require.JSONEq(t, fmt.Sprintf(`{"echo":%s,"type":"x"}`, payload), string(job.Result))
	}
}
