// Package limitapi contains the HTTP API of limits and keys. Package api mounts its routes.
package limitapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
	"github.com/dispatcherd/dispatcherd/internal/limit"
	"github.com/dispatcherd/dispatcherd/internal/problem"
)

// Limits provides the operations on limits. The errors are problems, or errors that the host turns into problems.
type Limits interface {
	// List returns limits in the order of their keys, after a key.
	List(ctx context.Context, after string, limit int) ([]contract.Limit, error)
	// Get returns the limit with exactly that key.
	Get(ctx context.Context, key string) (contract.Limit, error)
	// Set creates or replaces a limit.
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
	// PermitAll returns a problem if the caller may not use jobs of all types, which limits concern.
	PermitAll(r *http.Request) error
	// Body reads a body. The caller must call release after its use, unless there is an error.
	Body(w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error)
	// Answer sends a value as JSON.
	Answer(w http.ResponseWriter, status int, v any)
}

// Route is one operation.
type Route struct {
	Method, Path string
	Query        []string // query parameters that the route takes
	Handle       func(http.ResponseWriter, *http.Request) error
}

// Bounds of a page.
const (
	defaultPage = 100
	maxPage     = 1000
)

// handler serves the routes.
type handler struct {
	limits Limits
	keys   Keys
	host   Host
}

// Routes returns the routes of limits and keys.
func Routes(limits Limits, keys Keys, host Host) []Route {
	h := handler{limits, keys, host}
	page := []string{"after", "limit"}
	return []Route{
		{http.MethodGet, "/v1/limits", page, h.list},
		{http.MethodGet, "/v1/limits/{key}", nil, h.get},
		{http.MethodPut, "/v1/limits/{key}", nil, h.forAll(h.put)},
		{http.MethodDelete, "/v1/limits/{key}", nil, h.forAll(h.remove)},
		{http.MethodGet, "/v1/keys", page, h.forAll(h.listKeys)},
		{http.MethodGet, "/v1/keys/{key}", nil, h.forAll(h.show)},
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
	after, most, err := pageOf(r)
	if err != nil {
		return err
	}
	all, err := h.limits.List(r.Context(), after, most)
	if err != nil {
		return err
	}
	page := LimitPage{Limits: slices.Concat([]contract.Limit{}, all)}
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

// put creates the limit of the path, or replaces its columns. An absent member means the default.
func (h handler) put(w http.ResponseWriter, r *http.Request) error {
	body, release, err := h.host.Body(w, r)
	if err != nil {
		return err
	}
	defer release()
	v, err := parse(body, r.PathValue("key"))
	if err != nil {
		return problem.InvalidRequest.Of(err.Error())
	}
	created, err := h.limits.Set(r.Context(), v)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	h.host.Answer(w, status, v)
	return nil
}

// parse reads a limit from a JSON object.
func parse(body []byte, key string) (v contract.Limit, err error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return v, errors.New(`a limit is a JSON object, for example {"capacity": 2, "rate": 3, "per": "1s"}`)
	}
	if err := jsontext.CheckNames(body, slices.Concat([]string{"key"}, limit.Columns())); err != nil {
		return v, err
	}
	var given string
	if text := members["key"]; text != nil && (json.Unmarshal(text, &given) != nil || given != key) {
		return v, fmt.Errorf("key: must be %q as in the path, or absent", jsontext.Excerpt(key))
	}
	return limit.Parse(key, members)
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
	after, most, err := pageOf(r)
	if err != nil {
		return err
	}
	page, err := h.keys.List(r.Context(), after, most)
	if err != nil {
		return err
	}
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

// pageOf reads the parameters of a page.
func pageOf(r *http.Request) (after string, most int, err error) {
	q := r.URL.Query()
	text := q.Get("limit")
	if text == "" {
		return q.Get("after"), defaultPage, nil
	}
	most, err = strconv.Atoi(text)
	if err != nil || most < 1 || most > maxPage {
		return "", 0, problem.InvalidRequest.Of(fmt.Sprintf("limit is %q: it must be a whole number from 1 to %d", jsontext.Excerpt(text), maxPage))
	}
	return q.Get("after"), most, nil
}
