package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

// status returns the status of the cluster as a daemon sees it.
func (h *host) status() (s client.Status) {
	h.t.Helper()
	var answer struct{ Status *client.Status }
	answer.Status = &s
	require.NoError(h.t, json.Unmarshal([]byte(h.shown("status -o json")), &answer))
	return s
}

func TestEachDispatcherShowsTheWholeCluster(t *testing.T) {
	w := newWorld(t)
	a, b := w.start(w.config("a")), w.start(w.config("b"))
	serveCalls(t, a.cfg.WorkerSocket, 2, "pdf")
	callee := serveCalls(t, b.cfg.WorkerSocket, 1, "excel", "pdf")
	a.awaitSlots(2)
	b.awaitSlots(1)
	running := w.insert("excel", work{Do: "gate"})
	b.awaitState("busy", running)
	w.insert("payroll", work{})
	for _, h := range []*host{a, b} {
		eventually(t, func() bool { // the summary of the other one may be two seconds old
			got := h.onAPI("", "slot", "list")
			return got.err == "" && strings.Contains(got.out, "  b           callee  0       busy   1 (excel)  excel, pdf\n")
		}, func() string { return "the slot of b: " + h.onAPI("", "slot", "list").out })
		require.Regexp(t, `^WORKER +DISPATCHER +SESSION .+\ncallee +a +1 +\d+ +\d+ +2 +2 +pdf +-\ncallee +b +1 +\d+ +\d+ +1 +0 +excel, pdf +-\n$`,
			h.shown("worker list"))
		require.Equal(t, 2, strings.Count(h.shown("slot list --limit 2"), "\n")-1)
		require.Equal(t, 4, strings.Count(h.shown("slot list"), "\n"))
		require.Equal(t, 2, strings.Count(h.shown("worker list --local"), "\n"))
		require.NotContains(t, h.shown("worker list --local"), map[*host]string{a: " b ", b: " a "}[h])
		eventually(t, func() bool { return strings.Contains(h.onAPI("", "types").out, "payroll") }, func() string { return "the count" })
		require.Regexp(t, `\nexcel +b +1 +0 +0 +0 .+\npayroll +- +0 +0 +0 +1 .+\npdf +a +2 +2 +1 +0 .+\npdf +b +1 +0 +2 +0 `,
			h.shown("types"))

		require.Regexp(t, `\n1 +excel +running +0 +callee +\S+ +\S+ +0/5 +- +- +-\n$`, h.shown("job list --worker callee"))
		const want = `dispatcher +b\nworker +callee\n(.*\n)*attempt 1 +started \S+ on callee, waited .*, ran \S+: running\n`
		require.Regexp(t, want, h.shown("job get 1"))
		if h == a {
			require.Regexp(t, `OtherDispatcher.*\ndispatcher +b\n`, h.shown("job why 1"))
		}

		s := h.status()
		require.Empty(t, s.Notes)
		require.Len(t, s.Dispatchers, 2)
		require.Equal(t, "a", s.Dispatchers[0].Name)
		require.Equal(t, h == a, s.Dispatchers[0].Self)
		require.Equal(t, 1, s.Dispatchers[1].Busy)
		require.True(t, s.Dispatchers[0].Answered && s.Dispatchers[1].Answered)
		require.Equal(t, 3, s.Total.Slots)
		require.Equal(t, 1, s.Total.Busy)
		require.Equal(t, "payroll", s.Types[0].Type)
		require.Len(t, s.Alarms, 1)
		require.Equal(t, "no_slot", s.Alarms[0].Kind)
		text := h.shown("status")
		require.Contains(t, text, `ALARM    type "payroll": 1 waiting, the oldest for `)
		for line := range strings.Lines(text) {
			require.LessOrEqual(t, len([]rune(line)), 101, line)
		}
	}
	close(callee.open)
	eventually(t, func() bool { s := a.status(); return s.Total.PerSecond > 0 && s.Total.Busy == 0 }, func() string { return "an end" })

	c, err := client.New(client.Options{Socket: a.cfg.APISocket})
	require.NoError(t, err)
	defer c.Close()
	slots, err := c.Slots(t.Context(), client.SlotQuery{Query: client.Query{Limit: 2}})
	require.NoError(t, err)
	require.Len(t, slots.Items, 2)
	more, err := c.Slots(t.Context(), client.SlotQuery{Query: client.Query{Cursor: slots.Next}})
	require.NoError(t, err)
	require.Len(t, more.Items, 1)
	workers, err := c.Workers(t.Context(), client.Members{})
	require.NoError(t, err)
	require.Equal(t, b.ID(), workers.Items[1].Dispatcher)
	types, err := c.Types(t.Context(), client.TypeQuery{Names: client.Names{Prefix: "pdf"}})
	require.NoError(t, err)
	require.Len(t, types.Items, 2)
	require.Contains(t, a.caller().ask("GET", "/metrics", "").body, "dispatcherd_summaries_written_total ")

	require.NoError(t, b.stop())
	eventually(t, func() bool { return !strings.Contains(a.shown("worker list"), " b ") }, func() string { return "the list without b" })
	eventually(t, func() bool { return w.number(`SELECT count(*) FROM dispatcherd.summaries`) == 1 },
		func() string { return "the upkeep has deleted the summary of b" })
}

