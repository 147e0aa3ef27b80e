package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
)

// call sends a request without a body to the handler.
func call(h *Handler, method, path string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(method, path, http.NoBody))
	return rec
}

func TestDeletedAnswerIsGoneAndFreesCapacityForOne(t *testing.T) {
	h, f, _ := testHandler(t, func(c *Config) { c.SharedRequests = 2 })
	kept := func() *httptest.ResponseRecorder {
		return <-post(t.Context(), h, `{"type":"pdf"}`, "Prefer", "respond-async")
	}
	for range 5 {
		accepted := kept()
		require.Equal(t, http.StatusAccepted, accepted.Code)
		f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done, Payload: []byte(`"a large answer"`)})
		require.Equal(t, http.StatusNoContent, call(h, http.MethodDelete, accepted.Header().Get("Location")).Code)
		require.Equal(t, http.StatusNotFound, call(h, http.MethodGet, accepted.Header().Get("Location")).Code)
	}
	require.Zero(t, h.Gauges().Requests, "nothing of them is held")
	require.Equal(t, http.StatusAccepted, kept().Code)
	require.Equal(t, http.StatusAccepted, kept().Code)
	require.Equal(t, http.StatusTooManyRequests, kept().Code)
}

func TestTemporaryErrorIsNotTheAnswerOfAKey(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	for _, kind := range []ondemand.AnswerKind{ondemand.Busy, ondemand.Stopping, ondemand.Unsupported, ondemand.Cancelled} {
		accepted := <-post(t.Context(), h, `{"type":"pdf"}`, "Idempotency-Key", "k", "Prefer", "respond-async")
		require.Equal(t, http.StatusAccepted, accepted.Code, kind)
		f.answer(<-f.submitted, ondemand.Answer{Kind: kind, Reason: "not now"})
		require.GreaterOrEqual(t, call(h, http.MethodGet, accepted.Header().Get("Location")).Code, 409)
	}
	accepted := <-post(t.Context(), h, `{"type":"pdf"}`, "Idempotency-Key", "k", "Prefer", "respond-async")
	f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
	again := <-post(t.Context(), h, `{"type":"pdf"}`, "Idempotency-Key", "k", "Prefer", "respond-async")
	require.Equal(t, accepted.Header().Get("Location"), again.Header().Get("Location"))
	require.Empty(t, f.submitted)
}

// A job that has not started had no effect, so its key may be used again. A job
// that may have started does not run again.
func TestKeyKeepsALateEndOnlyIfTheJobMayHaveStarted(t *testing.T) {
	late := ondemand.Answer{Kind: ondemand.Late, Reason: "the deadline passed"}
	for _, headers := range [][]string{nil, {"Accept", "text/event-stream"}, {"Prefer", "respond-async"}} {
		synctest.Test(t, func(t *testing.T) {
			h, f, _ := testHandler(t, nil)
			ask := func() <-chan *httptest.ResponseRecorder {
				return post(t.Context(), h, `{"type":"pdf"}`, append(headers, "Idempotency-Key", "k")...)
			}
			isLate := func(rec *httptest.ResponseRecorder) bool {
				if location := rec.Header().Get("Location"); location != "" {
					rec = call(h, http.MethodGet, location)
				}
				return strings.Contains(rec.Body.String(), rest.DeadlinePassed.Name)
			}
			first := ask()
			f.answer(<-f.submitted, late)
			require.True(t, isLate(<-first))
			second := ask()
			id := <-f.submitted // a run of its own
			f.withCaller(id, func(c ondemand.Caller) { c.Started(1, "w") })
			f.answer(id, late)
			require.True(t, isLate(<-second))
			require.True(t, isLate(<-ask()))
			require.Empty(t, f.submitted, "the job does not run again")
		})
	}
}

