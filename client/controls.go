package client

import (
	"context"
	"net/http"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// Types of pauses and drains. docs/how-to/operations.md explains them.
type (
	// PauseOrder says how to pause a type: What is all, queued or requests; For is the length, nil = until [Client.ResumeType]; Reason.
	PauseOrder = contract.PauseOrder
	// PauseState is a pause that has begun: Type, What, By, At, Until, Reason, Former, Warning, Unconfirmed.
	PauseState = contract.PauseState
	// RetryPolicy says how failed jobs of a type are retried: MaxAttempts, Backoff. docs/how-to/retries.md explains it.
	RetryPolicy = contract.RetryPolicy
	// RetryState is the policy of a type: MaxAttempts, Backoff, Type, Warning, Unconfirmed.
	RetryState = contract.RetryState
	// DrainOrder says how to drain a worker: Types, none = all, and Reason.
	DrainOrder = contract.DrainOrder
	// DrainState is a drained worker: Worker, Process, Types, By, At, Reason, Dispatchers, Running, Uncovered, Former, Unconfirmed.
	DrainState = contract.DrainState
)

// checkType refuses an empty type, because segment would make another type of it.
func checkType(typ string) error {
	if typ == "" {
		return rest.InvalidRequest.Of("the type is empty")
	}
	return nil
}

// PauseType pauses a type in the whole cluster: none of its jobs starts any more. It replaces an earlier pause. Unconfirmed names the
// dispatchers that have not said within two seconds that they follow it. An empty type is refused.
func (c *Client) PauseType(ctx context.Context, typ string, order PauseOrder) (s PauseState, err error) {
	if err := checkType(typ); err != nil {
		return s, err
	}
	return Call[PauseState](ctx, c, http.MethodPost, "/v1/types/"+segment(typ)+"/pause", order)
}

// SetRetries sets the retry policy of a type for the jobs that have none. It replaces the former policy; the zero policy is that of the
// dispatchers. Unconfirmed names the dispatchers that have not said within two seconds that they follow it. An empty type is refused.
func (c *Client) SetRetries(ctx context.Context, typ string, p RetryPolicy) (s RetryState, err error) {
	if err := checkType(typ); err != nil {
		return s, err
	}
	return Call[RetryState](ctx, c, http.MethodPut, "/v1/types/"+segment(typ)+"/retries", p)
}

// ResumeType ends the pause of a type. The error is a *Problem of type TypeNotFound if the type is not paused.
func (c *Client) ResumeType(ctx context.Context, typ string) (unconfirmed []string, err error) {
	return c.control(ctx, "/v1/types/"+segment(typ)+"/resume")
}

// DrainWorker drains a worker: it gets no jobs until [Client.ResumeWorker], or until it has no process left. worker is its name, or the
// number of one of its sessions at the dispatcher that is asked. After the answer no job is placed there, unless a dispatcher is in
// Unconfirmed. The error is a *Problem of type TypeNotFound if no such worker is connected.
func (c *Client) DrainWorker(ctx context.Context, worker string, order DrainOrder) (DrainState, error) {
	return Call[DrainState](ctx, c, http.MethodPost, "/v1/workers/"+segment(worker)+"/drain", order)
}

// ResumeWorker lets a drained worker get jobs again. The error is a *Problem of type TypeNotFound if the worker is not drained.
func (c *Client) ResumeWorker(ctx context.Context, worker string) (unconfirmed []string, err error) {
	return c.control(ctx, "/v1/workers/"+segment(worker)+"/resume")
}

// Drains returns the drained workers by name, with the jobs that still run there.
func (c *Client) Drains(ctx context.Context, q Names) (Page[DrainState], error) {
	return page[Page[DrainState]](ctx, c, "/v1/drains", q)
}

// DrainDispatcher drains a dispatcher: it accepts no new workers, and those that know other dispatchers go there with their jobs, until
// [Client.ResumeDispatcher] or until it is restarted. dispatcher is its name or id. The error is a *Problem of type TypeNotFound if no such
// dispatcher lives.
func (c *Client) DrainDispatcher(ctx context.Context, dispatcher string) (unconfirmed []string, err error) {
	return c.control(ctx, "/v1/dispatchers/"+segment(dispatcher)+"/drain")
}

// ResumeDispatcher lets a drained dispatcher accept workers again. The error is a *Problem of type TypeNotFound if it is not drained.
func (c *Client) ResumeDispatcher(ctx context.Context, dispatcher string) (unconfirmed []string, err error) {
	return c.control(ctx, "/v1/dispatchers/"+segment(dispatcher)+"/resume")
}

// control makes a call that returns a confirmation only.
func (c *Client) control(ctx context.Context, path string) (unconfirmed []string, err error) {
	answer, err := Call[contract.Confirmation](ctx, c, http.MethodPost, path, nil)
	return answer.Unconfirmed, err
}
