package httpapi

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"

	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// strict reports whether unknown query parameters are rejected, so that callers notice a
// misspelt parameter. Other routes ignore unknown parameters, because probes, scrapers and
// readers of openapi.json may add their own.
func (rt *route) strict() bool { return rt.method != "" && strings.HasPrefix(rt.path, "/v1/") }

// checkQuery rejects parameters that the route does not have, and repeated parameters.
func (rt *route) checkQuery(w http.ResponseWriter, r *http.Request) error {
	if r.URL.RawQuery == "" || !rt.strict() {
		return nil
	}
	wrong := rt.wrongIn(r.URL.RawQuery)
	if wrong == "" {
		return nil
	}
	if r.ContentLength != 0 {
		endBody(w, r, false)
	}
	return problem.InvalidRequest.Of(wrong)
}

// wrongIn returns what is wrong with a query; "" = nothing.
func (rt *route) wrongIn(text string) string {
	query, err := url.ParseQuery(text)
	if err != nil {
		return "the query is not well-formed: parameters are separated by &, and other special characters are written as %XX"
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch {
		case !slices.Contains(rt.query, name) && rt.query == nil:
			return fmt.Sprintf("there is no query parameter %q; this call takes none", jsontext.Excerpt(name))
		case !slices.Contains(rt.query, name):
			return fmt.Sprintf("there is no query parameter %q; this call takes %s", jsontext.Excerpt(name), strings.Join(rt.query, ", "))
		case len(query[name]) > 1:
			return fmt.Sprintf("the query parameter %s is given more than once", name)
		}
	}
	return ""
}
