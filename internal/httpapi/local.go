package httpapi

import (
	"net"
	"net/http"
	"strings"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// Local admits programs and rejects web pages of other origins. It is for listeners on
// loopback without tokens. A browser on this host can reach such a listener. Any page can
// make the browser send a body with the media type of a form. A page can also read the
// answers if its own host name resolves to the loopback address.
func (h *Handler) Local(next http.Handler) http.Handler {
	return h.sameOrigin(
		next,
		isLocalHost,
		"without tokens the Host of a request must be localhost or a loopback address: set it, or use --api-tokens",
	)
}

// OverUnix is like Local, but for a Unix socket. A user can forward the socket to a port
// that a browser can reach. Programs on a Unix socket send any name as Host, so only names
// that a web page can have are rejected.
func (h *Handler) OverUnix(next http.Handler) http.Handler {
	return h.sameOrigin(next, func(host string) bool { return isLocalHost(host) || !isDomain(host) },
		"over the Unix socket the Host of a request must not be a domain: set it to localhost")
}

// sameOrigin rejects requests that a browser sends for a page of another origin, and
// requests with a Host that admits does not admit. hint says which Host is admitted.
func (h *Handler) sameOrigin(next http.Handler, admits func(host string) bool, hint string) http.Handler {
	pages := http.NewCrossOriginProtection()
	foreign := h.guard(rest.ForeignOrigin, hint)
	page := h.guard(rest.ForeignOrigin,
		"a web page of another origin sent the request; only programs and pages of the same origin are admitted")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !admits(r.Host):
			foreign(w, r)
		case pages.Check(r) != nil:
			page(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// guard returns a handler that refuses a request before it reaches a route.
func (h *Handler) guard(kind rest.Kind, detail string) http.HandlerFunc {
	return h.observed(rest.Raw("", " guard", "", func(http.ResponseWriter, *rest.Request) error { return kind.Of(detail) }))
}

// isLocalHost reports whether a Host is a local name of this machine. An empty Host is not.
func isLocalHost(host string) bool {
	name := hostName(host)
	return name == "localhost" || net.ParseIP(name).IsLoopback()
}

// isDomain reports whether a Host can be the domain of a web page. A path of a socket, as
// some programs send it, contains a percent sign.
func isDomain(host string) bool {
	return strings.Contains(hostName(host), ".") && !strings.Contains(host, "%")
}

// hostName returns a Host without its port and brackets.
func hostName(host string) string {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
		if n := len(name); n > 1 && name[0] == '[' && name[n-1] == ']' {
			name = name[1 : n-1]
		}
	}
	return name
}
