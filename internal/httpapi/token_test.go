package httpapi

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"

	"github.com/stretchr/testify/require"
)

// Callers with different tokens do not share a request, even if they use the same key and
// body. So a guessed key does not find the request of another token.
func TestIdempotencyKeyBelongsToOneToken(t *testing.T) {
	h, f, _ := testHandler(t, nil)
	var list strings.Builder
	for _, name := range []string{"anna", "ben"} {
		fmt.Fprintf(&list, "%s %x\n", name, sha256.Sum256([]byte("token of "+name)))
	}
	tokens, err := ReadTokens(strings.NewReader(list.String()))
	require.NoError(t, err)
	guarded := guardedBy(h, tokens)
	asks := func(name string) (location string) {
		r := httptest.NewRequest(http.MethodPost, "/v1/requests", strings.NewReader(`{"type":"pdf"}`))
		r.Header.Set("Authorization", "Bearer token of "+name)
		r.Header.Set("Idempotency-Key", "order-1")
		r.Header.Set("Prefer", "respond-async")
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, r)
		require.Equal(t, http.StatusAccepted, w.Code, w.Body)
		return w.Header().Get("Location")
	}
	first := asks("anna")
	f.answer(<-f.submitted, ondemand.Answer{Kind: ondemand.Done, Payload: []byte(`"for anna"`)})
	require.Equal(t, first, asks("anna"))
	require.Empty(t, f.submitted)
	require.NotEqual(t, first, asks("ben"))
	require.Len(t, f.submitted, 1)
}

// Of all routes only the probes work without a token.
func TestOnlyProbesWorkWithoutAToken(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	tokens, err := ReadTokens(strings.NewReader("anna " + strings.Repeat("00", sha256.Size)))
	require.NoError(t, err)
	guarded := guardedBy(h, tokens)
	open := map[string]bool{"/livez": true, "/readyz": true, "/startupz": true}
	for _, route := range h.routes {
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, httptest.NewRequest(route.Method, strings.ReplaceAll(route.Path, "{id}", "7"), http.NoBody))
		require.Equal(t, open[route.Path], w.Code != http.StatusUnauthorized, route.Path)
		delete(open, route.Path)
	}
	require.Empty(t, open)
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, io.EOF
}

// A caller without a valid token makes the daemon read no body.
func TestTokenIsCheckedBeforeTheBody(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	tokens, err := ReadTokens(strings.NewReader("ben 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n"))
	require.NoError(t, err)
	guarded := guardedBy(h, tokens)
	for _, token := range []string{"", "Bearer wrong", "Basic secret"} {
		for _, path := range []string{"/v1/jobs", "/v1/requests", "/v1/schedules/s"} {
			req := httptest.NewRequest(http.MethodPost, path, unread{t})
			req.Host = "d"
			if token != "" {
				req.Header.Set("Authorization", token)
			}
			rec := httptest.NewRecorder()
			guarded.ServeHTTP(rec, req)
			require.Equal(t, http.StatusUnauthorized, rec.Code, "%q %s", token, path)
		}
	}
}

// A file of tokens without a line for a certificate refuses it, also if the line was the last one of a certificate.
func TestCertificateWithoutALineIsRefused(t *testing.T) {
	const token = "ben 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n"
	for text, want := range map[string]Rights{
		"": 0, token: 0, token + "cert:gpu-2 -\n": 0, token + "cert:gpu-1 - worker\n": MayWork, token + "cert:gpu-1 -\n": AllRights,
		token + "cert:* - read\n": MayRead, "cert:* -\ncert:gpu-1 - worker\n": MayWork,
	} {
		tokens, err := ReadTokens(strings.NewReader(text))
		require.NoError(t, err)
		holder, listed := tokens.Holder("cert:gpu-1")
		require.Equal(t, want, holder.Rights, text)
		require.Equal(t, want != 0, listed, text)
		require.Equal(t, "gpu-1", holder.Name)
	}
	holder, listed := Tokens(nil).Holder("cert:gpu-1")
	require.True(t, listed, "there is no file")
	require.Equal(t, Holder{"gpu-1", AllRights}, holder)
}

