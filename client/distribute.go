package client

import (
	"context"
	"net/http"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Distribution is a task for all workers of a dispatcher that offer a type: each of them
// gets one chunk of the items. Article 2 calls it a room task.
type Distribution struct {
	Type string
	// Items are divided into contiguous chunks whose sizes differ by at most 1. The payload
	// of a chunk is an array of items.
	Items []any
	// Chunks are payloads, instead of Items. Workers or slots get them in turn; at most 1,000.
	Chunks   []any
	PerSlot  bool // a chunk for each slot instead of for each worker
	Priority dispatcherd.Priority
	// Timeout is how long to wait for the answers, rounded to milliseconds; 0 = the dispatcher's
	// default.
	Timeout time.Duration
	// Expected is how long an attempt of a chunk probably takes, rounded to milliseconds; 0 = unknown.
	Expected time.Duration
}

// Chunk is the answer of one chunk of a Distribution: OK; with OK its Result; without OK its Error, and its Code, which is the name of a
// problem, as in docs/reference/api.md; Worker; and Items, the number of items in it, 0 for one of Chunks.
type Chunk = contract.ChunkResult

type wireDistribution struct {
	Type       string               `json:"type"`
	Items      []any                `json:"items,omitempty"`
	Chunks     []any                `json:"chunks,omitempty"`
	Per        string               `json:"per,omitempty"`
	Priority   dispatcherd.Priority `json:"priority,omitempty"`
	Timeout    string               `json:"timeout,omitempty"`
	ExpectedMS *int64               `json:"expected_ms,omitempty"`
	Durable    bool                 `json:"durable,omitempty"`
}

// Distribute divides the items over the workers of this dispatcher that offer the type, waits
// for all answers, and returns them in the order of the chunks. A chunk that fails is not
// retried and is no error of Distribute. If no worker offers the type, the error is a *Problem
// of type [TypeNoSlot]. If ctx ends, all chunks are cancelled. The answer has at most 16 MiB.
func (c *Client) Distribute(ctx context.Context, d Distribution) ([]Chunk, error) {
	return distribute[[]Chunk](ctx, c, &d, false)
}

// DistributeDurable inserts the chunks as jobs of a batch, one for each slot of all dispatchers
// that supports the type, and returns the id of the batch and the number of chunks. Any worker
// runs them, with retries. PerSlot is ignored.
func (c *Client) DistributeDurable(ctx context.Context, d Distribution) (batch dispatcherd.JobID, chunks int, err error) {
	d.PerSlot = true
	answer, err := distribute[contract.FanOutBatch](ctx, c, &d, true)
	return answer.Batch, answer.Chunks, err
}

// distribute sends a distribution and returns the answer. It uses HTTP on any socket.
func distribute[T any](ctx context.Context, c *Client, d *Distribution, durable bool) (T, error) {
	wire := wireDistribution{
		Type:       d.Type,
		Items:      jsonValues(d.Items),
		Chunks:     jsonValues(d.Chunks),
		Priority:   d.Priority,
		Timeout:    spanText(d.Timeout),
		Durable:    durable,
		ExpectedMS: expectedMS(d.Expected),
	}
	if d.PerSlot {
		wire.Per = "slot"
	}
	return Call[T](ctx, c, http.MethodPost, "/v1/fanouts", wire)
}

// jsonValues is jsonValue for a list.
func jsonValues(list []any) []any {
	values := make([]any, len(list))
	for i := range list {
		values[i] = jsonValue(list[i])
	}
	return values
}