// The loop does not end these requests at their deadline. Their callers stop waiting, or
// the requests expire.
func TestKeyKeepsALateEndForEachKindOfDeadline(t *testing.T) {
	const shared, row = `{"type":"pdf","timeout":2,"coalesce_key":"c"}`, `{"type":"pdf","timeout":2,"durable":true}`
	for name, c := range map[string]struct {
		body          string
		begins, keeps bool
		headers       []string
	}{
		"waiting, it never began":  {shared, false, false, nil},
		"waiting, it began":        {shared, true, true, nil},
		"waiting for a row":        {row, false, true, nil}, // another dispatcher may have started it
		"watching, it never began": {shared, false, false, []string{"Accept", "text/event-stream"}},
		"watching, it began":       {shared, true, true, []string{"Accept", "text/event-stream"}},
		"later, it never began":    {shared, false, false, []string{"Prefer", "respond-async"}},
		"later, it began":          {shared, true, true, []string{"Prefer", "respond-async"}},
		"later, a row":             {row, false, true, []string{"Prefer", "respond-async"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, f, _ := testHandler(t, nil)
				ask := func() <-chan *httptest.ResponseRecorder {
					return post(t.Context(), h, c.body, append(c.headers, "Idempotency-Key", "k")...)
				}
				first := ask()
				id := <-f.submitted
				if c.begins {
					f.withCaller(id, func(c ondemand.Caller) { c.Started(1, "w") })
				}
				time.Sleep(2*time.Second - time.Millisecond)
				synctest.Wait()
				require.Empty(t, f.abandoned)
				time.Sleep(time.Millisecond)
				synctest.Wait()
				require.Equal(t, id, <-f.abandoned)
				<-first
				second := ask()
				synctest.Wait()
				if c.keeps {
					require.Empty(t, f.submitted, "the job does not run again")
				} else {
					f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
				}
				rec := <-second
				if location := rec.Header().Get("Location"); location != "" {
					rec = call(h, http.MethodGet, location)
				}
				require.Equal(t, c.keeps, strings.Contains(rec.Body.String(), rest.DeadlinePassed.Name), rec.Body)
			})
		})
	}
}

// A caller of a started shared request gets a 504. Its key keeps that answer
// when the last of the other callers disconnects.
func TestKeyKeepsA504AfterOthersDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const body = `{"type":"pdf","timeout":%s,"coalesce_key":"c"}`
		h, f, _ := testHandler(t, nil)
		ctx, disconnect := context.WithCancel(t.Context())
		withKey := func() <-chan *httptest.ResponseRecorder {
			return post(t.Context(), h, fmt.Sprintf(body, "2"), "Idempotency-Key", "k")
		}
		first := withKey()
		f.withCaller(<-f.submitted, func(c ondemand.Caller) { c.Started(1, "w") })
		other := post(ctx, h, fmt.Sprintf(body, "60"))
		require.Equal(t, http.StatusGatewayTimeout, (<-first).Code)
		disconnect()
		<-other
		second := withKey()
		synctest.Wait()
		require.Empty(t, f.submitted, "the job does not run again")
		require.Equal(t, http.StatusGatewayTimeout, (<-second).Code)
	})
}

// A caller that disconnects cancels its request in memory, with or without a key, if it
// is the last one.
func TestDisconnectReleasesTheKey(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	ctx, disconnect := context.WithCancel(t.Context())
	first := post(ctx, h, `{"type":"pdf"}`, "Idempotency-Key", "k")
	f.withCaller(<-f.submitted, func(c ondemand.Caller) { c.Started(1, "w") })
	disconnect()
	<-first
	second := post(t.Context(), h, `{"type":"pdf"}`, "Idempotency-Key", "k")
	f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
	require.Equal(t, http.StatusOK, (<-second).Code)
}

// rowBackend is a fake whose requests are rows. It records each Abandon.
type rowBackend struct {
	*fake

	abandons chan dispatcherd.JobID
	enter    chan context.Context // nil: Submit does not wait
	write    chan struct{}
}

func (f *rowBackend) Submit(ctx context.Context, _ ondemand.Request, c ondemand.Caller) (dispatcherd.JobID, error) {
	if f.enter != nil {
		f.enter <- ctx
		select {
		case <-f.write:
		case <-ctx.Done():
			return 0, ondemand.ErrUnavailable
		}
	}
	return f.submit(c, -1)
}

