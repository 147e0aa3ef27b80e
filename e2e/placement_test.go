package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// shown returns the output of a command.
func (h *host) shown(line string, args ...any) string {
	h.t.Helper()
	got := h.onAPI("", strings.Fields(fmt.Sprintf(line, args...))...)
	require.Equal(h.t, exit.OK, got.code, got.err)
	return got.out
}

func TestFinishedJobSaysWhereItRanAndWhyItWaited(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	callee := serveCalls(t, h.cfg.WorkerSocket, 1, "x")
	h.awaitSlots(1)
	first := w.insert("x", work{Do: "gate"})
	h.awaitState("busy", first)
	second := w.insertNew(claim.New{Type: "x", Priority: 2}, work{})
	eventually(t, func() bool { return h.gauges().Cached == 1 }, func() string { return "a candidate" })
	age := func() int {
		return w.number(`SELECT (1000 * extract(epoch FROM statement_timestamp() - run_at))::int FROM dispatcherd.jobs WHERE id = $1`, second)
	}
	unknown := age() // until the fetch, the dispatcher does not know why the job waits
	eventually(t, func() bool { return age() > 3*unknown+1100 }, func() string { return "a longer wait" })
	close(callee.open)
	job := w.await(second, dispatcherd.Done)
	p := job.Placement
	require.NotNil(t, p)
	require.Equal(t, "callee", p.Worker)
	require.Equal(t, h.slots()[0].Slot, p.Slot)
	require.InDelta(t, 2*1024, p.Score.Base, 0.1)
	require.InDelta(t, 500, p.Score.Rarity, 0.1)
	require.Equal(t, "CapacityBusy", p.WaitedFor)
	require.Positive(t, p.Waited)
	require.Less(t, p.Ran, p.Waited+60)
	text := h.shown("job get %d", second)
	require.Regexp(t, `worker +callee, slot \d+\n`, text)
	require.Regexp(t, `waited +\S+, longest for: CapacityBusy\n`, text)
	require.Regexp(t, `attempt 1 +ended \S+ on callee, waited \S+, ran \S+: done\n`, text)
	require.Regexp(t, `dispatcher +d\n`, text)
	require.Regexp(t, `started at +\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\n`, text)
	got := h.caller().ask(http.MethodGet, fmt.Sprintf("/v1/jobs/%d", second), "")
	var answer contract.Job
	require.NoError(t, json.Unmarshal([]byte(got.body), &answer))
	require.Equal(t, p, answer.Placement)
	h.awaitSlots(1)
}

// Each failed attempt says where it ran, and the job keeps the time at which it was first due.
func TestRetriedJobKeepsItsFirstDueTimeAndItsAttempts(t *testing.T) {
	w := newWorld(t)
	h := w.start(w.config("d"))
	w.worker("w1", h.cfg.WorkerSocket, oneSlot("x"))
	id := w.insertNew(claim.New{Type: "x", MaxAttempts: 2}, work{Do: "fail", Times: 99, Error: "first line\nsecond line"})
	due := w.get(id).RunAt
	job := w.await(id, dispatcherd.Failed)
	require.Equal(t, due, *job.FirstRunAt)
	require.True(t, job.RunAt.After(due))
	require.Equal(t, "w1", job.Placement.Worker)
	var ends []struct{ Placement contract.Placement }
	require.NoError(t, json.Unmarshal(job.Errors, &ends))
	require.Equal(t, "w1", ends[0].Placement.Worker)
	text := h.shown("job get %d", id)
	require.Regexp(t, `first run at +`+due.UTC().Format("2006-01-02T15:04:05.000Z"), text)
	require.Regexp(t, `attempt 1 +ended \S+ on w1 slot \d+, waited \S+, ran \S+: retry: first line\n +second line\n`, text)
	require.NoError(t, w.jobs.Retry(t.Context(), id))
	require.Equal(t, due, *w.get(id).FirstRunAt)
	w.await(id, dispatcherd.Failed)
	h.awaitSlots(1)
}
