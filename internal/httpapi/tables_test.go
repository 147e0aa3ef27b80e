package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow/flowstore"
	"github.com/dispatcherd/dispatcherd/internal/flow/joins"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitstore"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
	"github.com/dispatcherd/dispatcherd/internal/operation"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/internal/schedule/schedulestore"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Routes implements Backend with the tables of the database, if there is one.
func (f *fake) Routes() []rest.Route {
	if f == nil {
		return nil
	}
	book := func(context.Context, func(*permits.Book)) bool { return false }
	warn := func(context.Context, ...contract.Needs) []string { return []string{"it waits"} }
	return slices.Concat(schedulestore.Schedules{DB: f.db}.Calls(warn), limitstore.API{DB: f.db, Book: book}.Calls(), f.controls().Calls(),
		flowstore.API{DB: f.db, Warn: warn, Notify: func() {}, Settle: func(context.Context, dispatcherd.JobID) {}}.Calls())
}

// controls are the calls of pauses and drains, without workers.
func (f *fake) controls() operation.API {
	return operation.API{
		DB: f.db, Session: func(int64) (string, string) { return "", "" }, Workers: func() []contract.Worker { return nil },
		Doubts: func(...string) []string { return nil },
	}
}

// CancelledWith implements Backend.
func (f *fake) CancelledWith(ctx context.Context, id dispatcherd.JobID) (types []string, all bool, err error) {
	if f.db == nil {
		return nil, false, nil
	}
	return joins.Joins{DB: f.db}.CancelledWith(ctx, id)
}

// tables are an API with a database.
type tables struct {
	*Handler
	t *testing.T
	f *fake
}

func newTables(t *testing.T) tables {
	t.Helper()
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), pgtest.New(t))
	require.NoError(t, err)
	f, seen := newFake(), &counts{bounds: map[Bound]int{}, t: t}
	f.db = pool
	h := New(DefaultConfig(), f, seen, http.NotFoundHandler())
	seen.h = h
	t.Cleanup(pool.Close)
	t.Cleanup(h.Close)
	return tables{h, t, f}
}

// ask returns the body of an answer, whose status must be as given.
func (h tables) ask(call, body string, status int) string {
	h.t.Helper()
	method, path, _ := strings.Cut(call, " ")
	rec := ask(h.Handler, method, path, body)
	require.Equal(h.t, status, rec.Code, "%s %s: %s", call, body, rec.Body)
	if status >= http.StatusBadRequest {
		require.Empty(h.t, rec.Header().Get("Location"), "%s %s made no row", call, body)
	}
	return rec.Body.String()
}

// id returns the id of a new row.
func (h tables) id(path, body string) (id int64) {
	h.t.Helper()
	var row struct{ ID int64 }
	require.NoError(h.t, json.Unmarshal([]byte(h.ask("POST "+path, body, http.StatusCreated)), &row))
	return row.ID
}

// exec executes a statement.
func (h tables) exec(sql string, args ...any) {
	h.t.Helper()
	_, err := h.f.db.Exec(h.t.Context(), sql, args...)
	require.NoError(h.t, err)
}

// withoutPayroll lets callers use all types but payroll.
func (h tables) withoutPayroll() {
	h.Permit = func(_ workerproto.Peer, typ string) string {
		if typ == "payroll" {
			return "not payroll"
		}
		return ""
	}
	h.PermitAll = func(workerproto.Peer) string { return "not all types" }
}

