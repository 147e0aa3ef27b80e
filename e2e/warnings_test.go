package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/exit"
)

const (
	didYouMeanPDF = `no slot of any dispatcher supports type "PDF": did you mean "pdf"?`
	noSlotForX    = `no slot of any dispatcher supports type "unheard": its jobs wait until a worker supports it`
	noLimit       = `the cost 3 of key "nolimit" exceeds its limit 1, so the job can never run: ` +
		`raise it ('dispatcherd limit set nolimit capacity=3')`
	tooDear = `the cost 30 of key "tenant:7" exceeds its limit 10, so the job can never run: ` +
		`raise it ('dispatcherd limit set tenant:* capacity=30')`
)

// Jobs that cannot run are inserted, and the answer says why they wait. The slots of other dispatchers count.
func TestInsertionsWarnOfJobsThatCannotRun(t *testing.T) {
	w, here, _, _ := elsewhere(t, 1)
	w.exec(`INSERT INTO dispatcherd.limits (key, capacity, rate, per) VALUES ('tenant:*', 10, NULL, NULL), ('slow', NULL, 2, '1 s'),
		('paused', 0, NULL, NULL)`)
	for _, c := range []struct {
		job      string
		warnings []string
	}{
		{`{"type":"pdf"}`, nil},
		{`{"type":"PDF"}`, []string{didYouMeanPDF}},
		{`{"type":"unheard"}`, []string{noSlotForX}},
		{`{"type":"pdf","keys":"nolimit"}`, nil},
		{`{"type":"pdf","keys":"nolimit*all tenant:7*10 slow*2 paused*5"}`, nil},
		{`{"type":"pdf","keys":"nolimit*3"}`, []string{noLimit}},
		{`{"type":"PDF","keys":"tenant:7*30 nolimit*3 slow*3"}`, []string{didYouMeanPDF, noLimit,
			`the cost 3 of key "slow" exceeds its limit 2, so the job can never run: raise it ('dispatcherd limit set slow capacity=3')`, tooDear}},
	} {
		var inserted, uploaded struct{ Warnings []string }
		got := here.caller().ask(http.MethodPost, "/v1/jobs", c.job, "Content-Type", "application/json")
		require.Equal(t, http.StatusCreated, got.StatusCode)
		require.NoError(t, json.Unmarshal([]byte(got.body), &inserted))
		require.ElementsMatch(t, c.warnings, inserted.Warnings, c.job)
		got = here.caller().ask(http.MethodPost, "/v1/jobs", c.job+"\n"+c.job+"\n", ndjson...)
		require.NoError(t, json.Unmarshal([]byte(got.body), &uploaded))
		require.ElementsMatch(t, c.warnings, uploaded.Warnings, c.job)
	}
	require.Equal(t, 21, w.number(`SELECT count(*) FROM dispatcherd.jobs`), "all of them are inserted")

	many := strings.Builder{}
	for i := range 1500 {
		fmt.Fprintf(&many, `{"type":"t%d"}`+"\n", i)
	}
	var uploaded struct{ Warnings []string }
	got := here.caller().ask(http.MethodPost, "/v1/jobs", many.String(), ndjson...)
	require.NoError(t, json.Unmarshal([]byte(got.body), &uploaded))
	require.Len(t, uploaded.Warnings, 20, "a bound")
}

// Every command that inserts says it as a line on the error output, and the Go client calls a function.
func TestCommandsAndClientPassWarningsOn(t *testing.T) {
	w, here, _, _ := elsewhere(t, 1)
	const warning = "warning: " + didYouMeanPDF + "\n"
	for _, c := range [][]string{
		{"", "job", "insert", "--type", "PDF"},
		{`{"type":"PDF"}`, "job", "insert", "--quiet", "-"},
		{"", "batch", "open", "--callback", `{"type":"PDF"}`},
		{`{"nodes":[{"name":"a","type":"PDF"}]}`, "flow", "insert", "-"},
		{"", "schedule", "set", "s", "spec=@daily", "type=PDF"},
	} {
		got := here.onAPI(c[0], c[1:]...)
		require.Zero(t, got.code, c)
		require.Contains(t, got.err, warning, c)
		require.NotContains(t, got.out, "warning")
	}
	require.Empty(t, here.onAPI("", "job", "insert", "--type", "pdf").err)
	var warned []string
	c, err := client.New(client.Options{Socket: here.cfg.APISocket, Warned: func(text string) { warned = append(warned, text) }})
	require.NoError(t, err)
	defer c.Close()
	s := client.NewSchedule()
	s.Name, s.Spec, s.Type = "s", "@daily", "PDF"
	_, err = c.Schedules().Set(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, []string{didYouMeanPDF}, warned)
	require.Equal(t, 5, w.number(`SELECT count(*) FROM dispatcherd.jobs`), "with the job of type pdf")
}

// A stream of jobs prints the ids of its jobs in the order of its lines, also while other producers insert.
func TestStreamOfJobsPrintsTheIds(t *testing.T) {
	w := newWorld(t)
	h, _ := w.startCallee(1)
	var lines strings.Builder
	for i := range 500 {
		fmt.Fprintf(&lines, `{"type":"pdf","priority":%d}`+"\n", i%11)
	}
	stop := make(chan struct{})
	others := make(chan struct{})
	go func() {
		defer close(others)
		for {
			select {
			case <-stop:
				return
			default:
				w.exec(`INSERT INTO dispatcherd.jobs (type, run_at) VALUES ('other', now() + interval '1 h')`)
			}
		}
	}()
	got := h.onAPI(lines.String(), "job", "insert", "-")
	close(stop)
	<-others
	require.Equal(t, exit.OK, got.code)
	require.Equal(t, "500 jobs inserted\n", got.err)
	ids := strings.Fields(got.out)
	require.Len(t, ids, 500)
	for i, text := range ids {
		var id dispatcherd.JobID
		_, err := fmt.Sscan(text, &id)
		require.NoError(t, err)
		if i%100 == 0 {
			job := w.get(id)
			require.Equal(t, "pdf", job.Type)
			require.EqualValues(t, i%11, job.Priority)
		}
	}
	require.Equal(t, "2 jobs inserted\n", h.onAPI("{\"type\":\"pdf\"}\n{\"type\":\"pdf\"}\n", "job", "insert", "--quiet", "-").out)
	require.Contains(t, h.onAPI(`{"type":"pdf"}`, "job", "insert", "-", "-o", "json").out, `"ids": [`)
}
