package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
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

func TestEveryReferenceResolvesAndEveryOperationIsNamed(t *testing.T) {
	d := described(t)
	require.Equal(t, "3.1.0", d.OpenAPI)
	seen := map[string]bool{}
	for route, item := range d.Paths {
		for method, op := range item {
			require.NotEmpty(t, op.Summary)
			require.False(t, seen[op.OperationID], op.OperationID)
			seen[op.OperationID] = true
			require.NotEmpty(t, op.Responses)
			for status, response := range op.Responses {
				require.NotEmpty(t, response.Description, "%s %s: %s", method, route, status)
			}
		}
	}
	for _, ref := range regexp.MustCompile(`"\$ref": ?"#/components/schemas/(\w+)"`).FindAllSubmatch(openAPI, -1) {
		require.Contains(t, d.Components.Schemas, string(ref[1]))
	}
	require.Empty(t, regexp.MustCompile(`"description": "[^"]*(\bnil\b|\[[A-Z]|"" = )[^"]*`).FindAllString(string(openAPI), -1),
		"comments are also for readers of the document")
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
		{"GET", "/v1/requests?cursor=1", "/v1/requests", "", "", "400"},
		{"GET", "/v1/requests/none", "/v1/requests/{id}", "", "", "404"},
		{"POST", "/v1/jobs", "/v1/jobs", `{"type":"pdf"}`, "", "201"},
		{"POST", "/v1/jobs", "/v1/jobs", "{}\n", rest.Lines, "422"},
		{"POST", "/v1/jobs?on_error=skip", "/v1/jobs", "{}\n", rest.Lines, "201"},
		{"POST", "/v1/jobs", "/v1/jobs", `x`, "text/csv", "415"},
		{"GET", "/v1/jobs/17", "/v1/jobs/{id}", "", "", "200"},
		{"GET", "/v1/jobs/404", "/v1/jobs/{id}", "", "", "404"},
		{"GET", "/v1/jobs/x", "/v1/jobs/{id}", "", "", "404"},
		{"DELETE", "/v1/jobs/17", "/v1/jobs/{id}", "", "", "202"},
		{"GET", "/v1/jobs/17/why", "/v1/jobs/{id}/why", "", "", "200"},
		{"GET", "/v1/jobs/17/events", "/v1/jobs/{id}/events", "", "", "200"},
		{"GET", "/v1/jobs?type=pdf&status=failed,done&newer_than=2026-01-01T00:00:00Z&limit=5", "/v1/jobs", "", "", "200"},
		{"GET", "/v1/jobs?status=lost", "/v1/jobs", "", "", "400"},
		{"POST", "/v1/jobs/17/retry", "/v1/jobs/{id}/retry", "", "", "200"},
		{"POST", "/v1/jobs/404/retry", "/v1/jobs/{id}/retry", "", "", "404"},
		{"POST", "/v1/jobs/retry?status=failed&dry_run=true", "/v1/jobs/retry", "", "", "200"},
		{"POST", "/v1/jobs/retry?status=done&dry_run=true", "/v1/jobs/retry", "", "", "400"},
		{"POST", "/v1/jobs/cancel?type=pdf&expect=2", "/v1/jobs/cancel", "", "", "200"},
		{"POST", "/v1/jobs/cancel?type=pdf&expect=3", "/v1/jobs/cancel", "", "", "409"},
		{"POST", "/v1/jobs", "/v1/jobs", `{"type":"pdf","unique_key":"taken"}`, "", "200"},
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
	for _, k := range rest.Kinds {
		kinds[rest.Namespace+k.Name] = k.Status
	}
	named := map[string]bool{}
	for _, item := range described(t).Paths {
		for _, op := range item {
			for status, res := range op.Responses {
				for _, name := range regexp.MustCompile(rest.Namespace+`[a-z-]+`).FindAllString(res.Description, -1) {
					require.Equal(t, status, strconv.Itoa(kinds[name]), name)
					named[name] = true
				}
			}
		}
	}
	for _, k := range rest.Kinds {
		switch k {
		case rest.MethodNotAllowed, rest.ForeignOrigin: // of every path
		default:
			require.True(t, named[rest.Namespace+k.Name], k.Name)
		}
	}
}

// The page names lists, probes and metrics by their paths.
func TestEveryCallIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/api.md")
	require.NoError(t, err)
	for path, item := range described(t).Paths {
		for method := range item {
			named := bytes.Contains(text, []byte("`"+strings.ToUpper(method)+" "+path+"`"))
			list := method == "get" && bytes.Contains(text, []byte("`"+path+"`"))
			require.True(t, named || list, "%s %s", method, path)
		}
	}
}

func TestEveryProblemIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/api.md")
	require.NoError(t, err)
	names := map[string]bool{}
	for _, k := range rest.Kinds {
		require.False(t, names[k.Name])
		names[k.Name] = true
		require.Regexp(t, fmt.Sprintf("\\| `%s` \\| %d \\|", k.Name, k.Status), string(text))
	}
}
