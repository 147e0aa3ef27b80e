// Package rowapi contains what the HTTP APIs of tables share: schedules, limits, and batches.
package rowapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// Host is the API that mounts the routes.
type Host interface {
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

// On returns a route.
func On(method, path string, query []string, handle func(http.ResponseWriter, *http.Request) error) Route {
	return Route{Method: method, Path: path, Query: query, Handle: handle}
}

// Bounds of a page.
const (
	DefaultPage = 100
	maxPage     = 1000
)

// Number reads a number of the query from 1 to 1,000.
func Number(r *http.Request, name string, absent int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return absent, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxPage {
		return 0, problem.InvalidRequest.Of(
			fmt.Sprintf("%s %q: must be a whole number from 1 to %d, for example %d", name, jsontext.Excerpt(text), maxPage, absent),
		)
	}
	return n, nil
}

// Page reads the parameters of a page of rows: the name after which it begins, and its size.
func Page(r *http.Request) (after string, most int, err error) {
	most, err = Number(r, "limit", DefaultPage)
	return r.URL.Query().Get("after"), most, err
}

// Table describes the rows of a table.
type Table struct {
	Row      string   // such as "a limit"
	Example  string   // the JSON object of a row
	Name     string   // the column that is in the path
	ReadOnly []string // further members that a body may repeat from an earlier answer
}

// Members reads the columns of a row from a JSON object, and its version: 0 = any, contract.NoVersion = it must not exist. The
// name must be that of the path, or absent.
func (t Table) Members(body []byte, name string, columns []string) (members map[string]json.RawMessage, version int64, err error) {
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return nil, 0, fmt.Errorf("%s is a JSON object, for example %s", t.Row, t.Example)
	}
	if err := jsontext.CheckNames(body, slices.Concat(columns, t.ReadOnly, []string{t.Name, "version"})); err != nil {
		return nil, 0, err
	}
	var given string
	if text := members[t.Name]; text != nil && (json.Unmarshal(text, &given) != nil || given != name) {
		return nil, 0, fmt.Errorf("%s: must be %q as in the path, or absent", t.Name, jsontext.Excerpt(name))
	}
	if text := members["version"]; text != nil && (json.Unmarshal(text, &version) != nil || version < contract.NoVersion) {
		return nil, 0, fmt.Errorf("version %s: must be the version that was read, for example 3, or absent for any, or %d for a new row",
			jsontext.Excerpt(string(text)), contract.NoVersion)
	}
	return members, version, nil
}

// Replaced answers a PUT.
func Replaced(w http.ResponseWriter, host Host, created bool, v any) {
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	host.Answer(w, status, v)
}
