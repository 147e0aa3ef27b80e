package httpapi

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/dispatcherd/dispatcherd/internal/jsontext"
)

// wrongQuery returns what is wrong with a query of a call that takes some parameters; "" = nothing. It rejects other parameters, so that
// callers notice a misspelt one, and repeated ones.
func wrongQuery(text string, names []string) string {
	given, err := url.ParseQuery(text)
	if err != nil {
		return "the query is not well-formed: parameters are separated by &, and other special characters are written as %XX"
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		switch {
		case !slices.Contains(names, name):
			known := cmp.Or(strings.Join(names, ", "), "none")
			return fmt.Sprintf("there is no query parameter %q; this call takes %s", jsontext.Excerpt(name), known)
		case len(given[name]) > 1:
			return fmt.Sprintf("the query parameter %s is given more than once", name)
		}
	}
	return ""
}
