package api

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
	looks  []look
	caller ondemand.Caller
}

type look struct {
	attempt dispatcherd.Attempt
	status  dispatcherd.Status
	words   []dispatcherd.Attempt
}

func (r *rowReports) Watch(_ dispatcherd.JobID, c ondemand.Caller) func() {
	r.caller = c
	return func() {}
}

// Job implements Jobs. A pending row has failed as often as it was tried.
func (r *rowReports) Job(_ context.Context, id dispatcherd.JobID) (contract.Job, error) {
	l := r.looks[0]
	r.looks = r.looks[1:]
	for _, a := range l.words {
		r.caller.Reported(ondemand.Report{Attempt: a, JSON: fmt.Appendf(nil, "%d", a)})
	}
	r.caller.Answered(ondemand.Answer{Kind: ondemand.Changed})
	failures := int(l.attempt)
	if l.status == dispatcherd.Running || l.status == dispatcherd.Done {
		failures--
	}
	return contract.Job{ID: id, Status: l.status, Attempt: l.attempt, Failures: failures, RunAt: time.Unix(1000+int64(failures), 0)}, nil
}

// told returns the stream in short: "1-running/0" is a status with its
// failures, "says 1" a report of attempt 1.
func (r *rowReports) told(t *testing.T, lastEventID string) []string {
	h := New(DefaultConfig(), r, &counts{bounds: map[Bound]int{}}, http.NotFoundHandler())
	defer h.Close()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/jobs/7/events", http.NoBody)
	if lastEventID != "" {
		req.Header.Set("Last-Event-ID", lastEventID)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	var told []string
	events := regexp.MustCompile(`(?:id: (\S+)\n)?event: (\w+)\ndata: (.*)\n`)
	for _, e := range events.FindAllStringSubmatch(rec.Body.String(), -1) {
		switch e[2] {
		case "status":
			told = append(told, e[1]+"/"+regexp.MustCompile(`"failures":(\d)`).FindStringSubmatch(e[3])[1])
		case "progress":
			told = append(told, "says "+e[3])
		default:
			told = append(told, e[2])
		}
	}
	return told
}

// A row is polled, and reports of a worker arrive at once. A follower still
// learns that an attempt runs before its reports, and gets no status twice.
func TestStatusPrecedesReportsOfAnAttempt(t *testing.T) {
	const pending, running, done, failed = dispatcherd.Pending, dispatcherd.Running, dispatcherd.Done, dispatcherd.Failed
	type attempts = []dispatcherd.Attempt
	for name, c := range map[string]struct {
		last  string
		looks []look
		told  []string
	}{
		"it speaks while the row is read that says so": {
			"", []look{{0, pending, nil}, {1, running, attempts{1, 1}}, {1, done, nil}},
			[]string{"0-pending/0", "1-running/0", "says 1", "says 1", "1-done/0", "result"},
		},
		"it speaks after the row was read that waits": {
			"", []look{{0, pending, attempts{1}}, {1, running, attempts{1}}, {1, done, nil}},
			[]string{"0-pending/0", "1-running/0", "says 1", "says 1", "1-done/0", "result"},
		},
		"it is over when the row is read": {
			"", []look{{0, pending, nil}, {1, failed, attempts{1}}},
			[]string{"0-pending/0", "1-running/0", "says 1", "1-failed/1", "error"},
		},
		"it is over and the next one speaks": {
			"", []look{{0, pending, nil}, {1, pending, attempts{1, 2}}, {2, running, attempts{2}}, {2, done, nil}},
			[]string{"0-pending/0", "1-running/0", "says 1", "1-pending/1", "2-running/1", "says 2", "says 2", "2-done/1", "result"},
		},
		"it was told to run before the connection was lost": {
			"1-running", []look{{1, running, attempts{1}}, {1, done, attempts{1}}},
			[]string{"says 1", "says 1", "1-done/0", "result"},
		},
		"it began while there was no connection": {
			"0-pending", []look{{1, running, attempts{1}}, {1, done, nil}},
			[]string{"1-running/0", "says 1", "1-done/0", "result"},
		},
		"an attempt that is past says no more": {
			"", []look{{1, running, nil}, {2, running, nil}, {2, running, attempts{1, 2}}, {2, done, nil}},
			[]string{"1-running/0", "2-running/1", "says 2", "2-done/1", "result"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &rowReports{fake: newFake(), looks: c.looks}
			require.Equal(t, c.told, r.told(t, c.last))
			require.Empty(t, r.looks, "not all was read")
		})
	}
}

// deleted is a backend whose row is deleted after the first read.
type deleted struct {
	*fake

	looks int
}

func (f *deleted) Job(_ context.Context, id dispatcherd.JobID) (contract.Job, error) {
	if f.looks++; f.looks > 1 {
		return contract.Job{}, ErrNotFound
	}
	return contract.Job{ID: id, Status: dispatcherd.Running, Attempt: 1}, nil
}

func TestFollowerOfADeletedRowIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(DefaultConfig(), &deleted{fake: newFake()}, &counts{bounds: map[Bound]int{}}, http.NotFoundHandler())
		defer h.Close()
		ctx, giveUp := context.WithTimeout(t.Context(), time.Hour)
		defer giveUp()
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/jobs/7/events", http.NoBody))
		require.Regexp(t, `(?s)^id: 1-running\n.*event: error\ndata: {"type":"urn:dispatcherd:problem:not-found".*}\n\n$`, rec.Body.String())
	})
}

// Dropped events belong to the attempt, so the gap follows its status.
func TestGapFollowsTheStatus(t *testing.T) {
	out := &sse{}
	h, _, _ := testHandler(t, nil)
	watch := &jobWatch{changed: make(chan struct{}, 1), requests: h.requests, missed: 3}
	line := statusLine{out: out}
	require.NoError(t, h.sendReports(&line, &contract.Job{ID: 7, Attempt: 1, Status: dispatcherd.Running}, watch))
	require.Regexp(t, `(?s)^id: 1-running\n.*event: gap\ndata: \{"missed":3\}\n\n$`, string(out.buf))
}
