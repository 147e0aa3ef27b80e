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
	"github.com/dispatcherd/dispatcherd/internal/schedule/scheduleapi"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// fakeSchedules are a table with three schedules of types with the same names.
type fakeSchedules struct{}

func (*fake) Schedules() scheduleapi.Table { return fakeSchedules{} }

func (fakeSchedules) edit(name string) error {
	if name != "pdf" && name != "payroll" && name != "paused" {
		return problem.NotFound.Of("no such schedule")
	}
	return nil
}

func (f fakeSchedules) List(ctx context.Context, after string, limit int) (list []contract.Schedule, err error) {
	for _, name := range []string{"paused", "payroll", "pdf"} {
		if s, _ := f.Get(ctx, name); name > after && len(list) < limit {
			list = append(list, s)
		}
	}
	return list, nil
}

func (f fakeSchedules) Get(_ context.Context, name string) (contract.Schedule, error) {
	s := contract.NewSchedule()
	s.Name, s.Kind, s.Spec, s.Type = name, contract.Cron, "@daily", name
	return s, f.edit(name)
}

func (f fakeSchedules) Set(_ context.Context, s contract.Schedule) (bool, error) {
	return s.Priority > 0, f.edit(s.Name)
}

func (f fakeSchedules) Remove(_ context.Context, name string) error { return f.edit(name) }
func (f fakeSchedules) RemoveVersion(_ context.Context, name string, version int64) error {
	if version != 3 {
		return problem.Conflict.Of("it was edited")
	}
	return f.edit(name)
}
func (f fakeSchedules) Pause(_ context.Context, name string) error  { return f.edit(name) }
func (f fakeSchedules) Resume(_ context.Context, name string) error { return f.edit(name) }

func (f fakeSchedules) Run(_ context.Context, name, _ string, force bool) (contract.MadeTick, error) {
	if name == "paused" && !force {
		return contract.MadeTick{}, problem.Conflict.Of("it is paused")
	}
	return contract.MadeTick{Outcome: contract.TickRun, Job: 7}, f.edit(name)
}

func (f fakeSchedules) Backfill(_ context.Context, name string, _, _ time.Time, _ string) (map[string]int, error) {
	return map[string]int{contract.TickRun: 2}, f.edit(name)
}

func (f fakeSchedules) CountBackfill(_ context.Context, name string, _, _ time.Time) (map[string]int, error) {
	return map[string]int{contract.TickNew: 3}, f.edit(name)
}

func (f fakeSchedules) Ticks(_ context.Context, _ string, before contract.Tick, limit int) (ticks []contract.Tick, err error) {
	for at := time.Date(2026, 1, 2, 0, 0, 0, 3000, time.UTC); len(ticks) < limit && at.Year() == 2026; at = at.Add(-time.Hour) {
		if before.MadeAt.IsZero() || at.Before(before.MadeAt) {
			ticks = append(ticks, contract.Tick{Occasion: at.Format(time.RFC3339), Outcome: contract.TickSkipped, MadeAt: at, Reason: "why"})
		}
	}
	return ticks, nil
}

// A user who may not use a type neither reads nor changes schedules of the type.
func TestSchedulesOfForbiddenTypesAreHidden(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	h.Permit = func(_ workerproto.Peer, typ string) string {
		if typ == "payroll" {
			return "no"
		}
		return ""
	}
	answer := func(method, path, body string) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(method, path, strings.NewReader(body)))
		return rec
	}
	for _, c := range []struct{ method, path, body string }{
		{"GET", "", ""}, {"DELETE", "", ""}, {"PUT", "", `{"type": "pdf", "spec": "@daily"}`}, {"POST", "/pause", ""}, {"POST", "/resume", ""},
		{"POST", "/run?key=1", ""}, {"POST", "/backfill?from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z", ""}, {"GET", "/next", ""}, {"GET", "/ticks", ""},
	} {
		require.Equal(t, http.StatusForbidden, answer(c.method, "/v1/schedules/payroll"+c.path, c.body).Code, "%s %s", c.method, c.path)
		require.Equal(t, http.StatusOK, answer(c.method, "/v1/schedules/pdf"+c.path, c.body).Code, "%s %s", c.method, c.path)
	}
	require.Equal(t, http.StatusForbidden, answer("PUT", "/v1/schedules/pdf", `{"type": "payroll", "spec": "@daily"}`).Code, "the new type")
	require.Equal(t, http.StatusBadRequest, answer("PUT", "/v1/schedules/pdf", `{"type": "pdf", "spec": "@daily", "version": -2}`).Code)
	require.NotContains(t, answer("GET", "/v1/schedules", "").Body.String(), "payroll")
}

