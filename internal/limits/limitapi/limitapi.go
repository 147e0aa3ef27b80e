// Package limitapi contains the HTTP API of limits and keys. Package api mounts its routes.
package limitapi

import (
	"context"
	"net/http"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rowapi"
	"github.com/dispatcherd/dispatcherd/internal/limits"
)

// Limits provides the operations on limits. The errors are problems, or errors that the host turns into problems.
type Limits interface {
	// List returns limits in the order of their keys, after a key.
	List(ctx context.Context, after string, limit int) ([]contract.Limit, error)
	// Get returns the limit with exactly that key.
	Get(ctx context.Context, key string) (contract.Limit, error)
	// Set creates or replaces a limit, if it has the version of v.
	Set(ctx context.Context, v contract.Limit) (created bool, err error)
	// Remove deletes a limit.
	Remove(ctx context.Context, key string) error
}

// Keys explains keys.
type Keys interface {
	// List returns keys that jobs hold or wait for, in the order of their names, after a name.
	List(ctx context.Context, after string, limit int) (contract.KeyPage, error)
	// Show returns the state of a key.
	Show(ctx context.Context, key string) (contract.KeyState, error)
}

// Host is the API that mounts the routes.
type Host interface {
	rowapi.Host
	// PermitAll returns a problem if the caller may not use jobs of all types, which limits concern.
	PermitAll(r *http.Request) error
}

// handler serves the routes.
type handler struct {
	limits Limits
	keys   Keys
	host   Host
}

// Routes returns the routes of limits and keys.
func Routes(limits Limits, keys Keys, host Host) []rowapi.Route {
	h := handler{limits, keys, host}
	page := []string{"after", "limit"}
	return []rowapi.Route{
		rowapi.On(http.MethodGet, "/v1/limits", page, h.list),
		rowapi.On(http.MethodGet, "/v1/limits/{key}", nil, h.get),
		rowapi.On(http.MethodPut, "/v1/limits/{key}", nil, h.forAll(h.put)),
		rowapi.On(http.MethodDelete, "/v1/limits/{key}", nil, h.forAll(h.remove)),
		rowapi.On(http.MethodGet, "/v1/keys", page, h.forAll(h.listKeys)),
		rowapi.On(http.MethodGet, "/v1/keys/{key}", nil, h.forAll(h.show)),
	}
}

// forAll is a handler for callers that may use jobs of all types: keys and edits of limits concern them all.
func (h handler) forAll(handle func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := h.host.PermitAll(r); err != nil {
			return err
		}
		return handle(w, r)
	}
}

// LimitPage answers GET /v1/limits.
type LimitPage struct {
	Limits []contract.Limit `json:"limits"`
	Next   string           `json:"next_after,omitempty"` // the next page begins after this key; empty = there is none
}

func (h handler) list(w http.ResponseWriter, r *http.Request) error {
	after, most, err := rowapi.Page(r)
	if err != nil {
		return err
	}
	all, err := h.limits.List(r.Context(), after, most)
	if err != nil {
		return err
	}
	page := LimitPage{Limits: append([]contract.Limit{}, all...)}
	if len(all) == most {
		page.Next = all[most-1].Key
	}
	h.host.Answer(w, http.StatusOK, page)
	return nil
}

func (h handler) get(w http.ResponseWriter, r *http.Request) error {
	v, err := h.limits.Get(r.Context(), r.PathValue("key"))
	if err != nil {
		return err
	}
	h.host.Answer(w, http.StatusOK, v)
	return nil
}

// rows are the rows of the table.
var rows = rowapi.Table{Row: "a limit", Example: `{"capacity": 2, "rate": 3, "per": "1s"}`, Name: "key"}

// put creates the limit of the path, or replaces its columns. An absent member means the default. With a version, it
// replaces only the limit that has this version.
func (h handler) put(w http.ResponseWriter, r *http.Request) error {
	body, release, err := h.host.Body(w, r)
	if err != nil {
		return err
	}
	defer release()
	key := r.PathValue("key")
	members, version, err := rows.Members(body, key, limits.Columns())
	if err != nil {
		return problem.InvalidRequest.Of(err.Error())
	}
	v, err := limits.Parse(key, members)
	if err != nil {
		return problem.InvalidRequest.Of(err.Error())
	}
	v.Version = version
	created, err := h.limits.Set(r.Context(), v)
	if err == nil {
		v, err = h.limits.Get(r.Context(), key)
	}
	if err == nil {
		rowapi.Replaced(w, h.host, created, v)
	}
	return err
}

// LimitKey answers a deletion.
type LimitKey struct {
	Key string `json:"key"`
}

func (h handler) remove(w http.ResponseWriter, r *http.Request) error {
	key := r.PathValue("key")
	if err := h.limits.Remove(r.Context(), key); err != nil {
		return err
	}
	h.host.Answer(w, http.StatusOK, LimitKey{key})
	return nil
}

func (h handler) listKeys(w http.ResponseWriter, r *http.Request) error {
	after, most, err := rowapi.Page(r)
	if err != nil {
		return err
	}
	page, err := h.keys.List(r.Context(), after, most)
	if err != nil {
		return err
	}
	page.Keys = append([]contract.KeySummary{}, page.Keys...)
	h.host.Answer(w, http.StatusOK, page)
	return nil
}

func (h handler) show(w http.ResponseWriter, r *http.Request) error {
	s, err := h.keys.Show(r.Context(), r.PathValue("key"))
	if err != nil {
		return err
	}
	h.host.Answer(w, http.StatusOK, s)
	return nil
}