// A list is read page by page, in its order, and each element once. An empty list is [], not null. The cursor is opaque.
func TestListsOfTablesArePaged(t *testing.T) {
	h := newTables(t)
	var flows []string
	for _, name := range []string{"a", "b1", "b2", "c"} {
		h.ask("PUT /v1/schedules/"+name, `{"type": "pdf", "spec": "@daily"}`, http.StatusCreated)
		h.ask("PUT /v1/limits/"+name, `{}`, http.StatusCreated)
		h.ask("POST /v1/schedules/a/run?key="+name, "", http.StatusOK)
		flows = slices.Insert(flows, 0, strconv.FormatInt(h.id("/v1/flows", `{"nodes": [{"name": "x", "type": "pdf", "keys": "`+name+`"}]}`), 10))
	}
	names := []string{"a", "b1", "b2", "c"}
	for _, c := range []struct {
		path, member string
		want         []string
	}{
		{"/v1/schedules?", "name", names},
		{"/v1/schedules?prefix=b&", "name", names[1:3]},
		{"/v1/schedules?prefix=x&", "name", nil},
		{"/v1/limits?", "key", names},
		{"/v1/limits?prefix=b&", "key", names[1:3]},
		{"/v1/keys?", "key", names},
		{"/v1/keys?prefix=b&", "key", names[1:3]},
		{"/v1/batches?", "id", flows},
		{"/v1/batches?kind=batch&", "id", nil},
		{"/v1/batches?state=sealed&kind=flow&", "id", flows},
		{"/v1/schedules/a/ticks?", "occasion", []string{"now:c", "now:b2", "now:b1", "now:a"}},
	} {
		for _, limit := range []int{1, 2, 4, 5} {
			var found []string
			pages := 0
			for cursor, more := "", true; more; pages++ {
				text := h.ask(fmt.Sprintf("GET %slimit=%d&cursor=%s", c.path, limit, cursor), "", http.StatusOK)
				require.True(t, strings.HasPrefix(text, `{"items":[`), text)
				var page struct {
					Items []map[string]any
					Next  string `json:"next_cursor"`
				}
				d := json.NewDecoder(strings.NewReader(text))
				d.UseNumber()
				require.NoError(t, d.Decode(&page))
				for _, item := range page.Items {
					found = append(found, fmt.Sprint(item[c.member]))
				}
				cursor, more = page.Next, page.Next != ""
				require.Equal(t, cursor, url.QueryEscape(cursor), "a cursor needs no escapes")
			}
			require.Equal(t, c.want, found, "%s%d", c.path, limit)
			require.Equal(t, max(1, (len(c.want)+limit-1)/limit), pages, "%s%d", c.path, limit)
		}
	}
}

// All lists and calls explain an invalid parameter in the same way: its name, its value and the rule.
func TestInvalidParametersAreExplained(t *testing.T) {
	h := newTables(t)
	h.ask("PUT /v1/schedules/pdf", `{"type": "pdf", "spec": "@daily"}`, http.StatusCreated)
	for _, list := range []string{"schedules", "schedules/pdf/ticks",
		"limits", "keys", "batches", "jobs", "requests", "slots", "types",
		"workers", "dispatchers"} {
		for query, says := range map[string]string{
			"limit=0":         `limit \"0\": must be a whole number from 1 to 1000`,
			"limit=1001":      `limit \"1001\": must be a whole number from 1 to 1000`,
			"limit=x":         `limit \"x\": must be a whole number`,
			"cursor=%7b":      `cursor \"{\": must be next_cursor of the previous page of this list`,
			"limits=1":        `there is no query parameter \"limits\"; this call takes `,
			"limit=1&limit=1": "the query parameter limit is given more than once",
		} {
			require.Contains(t, h.ask("GET /v1/"+list+"?"+query, "", http.StatusBadRequest), says, list)
		}
	}
	for call, says := range map[string]string{
		"GET /v1/batches?cursor=eA":             `must be next_cursor`,
		"GET /v1/jobs?cursor=MHgx":              `must be next_cursor`,
		"GET /v1/schedules/pdf/ticks?cursor=eA": `must be next_cursor`,
		"GET /v1/batches?kind=set":              `kind \"set\": must be one of batch, flow, children`,
		"GET /v1/batches?state=lost":            `state \"lost\": must be one of open, sealed, ended, cancelled`,
		"GET /v1/jobs?status=lost":              `status \"lost\": must be one of waiting, pending, running, done, failed, cancelled`,
		"GET /v1/jobs?newer_than=monday": `newer_than \"monday\": must be a time in RFC 3339, ` +
			`such as 2026-01-31T08:00:00Z (%2B for + in a URL), or an age`,
		"GET /v1/jobs?older_than=-1h":                 `older_than \"-1h\": must be a time`,
		"GET /v1/schedules/pdf/next?limit=x":          `limit \"x\": must be a whole number from 1 to 1000`,
		"POST /v1/schedules/pdf/run?force=perhaps":    `force \"perhaps\": must be true or false`,
		"POST /v1/schedules/pdf/backfill?from=x&to=x": `from \"x\": must be a time in RFC 3339, such as 2026`,
		"POST /v1/schedules/pdf/backfill":             `from and to are needed`,
		"DELETE /v1/schedules/pdf?version=0":          `version \"0\": must be a whole number from 1`,
		"POST /v1/jobs?on_error=maybe":                `on_error \"maybe\": must be one of abort, skip`,
	} {
		require.Contains(t, h.ask(call, "", http.StatusBadRequest), says, call)
	}
	for call, body := range map[string]string{
		"POST /v1/schedules/pdf/pause": `{}`, "DELETE /v1/limits/k": `{"version": 3}`, "POST /v1/jobs/cancel?expect=2": `{"type": "pdf"}`,
	} {
		require.Contains(t, h.ask(call, body, http.StatusBadRequest), "takes no body", call)
	}
	require.Contains(t, h.ask("GET /v1/batches/x", "", http.StatusNotFound), `id \"x\": must be a whole number from 1`)
}

