package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/ondemand"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// rowReports is a dispatcher with one row: the result of each read, and the
// attempts that report while the row is read.
type rowReports struct {
	*fake
	reads  []read
	caller ondemand.Caller
}

type read struct {
	attempt dispatcherd.Attempt
	status  dispatcherd.Status
	reports []dispatcherd.Attempt
}

func (r *rowReports) Watch(_ dispatcherd.JobID, c ondemand.Caller) func() {
	r.caller = c
	return func() {}
}

// Job implements Backend. Each earlier attempt of a row has failed.
func (r *rowReports) Job(_ context.Context, id dispatcherd.JobID) (contract.Job, error) {
	l := r.reads[0]
	r.reads = r.reads[1:]
	for _, a := range l.reports {
		r.caller.Reported(ondemand.Event{Name: "progress", Attempt: a, Data: fmt.Appendf(nil, "%d", a)})
	}
	r.caller.Answered(ondemand.Answer{Kind: ondemand.Changed})
	failures := int(l.attempt)
	if l.status == dispatcherd.Running || l.status == dispatcherd.Done {
		failures--
	}
	return contract.Job{ID: id, Status: l.status, Attempt: l.attempt, Failures: failures, RunAt: time.Unix(1000+int64(failures), 0)}, nil
}

// stream returns the events in short form: "1-running/0" is a status with its failures,
// "report 1" a report of attempt 1.
func (r *rowReports) stream(t *testing.T, lastEventID string) []string {
	h := New(DefaultConfig(), r, &counts{bounds: map[Bound]int{}}, http.NotFoundHandler())
	defer h.Close()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/jobs/7/events", http.NoBody)
	if lastEventID != "" {
		req.Header.Set("Last-Event-ID", lastEventID)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	var short []string
	events := regexp.MustCompile(`(?:id: (\S+)\n)?event: (\w+)\ndata: (.*)\n`)
	for _, e := range events.FindAllStringSubmatch(rec.Body.String(), -1) {
		switch e[2] {
		case "status":
			short = append(short, e[1]+"/"+regexp.MustCompile(`"failures":(\d)`).FindStringSubmatch(e[3])[1])
		case "progress":
			short = append(short, "report "+e[3])
		default:
			short = append(short, e[2])
		}
	}
	return short
}

// A row is polled, and reports of a worker arrive at once. A follower gets the status of an attempt that runs before its reports, that
// of an ended attempt after them, and no status twice.
func TestStatusPrecedesReportsOfAnAttempt(t *testing.T) {
	const pending, running, done, failed = dispatcherd.Pending, dispatcherd.Running, dispatcherd.Done, dispatcherd.Failed
	type attempts = []dispatcherd.Attempt
	for name, c := range map[string]struct {
		last  string
		reads []read
		want  []string
	}{
		"report while the row is read as running": {
			"", []read{{0, pending, nil}, {1, running, attempts{1, 1}}, {1, done, nil}},
			[]string{"0-pending/0", "1-running/0", "report 1", "report 1", "1-done/0", "result"},
		},
		"report after the row was read as pending": {
			"", []read{{0, pending, attempts{1}}, {1, running, attempts{1}}, {1, done, nil}},
			[]string{"0-pending/0", "1-running/0", "report 1", "report 1", "1-done/0", "result"},
		},
		"attempt has ended when the row is read": {
			"", []read{{0, pending, nil}, {1, failed, attempts{1}}},
			[]string{"0-pending/0", "report 1", "1-failed/1", "error"},
		},
		"attempt has ended and the next one reports": {
			"", []read{{0, pending, nil}, {1, pending, attempts{1, 2}}, {2, running, attempts{2}}, {2, done, nil}},
			[]string{"0-pending/0", "report 1", "2-running/1", "report 2", "report 2", "2-done/1", "result"},
		},
		"status was sent before the connection was lost": {
			"1-running", []read{{1, running, attempts{1}}, {1, done, attempts{1}}},
			[]string{"report 1", "report 1", "1-done/0", "result"},
		},
		"attempt began while there was no connection": {
			"0-pending", []read{{1, running, attempts{1}}, {1, done, nil}},
			[]string{"1-running/0", "report 1", "1-done/0", "result"},
		},
		"report of an earlier attempt is dropped": {
			"", []read{{1, running, nil}, {2, running, nil}, {2, running, attempts{1, 2}}, {2, done, nil}},
			[]string{"1-running/0", "2-running/1", "report 2", "2-done/1", "result"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &rowReports{fake: newFake(), reads: c.reads}
			require.Equal(t, c.want, r.stream(t, c.last))
			require.Empty(t, r.reads, "not all was read")
		})
	}
}

// deleted is a backend whose row is deleted after the first read.
type deleted struct {
	*fake

	reads int
}

func (f *deleted) Job(_ context.Context, id dispatcherd.JobID) (contract.Job, error) {
	if f.reads++; f.reads > 1 {
		return contract.Job{}, ErrNotFound
	}
	return contract.Job{ID: id, Status: dispatcherd.Running, Attempt: 1}, nil
}

func TestFollowerOfADeletedRowIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(DefaultConfig(), &deleted{fake: newFake()}, &counts{bounds: map[Bound]int{}}, http.NotFoundHandler())
		defer h.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/jobs/7/events", http.NoBody))
		require.Regexp(t, `(?s)^id: 1-running\n.*event: error\ndata: {"type":"urn:dispatcherd:problem:not-found".*}\n\n$`, rec.Body.String())
	})
}

// Dropped events belong to the attempt, so the gap follows its status.
func TestGapFollowsTheStatus(t *testing.T) {
	out := &sse{}
	h, _, _ := testHandler(t, nil)
	h.sendReports(&statusLine{out: out}, &contract.Job{ID: 7, Attempt: 1, Status: dispatcherd.Running}, 3, nil)
	require.Regexp(t, `(?s)^id: 1-running\n.*event: gap\ndata: \{"missed":3\}\n\n$`, string(out.buf))
}

// A caller who follows a job learns who cancelled it, as the caller of a request does.
func TestEndOfACancelledRowNamesWhoCancelled(t *testing.T) {
	by := "api: uid=7"
	require.Equal(t, "it was cancelled by api: uid=7", finalAnswer(&contract.Job{Status: dispatcherd.Cancelled, Cancelled: &by}).Reason)
	require.Equal(t, "it was cancelled", finalAnswer(&contract.Job{Status: dispatcherd.Cancelled}).Reason)
}