func (f *rowBackend) Abandon(id dispatcherd.JobID, c ondemand.Caller) {
	f.fake.Abandon(id, c)
	f.abandons <- id
}

func rowHandler(t *testing.T) (*Handler, *rowBackend) {
	f := &rowBackend{fake: newFake(), abandons: make(chan dispatcherd.JobID, 1000)}
	h := New(DefaultConfig(), f, &counts{bounds: map[Bound]int{}}, http.NotFoundHandler())
	t.Cleanup(h.Close)
	return h, f
}

// An operator may retry a row after its end.
func TestDroppedAnswerKeepsItsRow(t *testing.T) {
	h, f := rowHandler(t)
	accepted := <-post(t.Context(), h, `{"type":"pdf","durable":true}`, "Prefer", "respond-async")
	f.answer(-<-f.submitted, ondemand.Answer{Kind: ondemand.Failed, Reason: "torn"})
	require.Equal(t, http.StatusNoContent, call(h, http.MethodDelete, accepted.Header().Get("Location")).Code)
	require.Empty(t, f.abandons)
}

// A caller whose connection broke repeats its call, perhaps at another dispatcher.
func TestRowWithAKeyContinuesAfterADisconnectUntilItsDeadline(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h, f := rowHandler(t)
			const body = `{"type":"pdf","durable":true,"timeout":2}`
			ctx, disconnect := context.WithCancel(t.Context())
			first := post(ctx, h, body, "Idempotency-Key", "k")
			id := <-f.submitted
			disconnect()
			<-first
			synctest.Wait()
			require.Empty(t, f.abandons)
			if late {
				require.Equal(t, -id, <-f.abandons)
				require.Equal(t, http.StatusGatewayTimeout, (<-post(t.Context(), h, body, "Idempotency-Key", "k")).Code)
			} else {
				second := post(t.Context(), h, body, "Idempotency-Key", "k")
				synctest.Wait()
				f.answer(-id, ondemand.Answer{Kind: ondemand.Done, Payload: []byte(`"once"`)})
				require.Equal(t, `"once"`, (<-second).Body.String())
				require.Empty(t, f.abandons)
			}
			require.Empty(t, f.submitted)
			h.Close()
		})
	}
}

func TestDisconnectDuringTheInsertDoesNotAffectOtherCallers(t *testing.T) {
	for _, headers := range [][]string{{"Accept", "application/json"}, {"Idempotency-Key", "k"}} {
		h, f := rowHandler(t)
		f.enter, f.write = make(chan context.Context, 1), make(chan struct{})
		body := `{"type":"pdf","durable":true}`
		if headers[0] == "Accept" {
			body = `{"type":"pdf","durable":true,"coalesce_key":"k"}`
		}
		ctx, disconnect := context.WithCancel(t.Context())
		first := post(ctx, h, body, headers...)
		<-f.enter
		second := post(t.Context(), h, body, headers...)
		require.Eventually(t, func() bool { return h.Gauges().Followers == 2 }, 30*time.Second, time.Millisecond)
		disconnect()
		close(f.write)
		var id dispatcherd.JobID
		select {
		case id = <-f.submitted:
		case rec := <-second:
			require.Fail(t, "the second lost the run with the first", rec.Body.String())
		}
		<-first
		f.answer(-id, ondemand.Answer{Kind: ondemand.Done, Payload: []byte(`"for the second"`)})
		require.Equal(t, `"for the second"`, (<-second).Body.String())
		require.Empty(t, f.abandons)
	}
}

