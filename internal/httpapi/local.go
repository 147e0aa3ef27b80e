package httpapi

import (
	"net"
	"net/http"
	"strings"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// Local admits programs and rejects web pages of other origins. It is for listeners without tokens. A browser on this host can
// reach such a listener, also a Unix socket that a user forwards to a port. Any page can make the browser send a body with the
// media type of a form. A page can also read the answers if its own domain resolves to the loopback address, so a Host that can
// be the domain of a page is rejected. Programs on a Unix socket send any other name.
func (h *Handler) Local(next http.Handler) http.Handler {
	foreign := h.guard(rest.ForeignOrigin,
		"without tokens the Host of a request must not be a domain or the address of another host: set it to localhost, or use --api-tokens")
	return h.sameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isForeign(r.Host) {
			foreign(w, r)
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// sameOrigin rejects requests that a browser sends for a page of another origin.
func (h *Handler) sameOrigin(next http.Handler) http.Handler {
	pages := http.NewCrossOriginProtection()
	pages.SetDenyHandler(h.guard(rest.ForeignOrigin,
		"a web page of another origin sent the request; only programs and pages of the same origin are admitted"))
	return pages.Handler(next)
}

// guard returns a handler that refuses a request before it reaches a route.
func (h *Handler) guard(kind rest.Kind, detail string) http.HandlerFunc {
	return h.observed(rest.Raw("", " guard", "", func(http.ResponseWriter, *rest.Request) error { return kind.Of(detail) }))
}

// isForeign reports whether a Host can be the domain of a web page, or is the address of another host. A path of a socket, as
// some programs send it, contains a percent sign.
func isForeign(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	return strings.ContainsAny(name, ".:") && !strings.Contains(host, "%") && !net.ParseIP(name).IsLoopback()
}
