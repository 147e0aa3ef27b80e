package httpapi

import (
	"context"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow/flowapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// fakeFlows are the batch 17, whose callback is a pdf, the sealed batch 18 without a callback, the ended batch 19 with one, the flow
// 20 with a pdf and a payroll, the flow 24 with a callback and the same nodes, and the flow 25 with a callback and a pdf.
type fakeFlows struct{}

func (*fake) Flows() flowapi.Tables { return fakeFlows{} }

func (f fakeFlows) As(string) flowapi.Table { return f }

func (fakeFlows) Types(_ context.Context, ids []int64) ([]string, error) {
	if slices.ContainsFunc(ids, func(id int64) bool { return id == 9 || id == 90 }) {
		return []string{"payroll"}, nil
	}
	return nil, nil
}

func (f fakeFlows) List(ctx context.Context, filter contract.BatchFilter) (list []contract.Batch, err error) {
	for _, id := range []dispatcherd.JobID{20, 18, 17} {
		b, _ := f.Get(ctx, id)
		if (filter.Kind == "" || filter.Kind == b.Kind) && (filter.Before == 0 || id < filter.Before) && len(list) < filter.Limit {
			list = append(list, b)
		}
	}
	return list, nil
}

func (fakeFlows) Get(_ context.Context, id dispatcherd.JobID) (b contract.Batch, err error) {
	at := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	b = contract.Batch{ID: id, Kind: contract.BatchKind, State: contract.BatchOpen, OpenedAt: at}
	switch id {
	case 17:
		b.Callback, b.RunWhen, b.CallbackType, b.CallbackStatus = true, contract.RunWhenEnded, "pdf", "waiting"
	case 18:
		b.Name, b.State, b.SealedAt, b.Open, b.Done, b.CancelledBy = "nightly", contract.BatchCancelled, &at, new(2), 1, "anna"
	case 19:
		b.Callback, b.CallbackType, b.EndedAt = true, "pdf", &at
	case 24, 25:
		b.Kind, b.State, b.Callback, b.CallbackType = contract.FlowKind, contract.BatchSealed, true, "pdf"
	case 20:
		b.Kind, b.State, b.SealedAt, b.EndedAt, b.Open = contract.FlowKind, contract.BatchEnded, &at, &at, new(0)
	default:
		err = problem.NotFound.Of("no batch has that id")
	}
	return b, err
}

func (f fakeFlows) Flow(ctx context.Context, id dispatcherd.JobID) (flow contract.Flow, err error) {
	if flow.Batch, err = f.Get(ctx, id); err == nil && flow.Kind != contract.FlowKind {
		err = problem.NotFound.Of("it is no flow")
	}
	at := flow.OpenedAt
	flow.Nodes = []contract.Node{
		{
			ID:         21,
			Name:       "load",
			Type:       "pdf",
			Status:     "failed",
			RunWhen:    contract.RunWhenDone,
			After:      []dispatcherd.JobID{},
			ReadyAt:    &at,
			StartedAt:  &at,
			FinishedAt: &at,
			Error:      "torn",
		},
		{
			ID:           22,
			Name:         "sum",
			Type:         "payroll",
			Status:       "cancelled",
			RunWhen:      contract.RunWhenDone,
			TakesResults: true,
			After:        []dispatcherd.JobID{21},
			Dependencies: 1,
		},
	}
	if id == 25 {
		flow.Nodes = flow.Nodes[:1]
	}
	return flow, err
}

func (fakeFlows) Open(_ context.Context, b contract.NewBatch) (dispatcherd.JobID, error) {
	if b.RunWhen == "never" {
		return 0, problem.InvalidRequest.Of("run_when must be done, ended or failed")
	}
	return 17, nil
}

func (f fakeFlows) Seal(_ context.Context, id dispatcherd.JobID) (contract.Sealed, error) {
	if id == 18 {
		return contract.Sealed{}, problem.Conflict.Of("it was cancelled")
	}
	return contract.Sealed{Open: 1, Done: 2}, nil
}

func (fakeFlows) InsertFlow(_ context.Context, document []byte) (contract.InsertedFlow, error) {
	if strings.Contains(string(document), "cycle") {
		return contract.InsertedFlow{}, problem.InvalidRequest.Of(`flow: node "a": depends on itself`)
	}
	return contract.InsertedFlow{ID: 20, Nodes: map[string]dispatcherd.JobID{"load": 21}}, nil
}

func (fakeFlows) Cancel(_ context.Context, id dispatcherd.JobID) (contract.CancelledTree, error) {
	return contract.CancelledTree{Cancelled: 2, Running: int(20 - id)}, nil
}

func (fakeFlows) Retry(context.Context, dispatcherd.JobID) (contract.RetriedTree, error) {
	return contract.RetriedTree{Changed: 2, Skipped: 1}, nil
}

func (fakeFlows) Repair(context.Context, dispatcherd.JobID) (int, error) { return 0, nil }

// respond returns the status and the body of an answer.
func respond(h *Handler, method, path, body string) (status int, text string) {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(method, path, strings.NewReader(body)))
	return rec.Code, rec.Body.String()
}