func TestKeptRequestEndsAtItsDeadlineWithoutTheDispatchers(t *testing.T) {
	for name, body := range map[string]string{
		"a row":    `{"type":"pdf","timeout":2,"durable":true}`,
		"shared":   `{"type":"pdf","timeout":2,"coalesce_key":"k"}`,
		"both":     `{"type":"pdf","timeout":2,"coalesce_key":"k","durable":true}`,
		"extended": `{"type":"pdf","timeout":1,"coalesce_key":"k"}`,
		"joined":   `{"type":"pdf","timeout":2,"coalesce_key":"k"}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			h, f := rowHandler(t)
			accepted := <-post(t.Context(), h, body, "Prefer", "respond-async")
			if joiner := map[string]string{"extended": "2", "joined": "1"}[name]; joiner != "" {
				<-post(t.Context(), h, `{"type":"pdf","timeout":`+joiner+`,"coalesce_key":"k"}`, "Prefer", "respond-async")
			}
			time.Sleep(2*time.Second - time.Millisecond)
			synctest.Wait()
			require.Empty(t, f.abandons, name)
			time.Sleep(time.Millisecond)
			require.Equal(t, -<-f.submitted, <-f.abandons, name)
			synctest.Wait()
			require.Equal(t, http.StatusGatewayTimeout, call(h, http.MethodGet, accepted.Header().Get("Location")).Code, name)
		})
	}
}

// A caller joins while the last other caller disconnects. The new caller starts another
// request, and its answer does not say that a caller disconnected.
func TestRequestThatIsBeingCancelledIsNotShared(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	go func() {
		for id := range f.submitted {
			f.withCaller(id, func(c ondemand.Caller) { c.Started(1, "w") })
		}
	}()
	var all sync.WaitGroup
	for n := range 300 {
		body := `{"type":"pdf","timeout":3600,"coalesce_key":"` + strconv.Itoa(n) + `"}`
		first, leave := context.WithCancel(t.Context())
		second, done := context.WithCancel(t.Context())
		a := post(first, h, body)
		all.Go(leave)
		all.Go(func() {
			b := post(second, h, body)
			<-a
			select {
			case rec := <-b:
				require.Fail(t, "answered although nothing happened", rec.Body.String())
			case <-time.After(time.Millisecond):
			}
			done()
			<-b
		})
	}
	all.Wait()
	close(f.submitted)
	for len(f.abandoned) > 0 {
		<-f.abandoned
	}
}

// failing is a fake whose inserts are slow and fail.
type failing struct {
	*rowBackend

	writing func()
}

func (f *failing) Submit(ctx context.Context, r ondemand.Request, c ondemand.Caller) (dispatcherd.JobID, error) {
	f.writing()
	id, err := f.rowBackend.Submit(ctx, r, c)
	c.Answered(ondemand.Answer{Kind: ondemand.Failed, Reason: "the job's time is up"})
	return id, err
}

// The worker of a row measures the time too. Its report of the timeout may
// arrive before the dispatcher's own.
func TestFailureAfterTheDeadlineIs504(t *testing.T) {
	for after, code := range map[time.Duration]string{2*time.Second - time.Millisecond: "job-failed", 2 * time.Second: "deadline-passed"} {
		for _, headers := range [][]string{{"Accept", "text/event-stream"}, {"Idempotency-Key", "k"}} {
			synctest.Test(t, func(t *testing.T) {
				f := &failing{
					rowBackend: &rowBackend{fake: newFake(), abandons: make(chan dispatcherd.JobID, 1)},
					writing:    func() { time.Sleep(after) },
				}
				h := New(DefaultConfig(), f, &counts{bounds: map[Bound]int{}}, http.NotFoundHandler())
				defer h.Close()
				rec := <-post(t.Context(), h, `{"type":"pdf","timeout":2,"durable":true}`, headers...)
				require.Contains(t, rec.Body.String(), code, headers)
			})
		}
	}
}

// A key identifies one request. Waiting times are no part of it.
func TestKeyIsRejectedForAnotherRequest(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	keyed := func(body string) *httptest.ResponseRecorder {
		return <-post(t.Context(), h, body, "Idempotency-Key", "k", "Prefer", "respond-async")
	}
	first := keyed(`{"type":"pdf","payload":[1],"priority":1}`)
	require.Equal(t, http.StatusAccepted, first.Code)
	for _, other := range []string{
		`{"type":"ocr","payload":[1],"priority":1}`,
		`{"type":"pdf","payload":[2],"priority":1}`,
		`{"type":"pdf","payload":[1],"priority":2}`,
		`{"type":"pdf","payload":[1],"priority":1,"durable":true}`,
		`{"type":"pdf","payload":[1],"priority":1,"coalesce_key":"c"}`,
	} {
		rec := keyed(other)
		require.Equal(t, http.StatusUnprocessableEntity, rec.Code, other)
		require.Contains(t, rec.Body.String(), rest.KeyReused.Name)
	}
	same := keyed(`{"priority":1,"payload":[1],"type":"pdf","timeout":7,"wait_for_worker":3}`)
	require.Equal(t, first.Header().Get("Location"), same.Header().Get("Location"))
	f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done})
	require.Empty(t, f.submitted)
}

// An empty key is an unset variable, and two keys are ambiguous. Without a key
// a repeated request would run twice.
func TestMalformedKeyIsRejected(t *testing.T) {
	address, _, f, _ := served(t, nil)
	c := connect(t, address)
	require.NoError(t, c.conn.SetDeadline(time.Now().Add(20*time.Second)))
	for headers, what := range map[string]string{
		"Idempotency-Key:\r\n":                                  "leave the header out",
		"idempotency-key: \t \r\n":                              "leave the header out",
		"Idempotency-Key: a\r\nIdempotency-Key: b\r\n":          "more than one",
		"Idempotency-Key: " + strings.Repeat("k", 257) + "\r\n": "longer than 256 bytes",
	} {
		_, err := fmt.Fprintf(
			c.conn,
			"POST /v1/requests HTTP/1.1\r\nHost: d\r\n%sContent-Length: %d\r\n\r\n%s",
			headers,
			len(smallBody),
			smallBody,
		)
		require.NoError(t, err)
		got := c.readResponse()
		require.Equal(t, http.StatusBadRequest, got.status, headers)
		require.Contains(t, got.text, what)
	}
	require.Empty(t, f.submitted)
}

// Callers share an execution, not a kept answer.
func TestCoalesceKeyFindsNoFinishedRequest(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	const body = `{"type":"pdf","coalesce_key":"c"}`
	kept := <-post(t.Context(), h, body, "Prefer", "respond-async")
	f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done, Payload: []byte(`"old"`)})
	fresh := post(t.Context(), h, body)
	f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done, Payload: []byte(`"new"`)})
	require.Equal(t, `"new"`, (<-fresh).Body.String())
	require.Equal(t, `"old"`, call(h, http.MethodGet, kept.Header().Get("Location")).Body.String())
}

// The id of a shared request is known before its row is written.
func TestRequestDeletedDuringItsInsertHasNoRow(t *testing.T) {
	h, f := rowHandler(t)
	f.enter, f.write = make(chan context.Context, 1), make(chan struct{})
	const body = `{"type":"pdf","durable":true}`
	first := post(t.Context(), h, body, "Idempotency-Key", "k", "Prefer", "respond-async")
	<-f.enter
	second := <-post(t.Context(), h, body, "Idempotency-Key", "k", "Prefer", "respond-async")
	require.Equal(t, http.StatusNoContent, call(h, http.MethodDelete, second.Header().Get("Location")).Code)
	require.Empty(t, f.abandons, "the row is not known yet")
	close(f.write)
	require.Equal(t, http.StatusConflict, (<-first).Code)
	require.Equal(t, -<-f.submitted, <-f.abandons)
}

func TestLateRowIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := rowHandler(t)
		answer := post(t.Context(), h, `{"type":"pdf","durable":true,"timeout":2}`)
		time.Sleep(2*time.Second - time.Millisecond)
		synctest.Wait()
		require.Empty(t, f.abandons)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Equal(t, http.StatusGatewayTimeout, (<-answer).Code)
		require.Equal(t, -<-f.submitted, <-f.abandons)
	})
}

// On each transport, each late answer names the row: the first answer, the answer to a
// repetition, and all later answers.
func TestLateAnswerNamesItsRow(t *testing.T) {
	h, f := rowHandler(t)
	address := opened(t, h, serveAll)
	for headers, body := range map[string]string{
		"":                             `{"type":"pdf","durable":true,"timeout":0.001}`,
		"Accept: application/json\r\n": `{"type":"pdf","durable":true,"timeout":0.001,"coalesce_key":"k"}`,
		"Idempotency-Key: k\r\n":       `{"type":"pdf","durable":true,"timeout":0.001}`,
		"Idempotency-Key: shared\r\n":  `{"type":"pdf","durable":true,"timeout":0.001,"coalesce_key":"k"}`,
	} {
		var answers []response
		for len(answers) == 0 || len(answers) == 1 && strings.HasPrefix(headers, "Idem") {
			c := connect(t, address)
			require.NoError(t, c.conn.SetDeadline(time.Now().Add(20*time.Second)))
			_, err := fmt.Fprintf(c.conn, "POST /v1/requests HTTP/1.1\r\nHost: d\r\n%sContent-Length: %d\r\n\r\n%s", headers, len(body), body)
			require.NoError(t, err)
			answers = append(answers, c.readResponse())
		}
		row := strconv.Itoa(-int(<-f.submitted))
		for _, a := range answers {
			require.Equal(t, http.StatusGatewayTimeout, a.status)
			require.Equal(t, row, a.header.Get("Dispatcherd-Job"), headers+body)
			require.Equal(t, "/v1/jobs/"+row, a.header.Get("Location"))
			require.Contains(t, a.text, `"job":`+row)
		}
	}
}

// A 504 for a misspelt type says that no slot supports it, for each kind of
// deadline.
func Test504SaysThatNoSlotSupportsTheType(t *testing.T) {
	const none = "no slot supports the type"
	for name, ask := range map[string]struct {
		more    string
		headers []string
	}{
		"a row":           {`,"durable":true`, nil},
		"a row with key":  {`,"durable":true`, []string{"Idempotency-Key", "k"}},
		"a row fetched":   {`,"durable":true`, []string{"Prefer", "respond-async"}},
		"shared":          {`,"coalesce_key":"c","wait_for_worker":60`, nil},
		"shared with key": {`,"coalesce_key":"c","wait_for_worker":60`, []string{"Idempotency-Key", "k"}},
		"shared, fetched": {`,"coalesce_key":"c","wait_for_worker":60`, []string{"Prefer", "respond-async"}},
	} {
		for _, noCapacity := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				h, f, _ := testHandler(t, nil)
				if strings.HasPrefix(name, "a row") {
					replaceBackend(h, &rowBackend{fake: f, abandons: make(chan dispatcherd.JobID, 1)})
				}
				f.setNoCapacity(noCapacity)
				got := <-post(t.Context(), h, `{"type":"pfd","timeout":2`+ask.more+`}`, ask.headers...)
				if got.Code == http.StatusAccepted {
					time.Sleep(3 * time.Second)
					got = call(h, http.MethodGet, got.Header().Get("Location"))
				}
				require.Equal(t, http.StatusGatewayTimeout, got.Code, name)
				require.Contains(t, got.Body.String(), rest.DeadlinePassed.Name)
				require.Equal(t, noCapacity, strings.Contains(got.Body.String(), none), "%s: %s", name, got.Body)
			})
		}
	}
}

// The dispatcher's answer and the end of a capacity wait may cross.
func TestSharedRequestEndsOnce(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	accepted := <-post(t.Context(), h, `{"type":"pdf"}`, "Prefer", "respond-async")
	f.withCaller(<-f.submitted, func(c ondemand.Caller) {
		c.Answered(ondemand.Answer{Kind: ondemand.Done, Payload: []byte(`"the first"`)})
		c.Answered(ondemand.Answer{Kind: ondemand.Late, Reason: "the second"})
	})
	require.Equal(t, `"the first"`, call(h, http.MethodGet, accepted.Header().Get("Location")).Body.String())
	require.Equal(t, 1, h.Gauges().Requests)
}
