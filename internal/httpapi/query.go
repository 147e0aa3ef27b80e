package httpapi

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"

	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// query are the query parameters of a route.
type query struct {
	names []string
	// Unknown parameters are rejected, so that callers notice a misspelt one. Routes outside of /v1/ ignore them, because probes,
	// scrapers and readers of openapi.json may add their own.
	strict bool
}

func queryOf(rt *rest.Route) query { return query{rt.Parameters(), strings.HasPrefix(rt.Path, "/v1/")} }

// check rejects parameters that the route does not have, and repeated parameters.
func (q *query) check(w http.ResponseWriter, r *http.Request) error {
	if r.URL.RawQuery == "" || !q.strict {
		return nil
	}
	wrong := q.wrongIn(r.URL.RawQuery)
	if wrong == "" {
		return nil
	}
	if r.ContentLength != 0 {
		endBody(w, r, false)
	}
	return rest.InvalidRequest.Of(wrong)
}

// wrongIn returns what is wrong with a query; "" = nothing.
func (q *query) wrongIn(text string) string {
	given, err := url.ParseQuery(text)
	if err != nil {
		return "the query is not well-formed: parameters are separated by &, and other special characters are written as %XX"
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		switch {
		case !slices.Contains(q.names, name):
			known := cmp.Or(strings.Join(q.names, ", "), "none")
			return fmt.Sprintf("there is no query parameter %q; this call takes %s", jsontext.Excerpt(name), known)
		case len(given[name]) > 1:
			return fmt.Sprintf("the query parameter %s is given more than once", name)
		}
	}
	return ""
}
