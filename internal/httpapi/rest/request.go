package rest

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// Caller is who makes a call.
type Caller interface {
	// Permit returns a problem if the caller may not use jobs of a type.
	Permit(typ string) error
	// PermitAll returns a problem if the caller may not use jobs of all types.
	PermitAll() error
	// Permitted returns which types the caller may use; nil = all.
	Permitted() func(typ string) bool
	// Reveals reports whether the caller may read payloads, results, progress, errors and logs of jobs.
	Reveals() bool
	// Name names the caller in tables.
	Name() string
	// ReadBody reads the body of a call. Without an error, release must be called after its use.
	ReadBody(w http.ResponseWriter, r *http.Request) (text []byte, release func(), err error)
}

// PermitTypes returns a problem if a caller may not use jobs of the types, or of all types.
func PermitTypes(c Caller, types []string, all bool) error {
	if all {
		return c.PermitAll()
	}
	slices.Sort(types)
	for _, typ := range slices.Compact(types) {
		if typ == "" { // the row was deleted
			continue
		}
		if err := c.Permit(typ); err != nil {
			return err
		}
	}
	return nil
}

// Request is a call in progress.
type Request struct {
	*http.Request
	Caller

	w       http.ResponseWriter
	status  int // of the answer
	release func()
}

// NewRequest returns a call in progress.
func NewRequest(w http.ResponseWriter, r *http.Request, c Caller) *Request {
	return &Request{Request: r, Caller: c, w: w, status: http.StatusOK, release: func() {}}
}

// Warned is a part of the answers to insertions, and to the drain of a dispatcher.
type Warned struct {
	Warnings []string `json:"warnings,omitempty"` // why jobs that were inserted cannot run now, or never can, or what else to look at
}

// SetStatus sets the status of the answer of [On]; without it, the status is 200.
func (r *Request) SetStatus(status int) { r.status = status }

// Created sets the status 201, and where the new row can be read.
func (r *Request) Created(location string) {
	r.status = http.StatusCreated
	r.w.Header().Set("Location", location)
}

// Read reads the body, once, and calls parse, see [quota.Parse]. The text is valid until the end of the call.
func (r *Request) Read(parse func(text []byte) error) error {
	text, release, err := r.ReadBody(r.w, r.Request)
	if err == nil {
		r.release = release
		quota.Parse(quota.UserOf(r.Context()), len(text), func() { err = parse(text) })
	}
	return err
}

// Decode reads the body into a struct, as [Decode] does.
func (r *Request) Decode(into any) error {
	return r.Read(func(text []byte) error { return Decode(text, into) })
}

// Parse reads the parameters of the path and of the query into a struct. Its fields have a tag param with the name. [setParameter]
// describes their types and further tags.
func (r *Request) Parse(into any) error {
	query := r.URL.Query()
	return eachParameter(reflect.ValueOf(into).Elem(), func(f reflect.StructField, v reflect.Value) error {
		name := f.Tag.Get("param")
		text, kind := query.Get(name), InvalidRequest
		if strings.Contains(r.Pattern, "{"+name+"}") {
			text, kind = r.PathValue(name), NotFound
		}
		if rule := setParameter(v, f.Tag, text); rule != "" {
			return kind.Of(Invalid(name, text, rule))
		}
		return nil
	})
}