// withoutPayroll is an API whose callers may use all types but payroll.
func withoutPayroll(t *testing.T) (*Handler, *fake) {
	h, f, _ := testHandler(t, nil)
	h.Permit = func(_ workerproto.Peer, typ string) string {
		if typ == "payroll" {
			return "not payroll"
		}
		return ""
	}
	h.PermitAll = func(workerproto.Peer) string { return "not all types" }
	return h, f
}

// Members of a batch may have any type, so only a caller of all types cancels or retries them. The types of the nodes of a flow
// are known, and those of the jobs whose results it takes.
func TestBatchesAndFlowsAreForCallersOfTheirTypes(t *testing.T) {
	h, _ := withoutPayroll(t)
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/v1/batches", "", 200},
		{"GET", "/v1/batches/17", "", 200},
		{"POST", "/v1/batches/17/seal", "", 200},
		{"DELETE", "/v1/batches/17", "", 403},
		{"POST", "/v1/batches/17/retry", "", 403},
		{"POST", "/v1/batches/17/repair", "", 200},
		{"GET", "/v1/batches/20", "", 200},
		{"GET", "/v1/flows/20", "", 403},
		{"DELETE", "/v1/batches/20", "", 403},
		{"POST", "/v1/batches/20/retry", "", 403},
		{"POST", "/v1/batches", `{"callback":{"type":"pdf"}}`, 201},
		{"POST", "/v1/batches", `{"callback":{"type":"payroll"}}`, 403},
		{"POST", "/v1/batches", `{"callback":{"type":"pdf","type":"payroll"}}`, 403},
		{"POST", "/v1/batches", `{"parent":8}`, 201},
		{"POST", "/v1/batches", `{"callback":{"type":"pdf"},"parent":90}`, 403},
		{"DELETE", "/v1/jobs/7", "", 202},
		{"DELETE", "/v1/jobs/17", "", 403},
		{"DELETE", "/v1/jobs/18", "", 202}, // its batch has no callback
		{"DELETE", "/v1/jobs/19", "", 202},
		{"DELETE", "/v1/jobs/24", "", 403},
		{"DELETE", "/v1/jobs/25", "", 202},
		{"POST", "/v1/flows", `{"nodes":[{"name":"a","type":"pdf","after":[8]}]}`, 201},
		{"POST", "/v1/flows", `{"nodes":[{"name":"a","type":"pdf"},{"name":"b","type":"payroll"}]}`, 403},
		{"POST", "/v1/flows", `{"callback":{"type":"payroll"},"nodes":[{"name":"a","type":"pdf"}]}`, 403},
		{"POST", "/v1/flows", `{"nodes":[{"name":"a","type":"pdf","after":[8,9]}]}`, 403},
		{"POST", "/v1/flows", `{"nodes":[{"name":"a","type":"pdf","after":[0.9e1]}]}`, 400},
		{"POST", "/v1/flows", `{"nodes":[{"name":"a","type":"pdf","after":9}]}`, 400},
		{"POST", "/v1/flows", `{"nodes":[{"name":"a","type":"pdf","type":5}]}`, 400},
		{"POST", "/v1/flows", `{"nodes":[{"name":"a","type":"pdf"}],"nodes":[{"name":"a","type":"payroll"}]}`, 403},
	} {
		status, text := respond(h, c.method, c.path, c.body)
		require.Equal(t, c.status, status, "%s %s %s: %s", c.method, c.path, c.body, text)
	}
}

