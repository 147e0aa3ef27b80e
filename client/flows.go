package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Types of batches and flows over HTTP.
type (
	// FlowState is a flow with its nodes.
	FlowState = contract.Flow
	// NewBatch describes a batch to open; its callback is a JSON object.
	NewBatch = contract.NewBatch
)

// BatchFilter selects a page of batches.
type BatchFilter struct {
	Query

	Kind  string `param:"kind"`  // batch, flow or children; "" = any
	State string `param:"state"` // open, sealed, ended or cancelled; "" = any
}

// Flows provides the operations on batches and flows, over HTTP. Programs with a database use [OpenBatch] and [Flow.Insert]. The
// error is a *Problem, of type TypeNotFound if there is no such batch or flow, and TypeConflict if its state forbids the operation.
type Flows struct{ c *Client }

// Flows returns the operations on batches and flows.
func (c *Client) Flows() Flows { return Flows{c} }

func batchPath(id dispatcherd.JobID, rest string) string {
	return fmt.Sprintf("/v1/batches/%d%s", id, rest)
}

// List returns batches and flows, the newest first.
func (f Flows) List(ctx context.Context, filter BatchFilter) (Page[BatchState], error) {
	return page[Page[BatchState]](ctx, f.c, "/v1/batches", filter)
}

// Get returns a batch or flow.
func (f Flows) Get(ctx context.Context, id dispatcherd.JobID) (BatchState, error) {
	return Call[BatchState](ctx, f.c, http.MethodGet, batchPath(id, ""), nil)
}

// Flow returns a flow with its nodes.
func (f Flows) Flow(ctx context.Context, id dispatcherd.JobID) (FlowState, error) {
	return Call[FlowState](ctx, f.c, http.MethodGet, fmt.Sprintf("/v1/flows/%d", id), nil)
}

// Open opens a batch. Members are jobs with its id as parent.
func (f Flows) Open(ctx context.Context, b NewBatch) (dispatcherd.JobID, error) {
	opened, err := Call[struct{ ID dispatcherd.JobID }](ctx, f.c, http.MethodPost, "/v1/batches", b)
	return opened.ID, err
}

// Seal says that a batch has all of its members. It may be repeated.
func (f Flows) Seal(ctx context.Context, id dispatcherd.JobID) (Sealed, error) {
	return Call[Sealed](ctx, f.c, http.MethodPost, batchPath(id, "/seal"), nil)
}

// InsertFlow inserts the flow of a JSON document, such as that of a [Flow], as a whole or not at all.
func (f Flows) InsertFlow(ctx context.Context, document []byte) (InsertedFlow, error) {
	return Call[InsertedFlow](ctx, f.c, http.MethodPost, "/v1/flows", json.RawMessage(document))
}

// Cancel cancels a batch or flow and everything below it.
func (f Flows) Cancel(ctx context.Context, id dispatcherd.JobID) (CancelledTree, error) {
	return Call[CancelledTree](ctx, f.c, http.MethodDelete, batchPath(id, ""), nil)
}

// Retry runs the failed and cancelled members or nodes again.
func (f Flows) Retry(ctx context.Context, id dispatcherd.JobID) (RetriedTree, error) {
	return Call[RetriedTree](ctx, f.c, http.MethodPost, batchPath(id, "/retry"), nil)
}

// Repair has the jobs of a batch or flow that have not ended counted again. A batch or flow that was set aside is tried again.
func (f Flows) Repair(ctx context.Context, id dispatcherd.JobID) (BatchState, error) {
	return Call[BatchState](ctx, f.c, http.MethodPost, batchPath(id, "/repair"), nil)
}
