package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitapi"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// fakeLimits are a table with two limits. Get returns the limit that was set last.
type fakeLimits struct{ set *contract.Limit }

func (*fake) Limits() limitapi.Limits { return fakeLimits{new(contract.Limit)} }

func (f fakeLimits) List(ctx context.Context, after string, limit int) (list []contract.Limit, err error) {
	for _, key := range []string{"a/b", "tenant:*"} {
		if v, _ := f.Get(ctx, key); key > after && len(list) < limit {
			list = append(list, v)
		}
	}
	return list, nil
}

func (f fakeLimits) Get(_ context.Context, key string) (contract.Limit, error) {
	if f.set.Key == key {
		return *f.set, nil
	}
	v := contract.NewLimit(key)
	v.Capacity, v.Rate, v.Per = nil, 3, contract.Duration(time.Second)
	if key != "a/b" && key != "tenant:*" {
		return v, problem.NotFound.Of("no such limit")
	}
	return v, nil
}

func (f fakeLimits) Set(_ context.Context, v contract.Limit) (bool, error) {
	if v.Version > 3 {
		return false, problem.Conflict.Of("it was edited")
	}
	*f.set = v
	if v.Capacity != nil && *v.Capacity == 99 {
		return false, problem.Conflict.Of("there are too many")
	}
	return v.Rate > 0, nil
}

func (f fakeLimits) Remove(ctx context.Context, key string) error {
	_, err := f.Get(ctx, key)
	return err
}

// fakeKeys are two keys.
type fakeKeys struct{}

func (*fake) Keys() limitapi.Keys { return fakeKeys{} }

func (f fakeKeys) List(ctx context.Context, after string, _ int) (contract.KeyPage, error) {
	if after == "z" {
		return contract.KeyPage{}, nil
	}
	s, _ := f.Show(ctx, "a")
	return contract.KeyPage{Keys: []contract.KeySummary{s.KeySummary}, Next: "a", Incomplete: true, Controller: s.Controller}, nil
}

func (fakeKeys) Show(_ context.Context, key string) (contract.KeyState, error) {
	at := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	s := contract.KeyState{
		KeySummary: contract.KeySummary{Key: key, Limit: contract.NewLimit("*")},
		Controller: &contract.Controller{Dispatcher: 3, Name: "d"},
	}
	if strings.Contains(key, "*") {
		return s, problem.InvalidRequest.Of("it is not a key")
	}
	s.Jobs = []contract.KeyHolder{
		{ID: 1, Type: "pdf", Cost: -1, Fence: 7, Dispatcher: new(3), StartedAt: &at},
		{ID: 2, Type: "pdf", Cost: 2, Fence: 8},
	}
	s.Waiting, s.Oldest, s.Next, s.Started, s.Incomplete = 5, &at, &contract.KeyWaiter{
		ID:    9,
		Type:  "pdf",
		Keys:  key,
		RunAt: at,
	}, new(
		int64(3),
	), true
	return s, nil
}

// A page without elements contains an empty list, not null.
func TestEmptyPagesOfLimitsAndKeys(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	for list, want := range map[string]string{"limits": `{"limits":[]}`, "keys": `{"keys":[]`} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/"+list+"?after=z", nil))
		require.True(t, strings.HasPrefix(w.Body.String(), want), w.Body.String())
	}
}

// A user who may not use all types neither reads keys nor edits limits.
func TestLimitsAndKeysAreForCallersOfAllTypes(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	h.PermitAll = func(workerproto.Peer) string { return "not all types" }
	for line, status := range map[string]int{
		"GET /v1/limits": 200, "GET /v1/limits/tenant:*": 200, "PUT /v1/limits/k": 403, "DELETE /v1/limits/tenant:*": 403, "GET /v1/keys": 403, "GET /v1/keys/a": 403,
	} {
		method, path, _ := strings.Cut(line, " ")
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(method, path, strings.NewReader(`{}`)))
		require.Equal(t, status, rec.Code, "%s: %s", line, rec.Body)
	}
}

// An absent member of a limit means the default, and null means unlimited.
func TestLimitOfABody(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	put := func(body string) (v contract.Limit, status int, text string) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodPut, "/v1/limits/a%2Fb", strings.NewReader(body)))
		_ = json.Unmarshal(rec.Body.Bytes(), &v) // a problem is no limit
		return v, rec.Code, rec.Body.String()
	}
	v, status, _ := put(`{}`)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, contract.NewLimit("a/b"), v)
	v, status, _ = put(`{"key":"a/b","capacity":null,"rate":3,"per":"1.5s","scope":"dispatcher","on_retry":"wait"}`)
	require.Equal(t, http.StatusCreated, status)
	require.Equal(
		t,
		contract.Limit{Key: "a/b", Rate: 3, Per: contract.Duration(1500 * time.Millisecond), Scope: "dispatcher", OnRetry: "wait"},
		v,
	)
	v, status, _ = put(`{"version":3}`)
	require.Equal(t, http.StatusOK, status)
	require.EqualValues(t, 3, v.Version)
	_, status, _ = put(`{"version":4}`)
	require.Equal(t, http.StatusConflict, status)
	for body, says := range map[string]string{
		`{"version":-2}`: "must be the version that was read", `{"version":"3"}`: "must be the version that was read",
		`[]`: "a limit is a JSON object", `{"key":"b"}`: "as in the path", `{"color":1}`: "there is no field", `{"capacity":"2"}`: `must have the form of 2, or null`,
		`{"capacity":"none"}`: "must have the form", `{"capacity":1.5}`: "must have the form of 2", `{"rate":0}`: "rate 0: must be from 1", `{"per":1}`: `must have the form of \"1s\"`, `{"per":"1"}`: "must have the form of 1s",
		`{"per":"none"}`: "must have the form", `{"scope":1}`: "must have the form", `{"scope":["x"]}`: "must have the form",
	} {
		_, status, text := put(body)
		require.Equal(t, http.StatusBadRequest, status, body)
		require.Contains(t, text, says, body)
	}
}
