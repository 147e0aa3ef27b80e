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
	"github.com/dispatcherd/dispatcherd/client"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// log returns the log that a row contains.
func (w *world) log(id dispatcherd.JobID) (text string) {
	w.t.Helper()
	if log := w.get(id).Log; log != nil {
		require.NoError(w.t, json.Unmarshal(log, &text))
	}
	return text
}

func TestLogOfAnAttemptIsStreamedAndKept(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("d")
	cfg.KeepLogs = true
	h := w.start(cfg)
	raw := helloRaw(t, cfg.WorkerSocket, "x").answering()
	id := w.insertNew(claim.New{Type: "x", MaxAttempts: 2}, work{})
	says := func(attempt dispatcherd.Attempt, level, message string) {
		text, err := json.Marshal(message)
		require.NoError(t, err)
		raw.say(`{"op":"log","job":%d,"attempt":%d,"session":%q,"level":%q,"message":%s}`, id, attempt, raw.nonce, level, text)
	}
	require.EqualValues(t, 1, raw.expect("job").Attempt)
	followed := make(chan outcome, 1)
	go func() { followed <- h.onAPI("", "job", "follow", fmt.Sprint(id)) }()
	eventually(t, func() bool { return metricsOn(t, cfg)["dispatcherd_api_watched_rows"] == 1 },
		func() string { return "a caller that follows the job" })
	c, err := client.New(client.Options{Socket: cfg.APISocket})
	require.NoError(t, err)
	events := make(chan string, 2000)
	go func() {
		_, _ = c.Follow(t.Context(), id, "", func(e client.Event) error { // the result is read below
			events <- e.Name + " " + string(e.Data)
			return nil
		})
	}()
	require.Contains(t, receive(t, events, "an event says that the job runs"), "running")
	says(1, "warn", "font missing")
	says(2, "warn", "of an attempt that does not exist")
	raw.expect("stale")
	require.Positive(t, metricsOn(t, cfg)[`dispatcherd_state{what="job_log_bytes"}`])
	raw.say(`{"op":"fail","job":%d,"attempt":1,"session":%q,"error":"no paper"}`, id, raw.nonce)
	require.EqualValues(t, 2, raw.expect("job").Attempt)
	require.Contains(t, receive(t, events, "a line of the log"), "font missing")
	require.Equal(t, "warn: font missing\n", w.log(id), "of the attempt that ended")

	for n := range 1000 {
		says(2, "info", fmt.Sprintf("page %d", n))
	}
	says(2, "error", "\u001b[31mred\nsecond line")
	raw.done(id, 2, raw.nonce, "1")
	w.await(id, dispatcherd.Done)
	kept := w.log(id)
	require.LessOrEqual(t, len(kept), 4<<10)
	require.Greater(t, len(kept), 4<<10-len("info: page 1000\n"))
	require.Regexp(t, `^info: page \d+\n`, kept)
	require.True(t, strings.HasSuffix(kept, "info: page 999\nerror: \x1b[31mred\nsecond line\n"))
	require.Regexp(t, `log +info: page \d+\n(.*\n)* +info: page 999\n +error: <U\+001B>\[31mred\n +second line\n`, h.shown("job get %d", id))
	got := h.caller().ask(http.MethodGet, fmt.Sprintf("/v1/jobs/%d", id), "")
	var answer contract.Job
	require.NoError(t, json.Unmarshal([]byte(got.body), &answer))
	require.JSONEq(t, string(w.get(id).Log), string(answer.Log))
	said := receive(t, followed, "job follow ends").err
	require.Contains(t, said, "info: page 999\nerror: <U+001B>[31mred\nsecond line\n")
	eventually(t, func() bool { return metricsOn(t, cfg)[`dispatcherd_state{what="job_log_bytes"}`] == 0 },
		func() string { return "no log in memory" })
	require.NotContains(t, h.log.text(), "font missing")
}