// These requests are no operations that a key makes safe to repeat. Ignoring the key could insert the jobs twice.
func TestOnlyRequestsTakeAnIdempotencyKey(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v1/flows", `{"nodes":[{"name":"a","type":"pdf"}]}`},
		{"POST", "/v1/batches", `{}`},
		{"POST", "/v1/fanouts", `{"type":"pdf","items":[1]}`},
		{"PUT", "/v1/limits/k", `{"capacity":2}`},
		{"PUT", "/v1/schedules/s", `{"cron":"* * * * *","type":"pdf"}`},
	} {
		rec := httptest.NewRecorder()
		r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "k")
		h.ServeHTTP(rec, r)
		require.Equal(t, 400, rec.Code, "%s: %s", c.path, rec.Body)
		require.Contains(t, rec.Body.String(), c.path+" takes no Idempotency-Key; POST /v1/requests takes a key")
	}
}

func TestNameOfABatchIsNotEmpty(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	status, text := respond(h, "POST", "/v1/batches", `{"name":""}`)
	require.Equal(t, 400, status)
	require.Contains(t, text, "it must have 1 to 128 bytes, or be left out")
	status, _ = respond(h, "POST", "/v1/batches", `{"name":"n"}`)
	require.Equal(t, 201, status)
}

// A waiting job may be the callback of a batch, with which members of any type are cancelled.
func TestOnlyCallersOfAllTypesCancelWaitingJobsByAFilter(t *testing.T) {
	h, f := withoutPayroll(t)
	status, text := respond(h, "POST", "/v1/cancel?type=pdf&status=pending,waiting", "")
	require.Equal(t, 403, status, text)
	require.Contains(t, text, "not all types")
	status, _ = respond(h, "POST", "/v1/cancel?type=pdf", "")
	require.Equal(t, 200, status)
	require.Equal(t, []dispatcherd.Status{dispatcherd.Pending, dispatcherd.Running}, f.filter.Statuses)
	h.PermitAll = func(workerproto.Peer) string { return "" }
	_, _ = respond(h, "POST", "/v1/cancel?type=pdf", "")
	require.Equal(t, contract.CancelJobs.Statuses(), f.filter.Statuses)
}

func TestErrorOfAFlowNamesTheNode(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	_, text := respond(h, "POST", "/v1/flows", `{"name":"cycle","nodes":[]}`)
	require.Contains(t, text, `"detail":"flow: node \"a\": depends on itself"`)
}

func TestPageOfBatchesContinuesBeforeItsLastID(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	_, text := respond(h, "GET", "/v1/batches?limit=2", "")
	require.Contains(t, text, `"next_before":18`)
	_, text = respond(h, "GET", "/v1/batches?limit=2&before=18&kind=batch&state=open", "")
	require.NotContains(t, text, "next_before")
	require.Contains(t, text, `"id":17`)
}

// A caller learns the id of the job that has its unique key.
func TestInsertOfATakenUniqueKeyAnswersWithTheJobThatHasIt(t *testing.T) {
	h, _, _ := testHandler(t, nil)
	status, text := respond(h, "POST", "/v1/jobs", `{"type":"pdf","unique_key":"taken"}`)
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"id":17,"existing":true}`, text)
	status, text = respond(h, "POST", "/v1/jobs", `{"type":"pdf","unique_key":"free"}`)
	require.Equal(t, 201, status)
	require.NotContains(t, text, "existing")
}
