package e2e

import (
	"context"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/worker"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// heldWorker runs a worker with one slot for type x. Its jobs tell started, and end when release is closed.
func heldWorker(t *testing.T, dispatchers string, disconnected func(error)) (
	started chan *worker.Job, connected chan string, release chan struct{},
) {
	t.Helper()
	started, connected, release = make(chan *worker.Job, 9), make(chan string, 99), make(chan struct{})
	k := worker.New(worker.Options{
		Dispatcher: dispatchers, Disconnected: disconnected,
		Connected: func(welcome workerproto.Welcome) { connected <- welcome.Dispatcher },
	})
	k.Handle("x", func(ctx context.Context, job *worker.Job) (any, error) {
		started <- job
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil, ctx.Err()
	})
	k.Slots(1, "x")
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, receive(t, done, "the end of the worker"))
	})
	return started, connected, release
}

// startResuming starts a dispatcher whose workers may continue without it.
func (w *world) startResuming(name string) *host {
	cfg := w.config(name)
	cfg.Workers.Resume, cfg.Core.Resume = time.Minute, time.Minute
	return w.start(cfg)
}

// An operator drains a dispatcher. The worker that knows another one goes there with its running job, whose attempt stays the
// same and counts no crash. The drained dispatcher accepts no new worker until it is resumed.
func TestDrainedDispatcherSendsItsWorkersToTheOther(t *testing.T) {
	w := newWorld(t)
	a, b := w.startResuming("a"), w.startResuming("b")
	ofA := "unix://" + a.cfg.WorkerSocket
	started, connected, release := heldWorker(t, ofA+",unix://"+b.cfg.WorkerSocket, func(error) {})
	require.Equal(t, "a", receive(t, connected, "the first connection"))
	id := w.insert("x", work{})
	require.Equal(t, id, receive(t, started, "the job").ID)

	api, err := client.New(client.Options{Socket: b.cfg.APISocket})
	require.NoError(t, err)
	_, err = api.DrainDispatcher(t.Context(), "c")
	require.ErrorContains(t, err, "no such dispatcher lives")
	unconfirmed, err := api.DrainDispatcher(t.Context(), "a")
	require.NoError(t, err)
	require.Empty(t, unconfirmed)
	require.Equal(t, "b", receive(t, connected, "the other connection"))
	list, err := client.Call[contract.Page[contract.Dispatcher]](t.Context(), api, http.MethodGet, "/v1/dispatchers", nil)
	require.NoError(t, err)
	status, err := api.Status(t.Context())
	require.NoError(t, err)
	require.Len(t, status.Dispatchers, len(list.Items))
	for i, d := range list.Items {
		states := map[string]string{"a": "drained", "b": "running"}
		require.Equal(t, states[d.Name], d.State)
		require.Equal(t, states[status.Dispatchers[i].Name], status.Dispatchers[i].State)
	}

	refused := make(chan error, 99)
	_, accepted, _ := heldWorker(t, ofA, func(err error) { refused <- err })
	require.ErrorContains(t, receive(t, refused, "the refusal"), "an operator drains this dispatcher")
	_, err = api.ResumeDispatcher(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, "a", receive(t, accepted, "the connection after the resumption"))
	_, err = api.ResumeDispatcher(t.Context(), "a")
	require.ErrorContains(t, err, "is not drained")
	eventually(t, func() bool { return regexp.MustCompile(` a +\d`).MatchString(b.shown("worker list")) },
		func() string { return "b sees it" })
	drain := b.onAPI("", "dispatcher", "drain", "a") // the second worker knows only a
	require.Contains(t, drain.err, "Without another dispatcher, these stay: 1 worker.")
	require.Equal(t, "dispatcher a drained\n", drain.out)
	require.NotContains(t, drain.err, "warning")

	close(release)
	job := w.await(id, dispatcherd.Done)
	require.EqualValues(t, 1, job.Attempt)
	require.Zero(t, w.number(`SELECT crashes::int FROM dispatcherd.jobs WHERE id = $1`, int64(id)))
	require.Contains(t, b.onAPI("", "dispatcher", "drain", "b").err, "warning: no other dispatcher accepts workers")
}

// A dispatcher that is told to stop sends its workers away at once, so its jobs do not wait for the grace period.
func TestWorkerLeavesAStoppingDispatcherWithItsJob(t *testing.T) {
	w := newWorld(t)
	a, b := w.startResuming("a"), w.startResuming("b")
	started, connected, release := heldWorker(t, "unix://"+a.cfg.WorkerSocket+",unix://"+b.cfg.WorkerSocket, func(error) {})
	require.Equal(t, "a", receive(t, connected, "the first connection"))
	id := w.insert("x", work{})
	receive(t, started, "the job")
	a.stop()
	require.Equal(t, "b", receive(t, connected, "the other connection"))
	close(release)
	require.EqualValues(t, 1, w.await(id, dispatcherd.Done).Attempt)
}
