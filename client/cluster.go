package client

import (
	"context"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// What dispatchers do. docs/reference/api.md explains the types.
type (
	// Status is the state of a cluster: At, Dispatchers, Slots, Types, Window, Alarms, and the numbers of ends.
	Status = contract.Status
	// Worker is a connected worker: Dispatcher, DispatcherName, Session, Worker, Slots, Free, Draining, Types.
	Worker = contract.Worker
	// Slot is a slot of a worker: Dispatcher, DispatcherName, Slot, Worker, Types, State, and its Job.
	Slot = contract.Slot
	// Type is a type at a dispatcher: Dispatcher, DispatcherName, Type, Capacity, Free, Pending, Known, Requests.
	Type = contract.Type
	// TypePage is a page of types, and the age of their numbers of pending jobs.
	TypePage = contract.TypePage
	// Members selects a page of workers: Local, and the fields of [Query].
	Members = rest.Everywhere
	// SlotQuery selects a page of slots: Type, Local, and the fields of [Query].
	SlotQuery = rest.Slots
	// TypeQuery selects a page of types: Local, and the fields of [Names].
	TypeQuery = rest.TypeNames
)

// Status returns what the dispatchers of the cluster do. Its Notes say which of them did not answer in time.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return Call[Status](ctx, c, "GET", "/v1/status", nil)
}

// Workers returns the workers that are connected to the dispatchers of the cluster, or with Local to the one that answers. The Notes of
// this page, and of those of Slots and Types, say which dispatchers did not answer in time.
func (c *Client) Workers(ctx context.Context, q Members) (Page[Worker], error) {
	return page[Page[Worker]](ctx, c, "/v1/workers", q)
}

// Slots returns the slots of these workers.
func (c *Client) Slots(ctx context.Context, q SlotQuery) (Page[Slot], error) {
	return page[Page[Slot]](ctx, c, "/v1/slots", q)
}

// Types returns the types that the dispatchers know, and those of pending jobs: a row for each type at each dispatcher.
func (c *Client) Types(ctx context.Context, q TypeQuery) (TypePage, error) {
	return page[TypePage](ctx, c, "/v1/types", q)
}