// A user who may not use a type neither reads nor changes schedules of the type.
func TestSchedulesOfForbiddenTypesAreHidden(t *testing.T) {
	h := newTables(t)
	for _, name := range []string{"payroll", "pdf"} {
		h.ask("PUT /v1/schedules/"+name, `{"type": "`+name+`", "spec": "@daily"}`, http.StatusCreated)
	}
	h.withoutPayroll()
	for _, c := range []struct{ method, path, body string }{
		{"GET", "", ""}, {"PUT", "", `{"type": "pdf", "spec": "@daily"}`}, {"POST", "/pause", ""}, {"POST", "/resume", ""},
		{"POST", "/run?key=1", ""}, {"POST", "/backfill?from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z",
			""}, {"GET", "/next", ""}, {"GET", "/ticks", ""},
		{"DELETE", "", ""},
	} {
		h.ask(c.method+" /v1/schedules/payroll"+c.path, c.body, http.StatusForbidden)
		h.ask(c.method+" /v1/schedules/pdf"+c.path, c.body, http.StatusOK)
	}
	h.ask("PUT /v1/schedules/other", `{"type": "payroll", "spec": "@daily"}`, http.StatusForbidden)
	require.NotContains(t, h.ask("GET /v1/schedules", "", http.StatusOK), "payroll")
}

// The life of a schedule. An edit and a removal with a version are only of that version.
func TestCallsOfASchedule(t *testing.T) {
	h := newTables(t)
	h.ask("GET /v1/schedules/s", "", http.StatusNotFound)
	text := h.ask("PUT /v1/schedules/s", `{"name": "s", "type": "pdf", "spec": "@daily", "catch_up": "30m"}`, http.StatusCreated)
	require.Contains(t, text, `"catch_up":"30m0s"`)
	require.Contains(t, text, `"version":1`)
	unread := func(text string) string { return regexp.MustCompile(`,"read_at":"[^"]*"`).ReplaceAllString(text, "") }
	require.JSONEq(t, unread(text), unread(h.ask("PUT /v1/schedules/s", text, http.StatusOK)), "an answer is a body")
	for body, says := range map[string]string{
		`{"type": "pdf", "color": "red"}`:                  `there is no field \"color\"`,
		`{"type": "pdf", "name": "other"}`:                 `name \"other\": must be \"s\" as in the path`,
		`{"type": "pdf", "every": 10}`:                     "every 10: must be a duration from 1s to 87840h",
		`[]`:                                               "it cannot be the JSON array: write a JSON object",
		`{"type": "pdf", "type": "pdf"}`:                   "type is given twice",
		`{"type": "pdf", "spec": "@daily", "version": -2}`: "version -2: must be the version that was read",
		`{"type": "pdf", "spec": "daily"}`:                 "invalid schedule: spec", `{}{}`: "something follows",
	} {
		require.Contains(t, h.ask("PUT /v1/schedules/s", body, http.StatusBadRequest), says, body)
	}
	h.ask("PUT /v1/schedules/s", `{"type": "pdf", "spec": "@daily", "version": -1}`, http.StatusConflict)
	require.JSONEq(t, `{"name": "s"}`, h.ask("POST /v1/schedules/s/pause", "", http.StatusOK))
	require.Contains(t, h.ask("POST /v1/schedules/s/run?key=1", "", http.StatusConflict), "resume it first")
	require.Contains(t, h.ask("POST /v1/schedules/s/run?key=1&force=true", "", http.StatusOK), `"outcome":"run"`)
	h.ask("POST /v1/schedules/s/resume", "", http.StatusOK)
	span := "?from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z"
	require.JSONEq(t, `{"counts": {"new": 2}}`, h.ask("POST /v1/schedules/s/backfill"+span+"&dry_run=true", "", http.StatusOK))
	require.JSONEq(t, `{"counts": {"run": 2}}`, h.ask("POST /v1/schedules/s/backfill"+span+"&overlap=allow_all", "", http.StatusOK))
	require.Equal(t, 3, strings.Count(h.ask("GET /v1/schedules/s/next?limit=3", "", http.StatusOK), `"local"`))
	h.ask("DELETE /v1/schedules/s?version=99", "", http.StatusConflict)
	require.JSONEq(t, `{"name": "s"}`, h.ask("DELETE /v1/schedules/s", "", http.StatusOK))
	h.ask("DELETE /v1/schedules/s", "", http.StatusNotFound)
}

