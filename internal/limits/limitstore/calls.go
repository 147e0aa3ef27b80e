package limitstore

import (
	"context"
	"net/http"
	"time"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// API provides the HTTP calls of limits and keys.
type API struct {
	DB claim.DB
	// Book calls f with the book of the permits, and reports whether this dispatcher is the controller.
	Book func(ctx context.Context, f func(*permits.Book)) bool
}

// Calls returns the calls. Edits of limits, and keys, concern jobs of all types.
func (a API) Calls() []rest.Route {
	const one = "/v1/limits/{key}"
	return []rest.Route{
		rest.On("list-limits", "GET /v1/limits", "List the limits of keys by key", a.limits),
		rest.On("get-limit", "GET "+one, "Read a limit", a.limit),
		rest.On("set-limit", "PUT "+one, "Create a limit, or replace its columns", a.put).Takes(contract.Limit{}).
			Answered(http.StatusOK, "It was changed.").Answered(http.StatusCreated, "It was created.").Fails(rest.Conflict),
		rest.On("remove-limit", "DELETE "+one, "Delete a limit; a shorter prefix applies then, or one job at a time", a.remove),
		rest.On("list-keys", "GET /v1/keys", "List the keys that jobs hold or wait for", a.keys),
		rest.On("show-key", "GET /v1/keys/{key}", "Read the limit, the holders and the waiting jobs of a key", a.key),
	}
}

func (a API) table() Limits { return Limits{a.DB} }

// LimitKey is the key of a limit.
type LimitKey struct {
	Key string `param:"key" json:"key"` // A key, or a prefix and *.
}

func (a API) limits(r *rest.Request, q *rest.Names) (contract.Page[contract.Limit], error) {
	all, err := a.table().List(r.Context(), q.Prefix, string(q.Cursor), q.Limit+1)
	return rest.PageOf(all, q.Limit, func(v *contract.Limit) any { return v.Key }), err
}

func (a API) limit(r *rest.Request, q *LimitKey) (contract.Limit, error) {
	return a.table().Get(r.Context(), q.Key)
}

// put takes the default for an absent member, and null for unlimited. With a version, it replaces only the limit that has this
// version.
func (a API) put(r *rest.Request, q *LimitKey) (contract.Limit, error) {
	v := struct {
		contract.Limit

		Rate *int `json:"rate"` // null differs from 0
	}{Limit: contract.NewLimit(q.Key)}
	err := r.PermitAll()
	if err == nil {
		err = r.Decode(&v)
	}
	if err == nil {
		err = rest.CheckRow("key", q.Key, &v.Key, v.Version)
	}
	if err == nil && v.Rate != nil {
		if v.Limit.Rate = *v.Rate; *v.Rate == 0 {
			err = rest.InvalidRequest.Of("rate 0: must be from 1 to 1000000000, or null for unlimited; capacity 0 pauses the key")
		}
	}
	if err != nil {
		return v.Limit, err
	}
	created, err := a.table().Set(r.Context(), v.Limit)
	if err != nil {
		return v.Limit, err
	}
	if created {
		r.SetStatus(http.StatusCreated)
	}
	return a.table().Get(r.Context(), q.Key)
}

func (a API) remove(r *rest.Request, q *LimitKey) (LimitKey, error) {
	err := r.PermitAll()
	if err == nil {
		err = a.table().Remove(r.Context(), q.Key)
	}
	return *q, err
}

// keys returns a page by the table. The book does not count paused classes at their keys, so it answers only if the table has more
// than one call may read.
func (a API) keys(r *rest.Request, q *rest.Names) (page contract.KeyPage, err error) {
	if err := r.PermitAll(); err != nil {
		return page, err
	}
	page, err = Keys{a.DB}.List(r.Context(), q.Prefix, string(q.Cursor), q.Limit)
	var states []permits.KeyState
	if err != nil || !page.Incomplete ||
		!a.Book(r.Context(), func(b *permits.Book) { states = b.Keys(q.Prefix, string(q.Cursor), q.Limit+1) }) {
		return page, err
	}
	all := make([]contract.KeySummary, len(states))
	for i := range states {
		s := &states[i]
		all[i] = contract.KeySummary{Key: s.Name, Held: s.Held, Alone: s.Alone, Holders: s.Holders, Classes: s.Waiting}
	}
	page.Incomplete = false
	page.Page, err = Keys{a.DB}.page(r.Context(), all, q.Limit)
	return page, err
}

// keyName is the name of a key.
type keyName struct {
	Key string `param:"key"` // Name of the key.
}

// key returns the state of a key. The controller knows the order of the waiting jobs; all else is in the table.
func (a API) key(r *rest.Request, q *keyName) (s contract.KeyState, err error) {
	if err = r.PermitAll(); err == nil {
		s, err = Keys{a.DB}.Show(r.Context(), q.Key)
	}
	if err != nil {
		return s, err
	}
	s.Decided = a.Book(r.Context(), func(b *permits.Book) {
		state, _ := b.Key(q.Key)
		if state.Next.ID != 0 {
			s.Next = &contract.KeyWaiter{
				ID:       state.Next.ID,
				Type:     state.NextClass.Type,
				Priority: state.NextClass.Priority,
				Keys:     state.NextClass.Keys,
				RunAt:    time.UnixMicro(state.Next.RunAt),
			}
		}
		if s.Limit.Rate > 0 {
			s.Started = &state.Started
		}
	})
	return s, nil
}
