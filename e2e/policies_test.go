package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// The policy of a type holds at all dispatchers as soon as the command has returned. That of a job has precedence, and what the worker asks
// for has precedence over both. "job get" says when the next attempt comes, and why.
func TestRetryPoliciesOfTypesAndJobs(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	cfg := w.config("e")
	cfg.Core.Retry = timing.Backoff{Base: time.Hour, Max: 10 * time.Hour}
	other := w.start(cfg)
	w.worker("w", other.cfg.WorkerSocket, scriptSlots{4, []string{"x", "y"}})
	other.awaitSlots(4)
	require.Equal(t, "type x: 3 attempts, list:1h,2h\n", h.shown("type set x --max-attempts 3 --backoff list:1h,2h"))
	require.Regexp(t, `x .* 3 attempts, list:1h,2h\n`, other.shown("types"))

	failing := work{Do: "fail", Times: 9, Error: "no paper"}
	waits := func(n claim.New, reason string) dispatcherd.JobID {
		t.Helper()
		id := w.insertNew(n, failing)
		var job contract.Job
		eventually(t, func() bool { job = w.get(id); return job.Status == dispatcherd.Pending && job.Failures == 1 },
			func() string { return "the first failure" })
		require.Regexp(t, `next attempt +2 of \d+ at \S+, because `+reason+`\n`, h.shown("job get %d", id))
		return id
	}
	id := waits(claim.New{Type: "x"}, "backoff of type x: list 1h, 2h")
	require.Equal(t, 3, w.get(id).MaxAttempts)
	require.InDelta(t, time.Hour, time.Until(w.get(id).RunAt), float64(time.Minute))
	waits(claim.New{Type: "x", Backoff: "exponential:30m,3,24h,0"}, "backoff of the job: exponential 30m ×3, at most 24h")
	waits(claim.New{Type: "y"}, "backoff of the dispatcher: exponential 1h ×2, at most 10h")
	w.exec(`UPDATE dispatcherd.jobs SET run_at = now() WHERE id = $1`, int64(id))
	eventually(t, func() bool { return w.get(id).Failures == 2 }, func() string { return "the second failure" })
	require.InDelta(t, 2*time.Hour, time.Until(w.get(id).RunAt), float64(time.Minute))
	w.exec(`UPDATE dispatcherd.jobs SET run_at = now() WHERE id = $1`, int64(id))
	require.Equal(t, 3, w.await(id, dispatcherd.Failed).Failures)
	once := w.insertNew(claim.New{Type: "x", MaxAttempts: 1}, failing)
	require.Equal(t, 1, w.await(once, dispatcherd.Failed).Failures)

	require.Equal(t, "type x: 5 attempts, fixed:1h\n", h.shown("type set x --backoff fixed:1h"))
	require.Equal(t, 5, w.get(id).MaxAttempts)
	waits(claim.New{Type: "x"}, "backoff of type x: fixed 1h")
	require.Equal(t, "type x: 5 attempts, backoff of the dispatcher\n", h.onAPI("", "type", "set", "x", "--backoff", "").out)
	require.Equal(t, 0, w.number(`SELECT count(*) FROM dispatcherd.types WHERE max_attempts IS NOT NULL OR backoff IS NOT NULL`))
	bad := h.caller().ask(http.MethodPut, "/v1/types/x/retries", `{"backoff":"fixed:1d"}`)
	require.Equal(t, http.StatusBadRequest, bad.StatusCode)
	require.Contains(t, bad.problem(t).Detail, `backoff "fixed:1d" must be exponential:BASE`)
	bad = h.caller().ask(http.MethodPut, "/v1/types/x/retries", `{"max_attempts":40000}`)
	require.Contains(t, bad.problem(t).Detail, `max_attempts is 40000, must be 1 to 32767`)
}