func TestPagesOfSchedulesAndTicks(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	get := func(path string, into any) {
		t.Helper()
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		require.Equal(t, http.StatusOK, rec.Code, rec.Body)
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), into))
	}
	var first, second scheduleapi.SchedulePage
	get("/v1/schedules?limit=2", &first)
	require.Equal(t, "payroll", first.Next)
	get("/v1/schedules?limit=2&after="+first.Next, &second)
	require.Len(t, second.Schedules, 1)
	require.Empty(t, second.Next)
	var ticks scheduleapi.TickPage
	seen := 0
	for path := "/v1/schedules/pdf/ticks?limit=10"; ; path = "/v1/schedules/pdf/ticks?limit=10&before=" + ticks.Next {
		ticks = scheduleapi.TickPage{}
		get(path, &ticks)
		seen += len(ticks.Ticks)
		if ticks.Next == "" {
			break
		}
	}
	require.Equal(t, 25, seen)
}

// An error of a query names the parameter, its value, the rule and an example.
func TestInvalidQueriesOfSchedulesAreExplained(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	for path, says := range map[string]string{
		"GET /v1/schedules?limit=0":                `limit \"0\": must be a whole number from 1 to 1000, for example 100`,
		"GET /v1/schedules/pdf/next?count=x":       `count \"x\": must be a whole number from 1 to 1000, for example 10`,
		"GET /v1/schedules/pdf/ticks?before=x":     `before \"x\": must be next_before of the previous page, for example 2026`,
		"POST /v1/schedules/pdf/run?force=perhaps": `force \"perhaps\": must be true or false, for example`,
		"POST /v1/schedules/pdf/backfill?from=x":   `from \"x\": must be a time in RFC 3339, for example 2026`,
	} {
		method, target, _ := strings.Cut(path, " ")
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(method, target, http.NoBody))
		require.Equal(t, http.StatusBadRequest, rec.Code, path)
		require.Contains(t, rec.Body.String(), says)
	}
}

// An empty list is [], not null. A removal with a version removes only that version.
func TestAnswersWithoutSchedules(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	answer := func(method, path string) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(method, path, http.NoBody))
		return rec
	}
	require.JSONEq(t, `{"schedules": []}`, answer("GET", "/v1/schedules?after=z").Body.String())
	require.JSONEq(t, `{"ticks": []}`, answer("GET", "/v1/schedules/pdf/ticks?before=2025-01-01T00:00:00Z/x").Body.String())
	require.Equal(t, http.StatusOK, answer("DELETE", "/v1/schedules/pdf?version=3").Code)
	require.Equal(t, http.StatusConflict, answer("DELETE", "/v1/schedules/pdf?version=4").Code)
	require.Equal(t, http.StatusNotFound, answer("DELETE", "/v1/schedules/none?version=3").Code)
	for _, version := range []string{"0", "-1", "x"} {
		rec := answer("DELETE", "/v1/schedules/pdf?version="+version)
		require.Equal(t, http.StatusBadRequest, rec.Code)
		require.Contains(t, rec.Body.String(), "must be the version that was read, for example 3, or absent for any")
	}
}
