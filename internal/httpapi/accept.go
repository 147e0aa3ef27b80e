package httpapi

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// wantsStream reads all Accept headers (RFC 9110) and reports whether to send events.
// Events are sent only if Accept names their media type. Otherwise JSON is sent if Accept
// permits it: the most specific range that matches JSON decides. Malformed ranges are
// ignored. The error says that Accept permits neither.
func wantsStream(r *http.Request) (bool, error) {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	if accept == "" {
		return false, nil
	}
	events, json := false, false
	best := 0 // specificity of the range that decides about JSON
	for part := range strings.SplitSeq(accept, ",") {
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
		case name == rest.Events:
			events = takes
		case name == rest.JSON, strings.HasSuffix(name, "+json"):
			rank = 3
		case name == "application/*":
			rank = 2
		case name == "*/*":
			rank = 1
		}
		if rank > best || rank == best && rank > 0 && takes {
			best, json = rank, takes
		}
	}
	if !events && !json {
		return false, rest.NotAcceptable.Of("application/json and text/event-stream can be sent")
	}
	return events, nil
}