// A dispatcher is stopped as a whole (SIGSTOP), so it does not answer but is not lost yet.
func TestDispatcherThatDoesNotAnswerIsNamedByEachList(t *testing.T) {
	w := newWorld(t)
	a, other := w.start(w.config("a")), w.config("b")
	other.Lease = time.Minute
	b := w.serve(other)
	serveCalls(t, other.WorkerSocket, 1, "pdf")
	eventually(t, func() bool { return strings.Contains(a.shown("worker list"), " b ") }, func() string { return "the worker of b" })
	b.signal(t, syscall.SIGSTOP)
	const silent = `(?m)^dispatcher b did not answer within 500ms; its rows are from \d\d:\d\d:\d\d UTC\.$`
	eventually(t, func() bool { return a.onAPI("", "worker", "list").err != "" }, func() string { return "a note" })
	for _, list := range []string{"worker list", "slot list", "types"} {
		got := a.onAPI("", strings.Fields(list)...)
		require.Equal(t, exit.OK, got.code)
		require.Regexp(t, silent, got.err)
		require.Contains(t, got.out, " b ")
	}
	for _, some := range []string{"job list --worker callee", "job cancel --worker callee --yes", "job retry --worker callee --yes"} {
		require.Regexp(t, silent, a.onAPI("", strings.Fields(some)...).err, "b may run jobs that the filter means")
	}
	s := a.status()
	require.Equal(t, "dispatcher_silent", s.Alarms[0].Kind)
	require.Contains(t, a.shown("status"), "no answer")
	require.Empty(t, a.onAPI("", "worker", "list", "--local").err[len("No worker is connected.\n"):])
	b.signal(t, syscall.SIGCONT)
	eventually(t, func() bool { return a.onAPI("", "worker", "list").err == "" }, func() string { return "an answer" })
}

// Programs read a running job again and again. No dispatcher lists for them what it runs.
func TestReadingARunningJobCostsTheClusterNothing(t *testing.T) {
	w := newWorld(t)
	a, b := w.start(w.config("a")), w.start(w.config("b"))
	callee := serveCalls(t, b.cfg.WorkerSocket, 1, "pdf")
	b.awaitSlots(1)
	id := w.insert("pdf", work{Do: "gate"})
	b.awaitState("busy", id)
	read := func(h *host) (job contract.Job) {
		got := h.caller().ask(http.MethodGet, fmt.Sprint("/v1/jobs/", id), "")
		require.NoError(t, json.Unmarshal([]byte(got.body), &job))
		require.Equal(t, "b", *job.DispatcherName)
		return job
	}
	for range 10 {
		require.Equal(t, "callee", *read(b).Worker)
		require.Nil(t, read(a).Worker)
	}
	for _, h := range []*host{a, b} {
		require.Zero(t, h.samples()["dispatcherd_summaries_written_total"])
	}
	require.Contains(t, a.shown("job list"), "callee")
	require.Equal(t, "callee", *read(a).Worker, "it was said for the list")
	close(callee.open)
}
