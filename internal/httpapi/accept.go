package httpapi

import (
	"mime"
	"net/http"
	"strings"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// wantsStream reads all Accept headers and reports whether to send events: only if one of them names their media type. All other
// callers get JSON, also those that do not name it, as RFC 9110 permits.
func wantsStream(r *http.Request) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		name, parameters, err := mime.ParseMediaType(part)
		if err == nil && name == rest.Events && parameters["q"] != "0" {
			return true
		}
	}
	return false
}
