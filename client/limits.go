package client

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// Types of limits and keys. docs/how-to/limits.md explains them.
type (
	// Limit is a row of the table limits: Key, Capacity, Rate, Per, Scope, OnRetry, Version. [Limits.Set] has an example.
	Limit = contract.Limit
	// KeyPage is a page of keys.
	KeyPage = contract.KeyPage
	// KeyState is a key with its jobs: Key, Limit, Held, Alone, Holders, Jobs, Waiting, Oldest, Next. [Keys.Show] has an example.
	KeyState = contract.KeyState
)

// NewLimit returns the limit that a key has without a row: one job at a time.
func NewLimit(key string) Limit { return contract.NewLimit(key) }

// Limits provides the operations on limits, over HTTP. The error is a *Problem, of type TypeNotFound if there is no such
// limit.
type Limits struct{ c *Client }

// Limits returns the operations on limits.
func (c *Client) Limits() Limits { return Limits{c} }

// segment returns a key or name as a segment of a path. Nothing is named " ", so an empty one is not found.
func segment(name string) string {
	text := url.PathEscape(cmp.Or(name, " "))
	if text == "." || text == ".." { // servers remove such a segment
		text = strings.ReplaceAll(text, ".", "%2E")
	}
	return text
}

// Page is a part of a list: Items, and Next, the Cursor of the [Query] of the next page. An empty Next says that there is none.
type Page[T any] = contract.Page[T]

// Query selects a page of a list: Limit, the number of elements from 1 to 1,000, and Cursor. A Limit of 0 means 100.
type Query = rest.Query

// Names selects a page of a list that is ordered by names: Prefix, with which the names begin, and the fields of [Query].
type Names = rest.Names

// page reads a page of a list. parameters is a struct for [rest.Encode].
func page[P any](ctx context.Context, c *Client, path string, parameters any) (P, error) {
	return Call[P](ctx, c, http.MethodGet, path+"?"+rest.Encode(parameters).Encode(), nil)
}

// List returns limits in the order of their keys.
func (l Limits) List(ctx context.Context, q Names) (Page[Limit], error) {
	return page[Page[Limit]](ctx, l.c, "/v1/limits", q)
}

// Get returns the limit with exactly that key, which may be a prefix and *.
func (l Limits) Get(ctx context.Context, key string) (Limit, error) {
	return Call[Limit](ctx, l.c, http.MethodGet, "/v1/limits/"+segment(key), nil)
}

// Set creates the limit, or replaces the limit of that key. Begin with [NewLimit] or with the result of Get: a nil
// Capacity means unlimited. With the version of a result of Get, Set fails with TypeConflict if the limit was edited or
// removed after it was read.
func (l Limits) Set(ctx context.Context, v Limit) (created bool, err error) {
	status, err := l.c.exchange(ctx, http.MethodPut, "/v1/limits/"+segment(v.Key), v, &v)
	return status == http.StatusCreated, err
}

// Remove deletes a limit. A shorter prefix applies then, or the default of one job at a time.
func (l Limits) Remove(ctx context.Context, key string) error {
	_, err := Call[struct{}](ctx, l.c, http.MethodDelete, "/v1/limits/"+segment(key), nil)
	return err
}

// Keys explains keys, over HTTP. The error is a *Problem.
type Keys struct{ c *Client }

// Keys returns the explanations of keys.
func (c *Client) Keys() Keys { return Keys{c} }

// List returns keys that jobs hold or wait for, in the order of their names.
func (k Keys) List(ctx context.Context, q Names) (KeyPage, error) {
	return page[KeyPage](ctx, k.c, "/v1/keys", q)
}

// Show returns the state of a key: the limit that applies, the jobs that have permits, and the waiting jobs.
func (k Keys) Show(ctx context.Context, key string) (KeyState, error) {
	return Call[KeyState](ctx, k.c, http.MethodGet, "/v1/keys/"+segment(key), nil)
}
