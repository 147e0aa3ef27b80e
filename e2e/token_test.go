package e2e

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/worker"
)

// A failover that lost commits can assign the id and the attempt of an earlier execution
// again. The token of the job frame differs.
func TestTokenDiffersWhenIDAndAttemptRepeat(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	jobs := make(chan worker.Job, 3)
	slot := worker.New(worker.Options{Socket: h.cfg.WorkerSocket, Name: "w"})
	slot.Handle("pdf", func(_ context.Context, j *worker.Job) (any, error) {
		jobs <- *j
		return nil, nil
	})
	slot.Slots(1, "pdf")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- slot.Run(ctx) }()
	h.awaitSlots(1)

	tokens := map[string]bool{"": true}
	for n := range 3 {
		if n < 2 {
			w.exec(`DELETE FROM dispatcherd.jobs`)
			w.exec(`INSERT INTO dispatcherd.jobs (id, type) VALUES (7, 'pdf')`)
			w.await(7, dispatcherd.Done)
		} else {
			require.Equal(t, http.StatusOK, h.caller().request(`{"type":"pdf"}`).StatusCode)
		}
		j := <-jobs
		require.EqualValues(t, 1, j.Attempt)
		require.False(t, tokens[j.Token], "token %q again", j.Token)
		tokens[j.Token] = true
	}
	stop()
	<-ended
}

// No worker supports the type, so the row waits after its release.
func TestWhyNamesAnUnheldRow(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.exec(`INSERT INTO dispatcherd.jobs (id, type, status, dispatcher, attempt) VALUES (7, 'pdf', 'running', $1, 1)`, h.ID())
	reasons := func() string {
		text, err := askAPI(h.cfg, "/v1/jobs/7/why")
		require.NoError(t, err)
		return text
	}
	require.Contains(t, reasons(), `"reasons":["Unheld"]`)
	w.exec(
		`UPDATE dispatcherd.jobs SET status = 'pending', dispatcher = NULL, errors = jsonb_build_array(jsonb_build_object('error', $1::text))`,
		claim.WhyUnheld,
	)
	require.Contains(t, reasons(), `"Unheld"`)
	w.exec(`UPDATE dispatcherd.jobs SET errors = '[{"error": "another"}]'`)
	require.NotContains(t, reasons(), "Unheld")
}
