package httpapi

import (
	"encoding/json"
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
	require.Equal(
		t,
		http.StatusOK,
		ask(
			h,
			"GET",
			"/v1/jobs?type=pdf&status=failed,cancelled&since=2026-01-01T00:00:00Z&until=2026-01-02T00:00:00%2B01:00&before=9&limit=7",
			"",
		).Code,
	)
	until := time.Date(2026, 1, 1, 23, 0, 0, 0, time.UTC)
	require.True(t, until.Equal(f.filter.Until))
	f.filter.Until = time.Time{}
	require.Equal(t, contract.Filter{
		Type:     "pdf",
		Statuses: []dispatcherd.Status{"failed", "cancelled"},
		Since:    time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		Before:   9,
		Limit:    7,
	}, f.filter)
	require.Equal(t, http.StatusOK, ask(h, "GET", "/v1/jobs", "").Code)
	require.Equal(t, contract.Filter{Limit: defaultPage}, f.filter)
	for _, query := range []string{"status=", "status=failed,", "status=lost", "since=yesterday", "until=1", "before=0", "limit=1001", "limit=x", "typ=pdf"} {
		want := http.StatusBadRequest
		if query == "status=" {
			want = http.StatusOK
		}
		require.Equal(t, want, ask(h, "GET", "/v1/jobs?"+query, "").Code, query)
	}
}

// A bulk call without a count changes nothing. Another count than that of the selected jobs,
// no filter, or a filter in the body changes nothing either.
func TestBulkCallsRequireAFilterAndTheCount(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	for _, c := range []struct {
		path, body string
		status     int
		says       string
	}{
		{"/v1/cancel?type=pdf", "", 200, `{"matching":2,"changed":0,"next_before":17}`},
		{"/v1/cancel?type=pdf&count=2", "", 200, `{"matching":2,"changed":2}`},
		{"/v1/cancel?type=pdf&count=0", "", 409, "selects 2 jobs, but the count is 0"},
		{"/v1/cancel?type=pdf&count=1001", "", 400, "at most"},
		{"/v1/cancel?type=pdf&count=-1", "", 400, "count must be"},
		{"/v1/cancel?count=2", "", 400, "no filter is given"},
		{"/v1/cancel?status=done&count=2", "", 400, "does not apply to done jobs"},
		{"/v1/retry?status=pending&count=2", "", 400, "does not apply to pending jobs"},
		{"/v1/cancel?count=2", `{"type":"pdf"}`, 400, "takes no body"},
	} {
		got := ask(h, "POST", c.path, c.body)
		require.Equal(t, c.status, got.Code, "%s: %s", c.path, got.Body)
		require.Contains(t, got.Body.String(), c.says)
	}
	ask(h, "POST", "/v1/retry?type=pdf", "")
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
	for _, path := range []string{"/v1/jobs?", "/v1/cancel?", "/v1/retry?"} {
		method := http.MethodPost
		if path == "/v1/jobs?" {
			method = http.MethodGet
		}
		require.Equal(t, http.StatusForbidden, ask(h, method, path+"type=payroll", "").Code)
		require.Equal(t, http.StatusOK, ask(h, method, path+"since=2026-01-01T00:00:00Z", "").Code)
		require.False(t, f.filter.Permit("payroll"))
		require.True(t, f.filter.Permit("pdf"))
	}
}

func TestWorkersArePaged(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	var sessions []int64
	for path := "/v1/workers?limit=2"; path != ""; {
		var page WorkerPage
		require.NoError(t, json.Unmarshal(ask(h, "GET", path, "").Body.Bytes(), &page))
		for _, w := range page.Workers {
			sessions = append(sessions, w.Session)
		}
		path = ""
		if page.Next > 0 {
			require.EqualValues(t, 5, page.Next)
			path = "/v1/workers?limit=2&after=5"
		}
	}
	require.Equal(t, []int64{3, 5, 8}, sessions)
}

func TestListsArePaged(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	for _, c := range []struct {
		path, want string
		status     int
	}{
		{"/v1/slots", `{"slots":[{"slot":0,"worker":"w","session":0,"number":0,"types":[""],"state":"free"}],"next_after":1000}`, 200},
		{"/v1/slots?after=7&limit=2&type=pdf", `{"slots":[{"slot":7,"worker":"w","session":0,"number":0,"types":["pdf"],"state":"free"}],"next_after":2}`, 200},
		{"/v1/types?limit=3", `"pending_age_seconds":0}`, 200},
		{"/v1/types?limit=2", `"pending_age_seconds":0,"next_after":"pdf"}`, 200},
		{"/v1/types?after=pdf&limit=1", `{"types":[{"type":"xls","capacity":0,"free":0,"other_slots":0,`, 200},
		{"/v1/types?after=xls", `{"types":[],`, 200},
		{"/v1/requests", `{"requests":[{"id":-2,"type":"pdf","priority":0,"age_seconds":1.5},{"id":-3,"type":"xls","priority":3,"age_seconds":0},{"id":-7,`, 200},
		{"/v1/requests?type=pdf&limit=1", `{"requests":[{"id":-2,"type":"pdf","priority":0,"age_seconds":1.5}],"next_after":-2}`, 200},
		{"/v1/requests?type=pdf&limit=1&after=-2", `{"requests":[{"id":-7,"type":"pdf","priority":0,"age_seconds":0}]}`, 200},
		{"/v1/requests?after=-7", `{"requests":[]}`, 200},
		{"/v1/requests?limit=10001", `limit is \"10001\": it must be a whole number from 1 to 10000`, 400},
		{"/v1/requests?after=2", `after is \"2\": ids of requests in memory are whole numbers from -1 down`, 400},
		{"/v1/slots?limit=0", `limit is \"0\": it must be a whole number from 1 to 10000`, 400},
		{"/v1/types?limit=10001", `limit is \"10001\": it must be a whole number from 1 to 10000`, 400},
		{"/v1/slots?after=-1", `after is \"-1\": it must be a whole number from 1 to 4611686018427387904`, 400},
		{"/v1/slots?after=pdf", `after is \"pdf\": it must be a whole number from 1 to 4611686018427387904`, 400},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, c.path, nil))
		require.Equal(t, c.status, w.Code, c.path)
		require.Contains(t, w.Body.String(), c.want, c.path)
	}
}
