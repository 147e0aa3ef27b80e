package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"

	"github.com/stretchr/testify/require"
)

// description is what the test reads of the OpenAPI document.
type description struct {
	OpenAPI string
	Paths   map[string]map[string]struct {
		OperationID string
		Summary     string
		Parameters  []struct{ Name, In string }
		Responses   map[string]struct {
			Description string
			Content     map[string]struct{ Schema json.RawMessage }
		}
	}
	Components struct{ Schemas map[string]json.RawMessage }
}

func described(t *testing.T) (d description) {
	t.Helper()
	require.NoError(t, json.Unmarshal(openAPI, &d))
	return d
}

func TestEveryRouteIsDescribedAndEveryReferenceResolves(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	d := described(t)
	require.Equal(t, "3.1.0", d.OpenAPI)
	seen := map[string]bool{}
	for _, r := range h.routes {
		op, there := d.Paths[r.path][strings.ToLower(r.method)]
		require.True(t, there, "%s %s", r.method, r.path)
		require.NotEmpty(t, op.Summary)
		require.False(t, seen[op.OperationID], op.OperationID)
		seen[op.OperationID] = true
		require.NotEmpty(t, op.Responses)
		var query []string
		for _, p := range op.Parameters {
			if p.In == "query" {
				query = append(query, p.Name)
			}
		}
		require.Equal(t, r.query, query, "%s %s", r.method, r.path)
	}
	operations := 0
	for _, item := range d.Paths {
		operations += len(item)
	}
	require.Len(t, h.routes, operations, "nothing else is described")
	for _, ref := range regexp.MustCompile(`"\$ref":"#/components/schemas/(\w+)"`).FindAllSubmatch(openAPI, -1) {
		require.Contains(t, d.Components.Schemas, string(ref[1]))
	}
}