// An absent member of a limit means the default, and null means unlimited.
func TestCallsOfALimit(t *testing.T) {
	h := newTables(t)
	put := func(body string, status int) (v contract.Limit) {
		require.NoError(t, json.Unmarshal([]byte(h.ask("PUT /v1/limits/a%2Fb", body, status)), &v))
		return v
	}
	fresh := put(`{}`, http.StatusCreated)
	require.Equal(t, contract.NewLimit("a/b").Capacity, fresh.Capacity)
	v := put(`{"key":"a/b","capacity":null,"rate":3,"per":"1.5s","scope":"dispatcher","on_retry":"wait"}`, http.StatusOK)
	require.JSONEq(t, fmt.Sprintf(`{"key":"a/b","capacity":null,"rate":3,"per":"1.5s","scope":"dispatcher","on_retry":"wait","version":%d}`,
		v.Version),
		h.ask("GET /v1/limits/a%2Fb", "", http.StatusOK))
	put(fmt.Sprintf(`{"rate":null,"version":%d}`, v.Version), http.StatusOK)
	put(fmt.Sprintf(`{"version":%d}`, v.Version), http.StatusConflict)
	for body, says := range map[string]string{
		`{"version":-2}`: "must be the version that was read", `{"version":"3"}`: "version cannot be the JSON string: write a whole number",
		`{"key":"b"}`: "as in the path", `{"color":1}`: "there is no field",
		`{"capacity":"2"}`: "capacity cannot be the JSON string: write a whole number",
		`{"capacity":1.5}`: "capacity cannot be the JSON number 1.5",
		`{"rate":0}`:       "rate 0: must be from 1", `{"per":1}`: "per cannot be the JSON number",
		`{"per":"1"}`: "must be a number with a unit", `{"scope":1}`: "scope cannot be the JSON number: write a string", `{"scope":"x"}`: "scope",
	} {
		require.Contains(t, h.ask("PUT /v1/limits/a%2Fb", body, http.StatusBadRequest), says, body)
	}
	require.JSONEq(t, `{"key": "a/b"}`, h.ask("DELETE /v1/limits/a%2Fb", "", http.StatusOK))
	h.ask("GET /v1/limits/a%2Fb", "", http.StatusNotFound)
	require.Contains(t, h.ask("GET /v1/keys/a", "", http.StatusOK), `"default":true`)
	h.ask("GET /v1/keys/a*", "", http.StatusBadRequest)
}

// A user who may not use all types neither reads keys nor edits limits.
func TestLimitsAndKeysAreForCallersOfAllTypes(t *testing.T) {
	h := newTables(t)
	h.ask("PUT /v1/limits/tenant:*", `{}`, http.StatusCreated)
	h.withoutPayroll()
	for call, status := range map[string]int{
		"GET /v1/limits": 200, "GET /v1/limits/tenant:*": 200, "PUT /v1/limits/k": 403,
		"DELETE /v1/limits/tenant:*": 403, "GET /v1/keys": 403, "GET /v1/keys/a": 403,
	} {
		body := ""
		if strings.HasPrefix(call, "PUT") {
			body = `{}`
		}
		h.ask(call, body, status)
	}
}

