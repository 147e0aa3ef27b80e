package api

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/dispatcherd/dispatcherd/internal/problem"
)

// acceptance says which of the media types that can be sent a caller takes.
type acceptance struct{ json, events bool }

// wantsStream reads Accept (RFC 9110), all lines of it: JSON unless events are
// asked for by name.
func wantsStream(r *http.Request) (bool, error) {
	values := r.Header.Values("Accept")
	if len(values) == 0 || len(values) == 1 && (values[0] == "" || values[0] == "*/*" || values[0] == "application/json") {
		return false, nil
	}
	a := accepted(values)
	switch {
	case a.events:
		return true, nil
	case a.json:
		return false, nil
	}
	return false, problem.NotAcceptable.Of("application/json and text/event-stream can be sent")
}

// accepted goes through what is listed. The most specific range that fits a type
// decides; what cannot be read is passed over.
func accepted(values []string) (a acceptance) {
	best := 0 // specificity of what was said of JSON
	for part := range strings.SplitSeq(strings.Join(values, ","), ",") {
		name, parameters, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		takes, rank := true, 0
		if q, ok := parameters["q"]; ok {
			weight, err := strconv.ParseFloat(q, 64)
			takes = err != nil || weight > 0
		}
		switch {
		case name == mediaEvents:
			a.events = takes
		case name == mediaJSON, name == "application/problem+json", strings.HasSuffix(name, "+json"):
			rank = 3
		case name == "application/*":
			rank = 2
		case name == "*/*":
			rank = 1
		}
		if rank > best || rank == best && rank > 0 && takes {
			best, a.json = rank, takes
		}
	}
	return a
}
