package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/devpg"
)

// The server is stopped and started under load. Meanwhile results wait, and requests that need
// no row are answered.
func TestRestartOfPostgresLosesNothing(t *testing.T) {
	w, server, options := newWorldOnOwnServer(t)
	h := w.start(w.config("d"))
	w.worker("w", h.cfg.WorkerSocket, scriptSlots{N: 4, Types: []string{"x"}})
	h.awaitSlots(4)
	const jobs = 400
	running := w.insert("x", work{Do: "gate"})
	held := w.seen.start(t, running, 1)
	w.exec(`INSERT INTO dispatcherd.jobs (type) SELECT 'x' FROM generate_series(1, $1::int)`, jobs)
	w.seen.await(t, "some work", func(s sighting) bool { return s.Job > running+10 })
	w.db.Reset()
	require.NoError(t, server.Stop())

	w.seen.open(t, held) // the end of this job cannot be recorded yet
	w.seen.await(t, "its end", func(s sighting) bool { return s.What == "end" && s.Job == running })
	ctx, cancel := context.WithTimeout(t.Context(), longWait)
	defer cancel()
	_, err := h.framesClient().Do(ctx, client.Request{Type: "x", Payload: []byte(`{"result":"without Postgres"}`)})
	require.NoError(t, err)
	require.Positive(t, h.gauges().Unrecorded)

	again, err := devpg.Start(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, again.Stop()) })
	require.Equal(t, w.dsn, again.URL("postgres"))
	w.awaitCounts(map[dispatcherd.Status]int64{dispatcherd.Done: jobs + 1})
	for id, runs := range w.seen.ofJobs("start") {
		if !id.OnDemand() {
			require.Len(t, runs, 1, "job %d", id)
		}
	}
	h.awaitSlots(4)
	require.NoError(t, h.stop()) // the daemon stops before the server
	w.db.Close()
}