// dataOfJobs are members of answers whose texts are data of jobs, or may quote them.
var dataOfJobs = []string{"payload", "result", "progress", "log", "errors", "error", "last_error", "aside", "set_aside", "held"}

// reveal gives a value all of these members, and reports whether it has one.
func reveal(v reflect.Value) (has bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.Type().Elem().Kind() == reflect.Struct {
			v.Set(reflect.New(v.Type().Elem()))
			has = reveal(v.Elem())
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		has = reveal(v.Index(0))
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch data := slices.Contains(dataOfJobs, name); {
			case !field.IsExported():
			case data && field.Type.Kind() == reflect.String:
				v.Field(i).SetString("secret")
				has = true
			case data && field.Type == reflect.TypeFor[json.RawMessage]():
				v.Field(i).SetBytes([]byte(`"secret"`))
				has = true
			default:
				has = reveal(v.Field(i)) || has
			}
		}
	default:
	}
	return has
}

// Each answer with data of jobs, and with errors that may quote it, is concealed from callers without the role payload. The error of a
// schedule is not that of a job, its list has no payload, and the answer to a change of a schedule has the payload that the caller sent.
func TestAnswersConcealDataOfJobs(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	concealed := map[string]bool{}
	for _, r := range h.routes {
		if r.Output == nil || r.Reveals || strings.HasPrefix(r.Path, "/v1/schedules") {
			continue
		}
		answer := reflect.New(r.Output)
		if !reveal(answer.Elem()) {
			continue
		}
		text, err := json.Marshal(answer.Interface())
		require.NoError(t, err)
		require.Contains(t, string(text), "secret", r.ID)
		require.Implements(t, (*contract.Confidential)(nil), answer.Interface(), r.ID)
		answer.Interface().(contract.Confidential).Conceal()
		text, err = json.Marshal(answer.Interface())
		require.NoError(t, err)
		require.NotContains(t, string(text), "secret", r.ID)
		concealed[r.ID] = true
	}
	for _, id := range []string{"get-job", "list-jobs", "explain-job", "get-flow", "get-batch", "list-batches", "repair-batch"} {
		require.True(t, concealed[id], id)
	}
	status := contract.Status{Alarms: []contract.Alarm{{Kind: contract.FlowSetAside, About: "flow 7", Text: "secret"}, {Text: "no slot"}}}
	status.Conceal()
	require.Equal(t, "flow 7 is set aside", status.Alarms[0].Text)
	require.Equal(t, "no slot", status.Alarms[1].Text)
}

// A filter by the text of errors would tell them to callers that may not read them.
func TestFilterByErrorNeedsTheRolePayload(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	line := func(name, role string) string {
		return fmt.Sprintf("%s %x %s\n", name, sha256.Sum256([]byte(name)), role)
	}
	tokens, err := ReadTokens(strings.NewReader(line("r", "read") + line("o", "operate") + line("p", "payload") + line("a", "")))
	require.NoError(t, err)
	guarded := guardedBy(h, tokens)
	for _, path := range []string{"GET /v1/jobs", "POST /v1/jobs/cancel", "POST /v1/jobs/retry"} {
		for token, allowed := range map[string]bool{"r": false, "o": false, "p": path == "GET /v1/jobs", "a": true} {
			method, path, _ := strings.Cut(path, " ")
			query := "?error=card"
			if method == "POST" {
				query += "&dry_run=true"
			}
			r := httptest.NewRequest(method, path+query, http.NoBody)
			r.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			guarded.ServeHTTP(w, r)
			require.Equal(t, allowed, w.Code == http.StatusOK, "%s %s: %s", token, path, w.Body)
			if token == "o" {
				require.Contains(t, w.Body.String(), "token:o lacks the role payload, which the parameter error needs")
			}
		}
	}
}