// TestAnswersAreAsDescribed sends real requests and compares each response with the
// schema of its operation and status.
func TestAnswersAreAsDescribed(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	go func() {
		for id := range f.submitted {
			f.answer(id, ondemand.Answer{Kind: ondemand.Done, Payload: []byte(`{"ok":true}`), Worker: "w"})
		}
	}()
	defer close(f.submitted)
	d := described(t)
	for _, c := range []struct{ method, path, template, body, kind, status string }{
		{"POST", "/v1/requests", "/v1/requests", `{"type":"pdf"}`, "", "200"},
		{"POST", "/v1/requests", "/v1/requests", `{"type":""}`, "", "400"},
		{"POST", "/v1/fanouts", "/v1/fanouts", `{"type":"pdf","items":[1,2,3]}`, "", "200"},
		{"POST", "/v1/fanouts", "/v1/fanouts", `{"type":"pdf","items":[1,2,3],"durable":true}`, "", "202"},
		{"POST", "/v1/fanouts", "/v1/fanouts", `{"type":"none","items":[1]}`, "", "503"},
		{"GET", "/v1/requests?type=pdf&limit=1", "/v1/requests", "", "", "200"},
		{"GET", "/v1/requests?after=1", "/v1/requests", "", "", "400"},
		{"GET", "/v1/requests/none", "/v1/requests/{id}", "", "", "404"},
		{"POST", "/v1/jobs", "/v1/jobs", `{"type":"pdf"}`, "", "201"},
		{"POST", "/v1/jobs", "/v1/jobs", "{}\n", mediaLines, "422"},
		{"POST", "/v1/jobs?on_error=skip", "/v1/jobs", "{}\n", mediaLines, "201"},
		{"POST", "/v1/jobs", "/v1/jobs", `x`, "text/csv", "415"},
		{"GET", "/v1/jobs/17", "/v1/jobs/{id}", "", "", "200"},
		{"GET", "/v1/jobs/404", "/v1/jobs/{id}", "", "", "404"},
		{"GET", "/v1/jobs/x", "/v1/jobs/{id}", "", "", "404"},
		{"DELETE", "/v1/jobs/17", "/v1/jobs/{id}", "", "", "202"},
		{"GET", "/v1/jobs/17/why", "/v1/jobs/{id}/why", "", "", "200"},
		{"GET", "/v1/jobs/17/events", "/v1/jobs/{id}/events", "", "", "200"},
		{"GET", "/v1/jobs?type=pdf&status=failed,done&since=2026-01-01T00:00:00Z&limit=5", "/v1/jobs", "", "", "200"},
		{"GET", "/v1/jobs?status=lost", "/v1/jobs", "", "", "400"},
		{"POST", "/v1/jobs/17/retry", "/v1/jobs/{id}/retry", "", "", "200"},
		{"POST", "/v1/jobs/404/retry", "/v1/jobs/{id}/retry", "", "", "404"},
		{"POST", "/v1/retry?status=failed", "/v1/retry", "", "", "200"},
		{"POST", "/v1/retry?status=done", "/v1/retry", "", "", "400"},
		{"POST", "/v1/cancel?type=pdf&count=2", "/v1/cancel", "", "", "200"},
		{"POST", "/v1/cancel?type=pdf&count=3", "/v1/cancel", "", "", "409"},
		{"GET", "/v1/schedules?limit=2", "/v1/schedules", "", "", "200"},
		{"GET", "/v1/schedules?limit=0", "/v1/schedules", "", "", "400"},
		{"GET", "/v1/schedules/pdf", "/v1/schedules/{name}", "", "", "200"},
		{"GET", "/v1/schedules/none", "/v1/schedules/{name}", "", "", "404"},
		{"PUT", "/v1/schedules/pdf", "/v1/schedules/{name}", `{"type":"pdf","spec":"@daily"}`, "", "200"},
		{"PUT", "/v1/schedules/pdf", "/v1/schedules/{name}", `{"type":"pdf","spec":"@daily","priority":1}`, "", "201"},
		{"PUT", "/v1/schedules/pdf", "/v1/schedules/{name}", `{"type":"pdf","color":"red"}`, "", "400"},
		{"PUT", "/v1/schedules/pdf", "/v1/schedules/{name}", `{"type":"pdf","name":"other"}`, "", "400"},
		{"PUT", "/v1/schedules/pdf", "/v1/schedules/{name}", `{"type":"pdf","every":10}`, "", "400"},
		{"PUT", "/v1/schedules/pdf", "/v1/schedules/{name}", `[]`, "", "400"},
		{"PUT", "/v1/schedules/pdf", "/v1/schedules/{name}", `x`, "text/csv", "415"},
		{"DELETE", "/v1/schedules/pdf", "/v1/schedules/{name}", "", "", "200"},
		{"POST", "/v1/schedules/pdf/pause", "/v1/schedules/{name}/pause", "", "", "200"},
		{"POST", "/v1/schedules/pdf/resume", "/v1/schedules/{name}/resume", "", "", "200"},
		{"POST", "/v1/schedules/pdf/run?key=1", "/v1/schedules/{name}/run", "", "", "200"},
		{"POST", "/v1/schedules/pdf/run?key=1&force=perhaps", "/v1/schedules/{name}/run", "", "", "400"},
		{"POST", "/v1/schedules/paused/run?key=1", "/v1/schedules/{name}/run", "", "", "409"},
		{"POST", "/v1/schedules/pdf/backfill?from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z", "/v1/schedules/{name}/backfill", "", "", "200"},
		{"POST", "/v1/schedules/pdf/backfill?from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z&dry_run=true", "/v1/schedules/{name}/backfill", "", "", "200"},
		{"POST", "/v1/schedules/pdf/backfill?from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z&dry_run=perhaps", "/v1/schedules/{name}/backfill", "", "", "400"},
		{"POST", "/v1/schedules/pdf/backfill?from=monday", "/v1/schedules/{name}/backfill", "", "", "400"},
		{"GET", "/v1/schedules/pdf/next?count=3", "/v1/schedules/{name}/next", "", "", "200"},
		{"GET", "/v1/schedules/pdf/ticks?limit=3", "/v1/schedules/{name}/ticks", "", "", "200"},
		{"GET", "/v1/schedules/pdf/ticks?before=x", "/v1/schedules/{name}/ticks", "", "", "400"},
		{"GET", "/v1/limits?limit=1", "/v1/limits", "", "", "200"},
		{"GET", "/v1/limits?limit=0", "/v1/limits", "", "", "400"},
		{"GET", "/v1/limits/tenant:*", "/v1/limits/{key}", "", "", "200"},
		{"GET", "/v1/limits/none", "/v1/limits/{key}", "", "", "404"},
		{"PUT", "/v1/limits/k", "/v1/limits/{key}", `{"capacity":null}`, "", "200"},
		{"PUT", "/v1/limits/k", "/v1/limits/{key}", `{"rate":3,"per":"1s"}`, "", "201"},
		{"PUT", "/v1/limits/k", "/v1/limits/{key}", `{"color":"red"}`, "", "400"},
		{"PUT", "/v1/limits/k", "/v1/limits/{key}", `{"capacity":99}`, "", "409"},
		{"PUT", "/v1/limits/k", "/v1/limits/{key}", `x`, "text/csv", "415"},
		{"DELETE", "/v1/limits/a%2Fb", "/v1/limits/{key}", "", "", "200"},
		{"DELETE", "/v1/limits/none", "/v1/limits/{key}", "", "", "404"},
		{"GET", "/v1/keys", "/v1/keys", "", "", "200"},
		{"GET", "/v1/keys/a", "/v1/keys/{key}", "", "", "200"},
		{"GET", "/v1/keys/a*", "/v1/keys/{key}", "", "", "400"},
		{"POST", "/v1/jobs", "/v1/jobs", `{"type":"pdf","unique_key":"taken"}`, "", "200"},
		{"GET", "/v1/batches", "/v1/batches", "", "", "200"},
		{"GET", "/v1/batches?kind=set", "/v1/batches", "", "", "400"},
		{"GET", "/v1/batches?state=lost", "/v1/batches", "", "", "400"},
		{"GET", "/v1/batches?before=x", "/v1/batches", "", "", "400"},
		{"GET", "/v1/batches?limit=0", "/v1/batches", "", "", "400"},
		{"POST", "/v1/batches", "/v1/batches", `{"callback":null,"name":"n"}`, "", "201"},
		{"POST", "/v1/batches", "/v1/batches", `{"run_when":"never"}`, "", "400"},
		{"POST", "/v1/batches", "/v1/batches", `{"color":"red"}`, "", "400"},
		{"POST", "/v1/batches", "/v1/batches", `[]`, "", "400"},
		{"POST", "/v1/batches", "/v1/batches", `x`, "text/csv", "415"},
		{"GET", "/v1/batches/17", "/v1/batches/{id}", "", "", "200"},
		{"GET", "/v1/batches/404", "/v1/batches/{id}", "", "", "404"},
		{"GET", "/v1/batches/x", "/v1/batches/{id}", "", "", "404"},
		{"DELETE", "/v1/batches/17", "/v1/batches/{id}", "", "", "202"},
		{"DELETE", "/v1/batches/20", "/v1/batches/{id}", "", "", "200"},
		{"POST", "/v1/batches/17/seal", "/v1/batches/{id}/seal", "", "", "200"},
		{"POST", "/v1/batches/18/seal", "/v1/batches/{id}/seal", "", "", "409"},
		{"POST", "/v1/batches/17/retry", "/v1/batches/{id}/retry", "", "", "200"},
		{"POST", "/v1/batches/17/repair", "/v1/batches/{id}/repair", "", "", "200"},
		{"POST", "/v1/flows", "/v1/flows", `{"nodes":[{"name":"load","type":"pdf"}]}`, "", "201"},
		{"POST", "/v1/flows", "/v1/flows", `{"name":"cycle","nodes":[]}`, "", "400"},
		{"POST", "/v1/flows", "/v1/flows", `x`, "text/csv", "415"},
		{"GET", "/v1/flows/20", "/v1/flows/{id}", "", "", "200"},
		{"GET", "/v1/flows/17", "/v1/flows/{id}", "", "", "404"},
		{"GET", "/v1/dispatchers", "/v1/dispatchers", "", "", "200"},
		{"GET", "/v1/workers", "/v1/workers", "", "", "200"},
		{"GET", "/v1/slots", "/v1/slots", "", "", "200"},
		{"GET", "/v1/types", "/v1/types", "", "", "200"},
		{"GET", "/livez", "/livez", "", "", "200"},
		{"GET", "/readyz", "/readyz", "", "", "503"},
		{"GET", "/readyz?exclude=postgres", "/readyz", "", "", "200"},
		{"GET", "/readyz?exclude=postgres&exclude=postgers", "/readyz", "", "", "400"},
		{"GET", "/openapi.json", "/openapi.json", "", "", "200"},
	} {
		req := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
		if c.kind != "" {
			req.Header.Set("Content-Type", c.kind)
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		require.Equal(t, c.status, strconv.Itoa(rec.Code), "%s %s: %s", c.method, c.path, rec.Body)
		res, there := d.Paths[c.template][strings.ToLower(c.method)].Responses[c.status]
		require.True(t, there, "%s %s: %s is not described", c.method, c.path, c.status)
		media, _, _ := strings.Cut(rec.Header().Get("Content-Type"), ";")
		content, there := res.Content[media]
		require.True(t, there, "%s %s: %s is not described", c.method, c.path, media)
		if strings.HasSuffix(media, "json") {
			holdsSchema(t, content.Schema, rec.Body.Bytes())
		}
	}
}

// holdsSchema checks names, types and required members of an answer against the schemas of
// the document that was served.
func holdsSchema(t *testing.T, schema json.RawMessage, body []byte) {
	t.Helper()
	var s, all any
	require.NoError(t, json.Unmarshal(schema, &s))
	var doc map[string]any
	require.NoError(t, json.Unmarshal(openAPI, &doc))
	all = doc["components"].(map[string]any)["schemas"]
	var v any
	require.NoError(t, json.Unmarshal(body, &v))
	require.Empty(t, violations(all.(map[string]any), s.(map[string]any), v, "answer"), "%s", body)
}

func violations(all, s map[string]any, v any, at string) (found []string) {
	if ref, ok := s["$ref"].(string); ok {
		s = all[ref[strings.LastIndex(ref, "/")+1:]].(map[string]any)
	}
	if either, ok := s["oneOf"].([]any); ok {
		for _, e := range either {
			if len(violations(all, e.(map[string]any), v, at)) == 0 {
				return nil
			}
		}
		return []string{at + ": none of the alternatives"}
	}
	switch v := v.(type) {
	case map[string]any:
		properties, _ := s["properties"].(map[string]any)
		if properties == nil {
			return nil // anything goes
		}
		for name, inner := range v {
			p, there := properties[name].(map[string]any)
			if !there {
				found = append(found, at+"."+name+": not described")
				continue
			}
			found = append(found, violations(all, p, inner, at+"."+name)...)
		}
		required, _ := s["required"].([]any)
		for _, name := range required {
			if _, there := v[name.(string)]; !there {
				found = append(found, at+"."+name.(string)+": missing")
			}
		}
	case []any:
		if items, ok := s["items"].(map[string]any); ok {
			for _, inner := range v {
				found = append(found, violations(all, items, inner, at+"[]")...)
			}
		}
	default:
		if kind := s["type"]; kind != nil && !fits(kind, v) {
			found = append(found, at+": wrong type")
		}
	}
	return found
}

func fits(kind, v any) bool {
	if list, ok := kind.([]any); ok {
		for _, k := range list {
			if fits(k, v) {
				return true
			}
		}
		return false
	}
	switch v := v.(type) {
	case nil:
		return kind == "null"
	case string:
		return kind == "string"
	case bool:
		return kind == "boolean"
	case float64:
		return kind == "number" || kind == "integer" && v == float64(int64(v))
	}
	return false
}

// The description names each problem, and each problem that it names exists.
func TestDescribedProblemsAreThoseOfTheCode(t *testing.T) {
	kinds := map[string]int{}
	for _, k := range problem.Kinds {
		kinds[problem.Namespace+k.Name] = k.Status
	}
	named := map[string]bool{}
	for _, item := range described(t).Paths {
		for _, op := range item {
			for status, res := range op.Responses {
				for _, name := range regexp.MustCompile(problem.Namespace+`[a-z-]+`).FindAllString(res.Description, -1) {
					require.Equal(t, status, strconv.Itoa(kinds[name]), name)
					named[name] = true
				}
			}
		}
	}
	for _, k := range problem.Kinds {
		switch k {
		case problem.MethodNotAllowed, problem.ForeignOrigin: // of every path
		default:
			require.True(t, named[problem.Namespace+k.Name], k.Name)
		}
	}
}

func TestDescribedRequestHasTheFieldsThatAreRead(t *testing.T) {
	var schema struct{ Properties map[string]any }
	require.NoError(t, json.Unmarshal(described(t).Components.Schemas["RequestBody"], &schema))
	require.ElementsMatch(t, requestFields, slices.Collect(maps.Keys(schema.Properties)))
	schema.Properties = nil
	require.NoError(t, json.Unmarshal(described(t).Components.Schemas["FanOut"], &schema))
	require.ElementsMatch(t, fanOutFields, slices.Collect(maps.Keys(schema.Properties)))
}

func TestEveryProblemIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/api.md")
	require.NoError(t, err)
	names := map[string]bool{}
	for _, k := range problem.Kinds {
		require.False(t, names[k.Name])
		names[k.Name] = true
		require.Regexp(t, fmt.Sprintf("\\| `%s` \\| %d \\|", k.Name, k.Status), string(text))
	}
}