// Members of a batch may have any type, so only a caller of all types cancels or retries them. The types of the nodes of a flow
// are known, and those of the jobs whose results it takes.
func TestBatchesAndFlowsAreForCallersOfTheirTypes(t *testing.T) {
	h := newTables(t)
	job := func(typ string) (id int64) {
		require.NoError(t, h.f.db.QueryRow(t.Context(), `INSERT INTO dispatcherd.jobs (type) VALUES ($1) RETURNING id`, typ).Scan(&id))
		return id
	}
	pdf, payroll := job("pdf"), job("payroll")
	batch := h.id("/v1/batches", `{"callback": {"type": "pdf"}, "name": "n"}`)
	plain := h.id("/v1/batches", `{}`)
	secret := h.id("/v1/batches", `{"callback": {"type": "payroll"}}`)
	mixed := h.id("/v1/flows", `{"nodes": [{"name": "a", "type": "pdf"}, {"name": "b", "type": "payroll", "after": ["a"]}]}`)
	called := h.id("/v1/flows", `{"callback": {"type": "pdf"}, "nodes": [{"name": "a", "type": "payroll"}]}`)
	own := h.id("/v1/flows", `{"callback": {"type": "pdf"}, "nodes": [{"name": "a", "type": "pdf"}]}`)
	h.withoutPayroll()
	for _, c := range []struct {
		call, body string
		status     int
	}{
		{"GET /v1/batches", "", 200},
		{"GET /v1/batches/%[1]d", "", 200},
		{"GET /v1/batches/%[3]d", "", 403},
		{"DELETE /v1/batches/%[1]d", "", 403},
		{"POST /v1/batches/%[1]d/retry", "", 403},
		{"POST /v1/batches/%[1]d/repair", "", 200},
		{"GET /v1/batches/%[4]d", "", 200},
		{"GET /v1/flows/%[4]d", "", 403},
		{"GET /v1/flows/%[6]d", "", 200},
		{"GET /v1/flows/%[1]d", "", 404},
		{"DELETE /v1/batches/%[4]d", "", 403},
		{"POST /v1/batches/%[4]d/retry", "", 403},
		{"POST /v1/batches", `{"callback":{"type":"payroll"}}`, 403},
		{"POST /v1/batches", `{"callback":{"type":"pdf"},"parent":%[3]d}`, 403},
		{"POST /v1/batches", `{"callback":{"type":"pdf"},"parent":%[1]d}`, 201},
		{"POST /v1/batches/%[1]d/seal", "", 200},
		{"DELETE /v1/jobs/%[7]d", "", 202},
		{"DELETE /v1/jobs/%[1]d", "", 403},
		{"DELETE /v1/jobs/%[2]d", "", 202}, // its batch has no callback
		{"DELETE /v1/jobs/%[5]d", "", 403},
		{"DELETE /v1/jobs/%[6]d", "", 202},
		{"POST /v1/flows", `{"nodes":[{"name":"a","type":"pdf","after":[%[7]d]}]}`, 201},
		{"POST /v1/flows", `{"nodes":[{"name":"a","type":"pdf"},{"name":"b","type":"payroll"}]}`, 403},
		{"POST /v1/flows", `{"callback":{"type":"payroll"},"nodes":[{"name":"a","type":"pdf"}]}`, 403},
		{"POST /v1/flows", `{"nodes":[{"name":"a","type":"pdf","after":[%[7]d,%[8]d]}]}`, 403},
		{"POST /v1/flows", `{"nodes":[{"name":"a","type":"pdf","after":[0.9e1]}]}`, 400},
		{"POST /v1/flows", `{"nodes":[{"name":"a","type":"pdf","after":9}]}`, 400},
		{"POST /v1/flows", `{"nodes":[{"name":"a","type":"pdf","type":5}]}`, 400},
		{"POST /v1/flows", `{"nodes":[{"name":"a","type":"pdf"}],"nodes":[{"name":"a","type":"payroll"}]}`, 403},
	} {
		fill := func(text string) string {
			if !strings.Contains(text, "%[") {
				return text
			}
			return fmt.Sprintf(text+"%.[9]s", batch, plain, secret, mixed, called, own, pdf, payroll, "")
		}
		h.ask(fill(c.call), fill(c.body), c.status)
	}
}

