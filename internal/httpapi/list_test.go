package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

func ask(h *Handler, method, path, body string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(method, path, strings.NewReader(body)))
	return rec
}

func TestQueryOfAListIsItsFilter(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	cursor, _ := contract.CursorOf(9).MarshalText()
	require.Equal(t, http.StatusOK, ask(h, "GET", "/v1/jobs?type=pdf&status=failed,cancelled&newer_than=2026-01-01T00:00:00Z&"+
		"older_than=2026-01-02T00:00:00%2B01:00&limit=7&cursor="+string(cursor), "").Code)
	older := time.Date(2026, 1, 1, 23, 0, 0, 0, time.UTC)
	require.True(t, older.Equal(f.filter.Older.At))
	f.filter.Older = contract.Moment{}
	require.Equal(t, contract.Filter{
		Type:     "pdf",
		Statuses: []dispatcherd.Status{"failed", "cancelled"},
		Newer:    contract.Moment{At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
		Before:   9,
		Most:     7,
	}, f.filter)
	require.Equal(t, http.StatusOK, ask(h, "GET", "/v1/jobs?older_than=90m", "").Code)
	require.Equal(t, contract.Moment{Age: 90 * time.Minute}, f.filter.Older, "the clock of Postgres counts")
	require.Equal(t, http.StatusOK, ask(h, "GET", "/v1/jobs", "").Code)
	require.Equal(t, contract.Filter{Most: 100}, f.filter)
	for _, query := range []string{"status=", "status=failed,", "newer_than=yesterday", "older_than=1", "typ=pdf",
		"older_than=0001-01-01T00:00:00Z", "type=%00", "type=%ff"} {
		want := http.StatusBadRequest
		if query == "status=" {
			want = http.StatusOK
		}
		require.Equal(t, want, ask(h, "GET", "/v1/jobs?"+query, "").Code, query)
	}
}

// A bulk call changes nothing without the expected number of jobs, with another number, and without a filter. A dry run only counts.
func TestBulkCallsRequireAFilterAndTheExpectedNumber(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	for _, c := range []struct {
		path, says string
		status     int
	}{
		{"cancel?type=pdf&dry_run=true", `{"matching":2,"changed":0,"next_cursor":"MTc"}`, 200},
		{"cancel?type=pdf&dry_run=true&expect=2", `{"matching":2,"changed":0,"next_cursor":"MTc"}`, 200},
		{"cancel?type=pdf&dry_run=true&expect=3", `"matching":2`, 409},
		{"cancel?type=pdf&expect=2", `{"matching":2,"changed":2}`, 200},
		{"cancel?type=pdf&expect=0", `selects 2 jobs, but 0 are expected: nothing was changed; look at the jobs again","matching":2}`, 409},
		{"cancel?type=pdf&expect=1001", `expect \"1001\": must be a whole number from 0 to 1000`, 400},
		{"cancel?type=pdf", "expect or dry_run is needed", 400},
		{"cancel?expect=2", "no filter is given", 400},
		{"cancel?status=done&expect=2", "does not apply to done jobs", 400},
		{"retry?status=pending&expect=2", "does not apply to pending jobs", 400},
	} {
		got := ask(h, "POST", "/v1/jobs/"+c.path, "")
		require.Equal(t, c.status, got.Code, "%s: %s", c.path, got.Body)
		require.Contains(t, got.Body.String(), c.says)
	}
	ask(h, "POST", "/v1/jobs/retry?type=pdf&dry_run=true", "")
	require.Equal(t, []dispatcherd.Status{"failed", "cancelled"}, f.filter.Statuses)
}

// A caller that may not use a type sees, cancels and retries none of its jobs.
func TestListsOmitForbiddenTypes(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	h.Permit = func(_ workerproto.Peer, typ string) string {
		if typ == "payroll" {
			return "not yours"
		}
		return ""
	}
	for _, call := range []string{"GET /v1/jobs?", "POST /v1/jobs/cancel?dry_run=true&", "POST /v1/jobs/retry?dry_run=true&"} {
		method, path, _ := strings.Cut(call, " ")
		require.Equal(t, http.StatusForbidden, ask(h, method, path+"type=payroll", "").Code)
		require.Equal(t, http.StatusOK, ask(h, method, path+"newer_than=2026-01-01T00:00:00Z", "").Code)
		require.False(t, f.filter.Permit("payroll"))
		require.True(t, f.filter.Permit("pdf"))
	}
}

func TestListsInMemoryArePaged(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	for path, want := range map[string]string{
		"/v1/workers?":           "session 3 5 8",
		"/v1/types?":             "type csv pdf xls",
		"/v1/types?prefix=x&":    "type xls",
		"/v1/requests?":          "id -2 -3 -7",
		"/v1/requests?type=pdf&": "id -2 -7",
		"/v1/dispatchers?":       "id 7",
		"/v1/slots?":             "slot 3 20 3 20",
	} {
		words := strings.Fields(want)
		var found []string
		for cursor, more := "", true; more; more = cursor != "" {
			var page struct {
				Items []map[string]any
				Next  string `json:"next_cursor"`
			}
			text := ask(h, "GET", path+"limit=1&cursor="+cursor, "").Body.Bytes()
			require.NoError(t, json.Unmarshal(text, &page), "%s", text)
			require.Len(t, page.Items, 1)
			found, cursor = append(found, fmt.Sprint(page.Items[0][words[0]])), page.Next
		}
		require.Equal(t, words[1:], found, path)
	}
	require.JSONEq(t, `{"items":[{"dispatcher":7,"dispatcher_name":"b","slot":3,"worker":"","session":0,"number":0,"types":["pdf"],`+
		`"state":""}],"notes":["dispatcher b did not answer"]}`,
		ask(h, "GET", "/v1/slots?type=pdf&cursor="+contract.Cursor("a\n0000000009 0000000000000000020").String(), "").Body.String())
	require.NotContains(t, ask(h, "GET", "/v1/slots?local=true", "").Body.String(), "notes")
	require.Contains(t, ask(h, "GET", "/v1/types?prefix=q", "").Body.String(), `{"items":[],"pending_age_seconds":0}`)
}
