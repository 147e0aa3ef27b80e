package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// live reports whether the loop runs. No other check may cause a restart.
func (h *Handler) live(w http.ResponseWriter, r *rest.Request) error {
	return probe(w, r, h.backend.Checks()[:1], nil)
}

// ready reports whether the dispatcher accepts work. ?exclude=name skips a check, as in the
// probes of Kubernetes. An unknown name is an error. Otherwise a misspelt name would be
// noticed only when the check fails.
func (h *Handler) ready(w http.ResponseWriter, r *rest.Request) error {
	checks := h.backend.Checks()
	names := make([]string, len(checks))
	for i, c := range checks {
		names[i] = c.Name
	}
	excluded := r.URL.Query()["exclude"]
	for _, name := range excluded {
		if !slices.Contains(names, name) {
			return rest.InvalidRequest.Of(fmt.Sprintf("there is no check %q to exclude; the checks are %s", name, strings.Join(names, ", ")))
		}
	}
	return probe(w, r, checks, excluded)
}

// probe answers with a status for programs and a text for people.
func probe(w http.ResponseWriter, r *rest.Request, checks []Check, excluded []string) error {
	var bad []string
	for _, c := range checks {
		if !c.OK && !slices.Contains(excluded, c.Name) {
			bad = append(bad, strings.TrimSpace(c.Name+" "+c.Info))
		}
	}
	verbose, result := r.URL.Query().Has("verbose"), "ok"
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if bad != nil {
		if result = "not ok: " + strings.Join(bad, ", "); !verbose {
			return rest.Unavailable.Of(result).Retryable()
		}
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if verbose {
		for _, c := range checks {
			mark := "+"
			if !c.OK {
				mark = "-"
			}
			fmt.Fprintf(w, "[%s] %s %s\n", mark, c.Name, c.Info)
		}
	}
	fmt.Fprintln(w, result)
	return nil
}