// The life of a batch and a flow.
func TestCallsOfBatchesAndFlows(t *testing.T) {
	h := newTables(t)
	batch := h.id("/v1/batches", `{"callback": null, "name": "nightly"}`)
	for body, says := range map[string]string{
		`{"name":""}`: "must have 1 to 128 bytes, or be left out", `{"run_when":"never"}`: "run_when", `{"color":"red"}`: "there is no field",
		`[]`: "write a JSON object", `{"callback":5}`: "the callback is a JSON object",
	} {
		require.Contains(t, h.ask("POST /v1/batches", body, http.StatusBadRequest), says, body)
	}
	h.exec(`INSERT INTO dispatcherd.jobs (type, parent) VALUES ('pdf', $1)`, batch)
	one := fmt.Sprintf("/v1/batches/%d", batch)
	require.Contains(t, h.ask("GET "+one, "", http.StatusOK), `"state":"open"`)
	require.JSONEq(t, `{"open": 1, "done": 0, "failed": 0, "cancelled": 0, "fired": false}`, h.ask("POST "+one+"/seal", "", http.StatusOK))
	require.Contains(t, h.ask("POST "+one+"/repair", "", http.StatusOK), `"state":"sealed"`)
	require.JSONEq(t, `{"cancelled": 1, "running": 0}`, h.ask("DELETE "+one, "", http.StatusOK))
	h.ask("GET /v1/batches/1000000", "", http.StatusNotFound)
	require.Contains(t, h.ask("POST /v1/flows", `{"nodes":[{"name":"a","type":"pdf","after":["a"]}]}`, http.StatusBadRequest), `\"a\"`)
	rec := ask(h.Handler, "POST", "/v1/flows", `{"nodes":[{"name":"load","type":"pdf"}]}`)
	require.Equal(t, http.StatusOK, ask(h.Handler, "GET", rec.Header().Get("Location"), "").Code)
}

// These requests are no operations that a key makes safe to repeat. Ignoring the key could insert the jobs twice.
func TestOnlyRequestsTakeAnIdempotencyKey(t *testing.T) {
	h := newTables(t)
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v1/flows", `{"nodes":[{"name":"a","type":"pdf"}]}`},
		{"POST", "/v1/batches", `{}`},
		{"POST", "/v1/fanouts", `{"type":"pdf","items":[1]}`},
		{"PUT", "/v1/limits/k", `{"capacity":2}`},
		{"PUT", "/v1/schedules/s", `{"spec":"@daily","type":"pdf"}`},
	} {
		rec := httptest.NewRecorder()
		r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "k")
		h.ServeHTTP(rec, r)
		require.Equal(t, 400, rec.Code, "%s: %s", c.path, rec.Body)
		require.Contains(t, rec.Body.String(), c.path+" takes no Idempotency-Key, so a repeated call is executed again; POST /v1/requests")
	}
}

// A waiting job may be the callback of a batch, with which members of any type are cancelled.
func TestOnlyCallersOfAllTypesCancelWaitingJobsByAFilter(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	tables{h, t, f}.withoutPayroll()
	rec := ask(h, "POST", "/v1/jobs/cancel?dry_run=true&type=pdf&status=pending,waiting", "")
	require.Equal(t, 403, rec.Code)
	require.Contains(t, rec.Body.String(), "not all types")
	require.Equal(t, 200, ask(h, "POST", "/v1/jobs/cancel?dry_run=true&type=pdf", "").Code)
	require.Equal(t, []dispatcherd.Status{dispatcherd.Pending, dispatcherd.Running}, f.filter.Statuses)
	h.PermitAll = func(workerproto.Peer) string { return "" }
	ask(h, "POST", "/v1/jobs/cancel?dry_run=true&type=pdf", "")
	require.Equal(t, contract.CancelJobs.Statuses(), f.filter.Statuses)
}

// A caller learns the id of the job that has its unique key.
func TestInsertOfATakenUniqueKeyAnswersWithTheJobThatHasIt(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	rec := ask(h, "POST", "/v1/jobs", `{"type":"pdf","unique_key":"taken"}`)
	require.Equal(t, 200, rec.Code)
	require.JSONEq(t, `{"id":17,"existing":true}`, rec.Body.String())
	rec = ask(h, "POST", "/v1/jobs", `{"type":"pdf","unique_key":"free"}`)
	require.Equal(t, 201, rec.Code)
	require.NotContains(t, rec.Body.String(), "existing")
}

// Without Postgres the workers of other dispatchers are unknown, so the answer does not say that no worker is connected.
func TestDrainWithoutPostgresDoesNotSayThatTheWorkerIsMissing(t *testing.T) {
	h := newTables(t)
	h.ask("POST /v1/workers/w/drain", `{}`, http.StatusNotFound)
	h.f.db.Close()
	require.NotContains(t, h.ask("POST /v1/workers/w/drain", `{}`, http.StatusInternalServerError), "connected")
}
