package api

import (
	"net"
	"net/http"

	"github.com/dispatcherd/dispatcherd/internal/problem"
)

// Local admits programs and rejects web pages of other origins. It is for listeners on
// loopback without tokens. A browser on this host can reach such a listener. Any page can
// make the browser send a body with the media type of a form. A page can also read the
// answers if its own host name resolves to the loopback address.
func (h *Handler) Local(next http.Handler) http.Handler {
	pages := http.NewCrossOriginProtection()
	refuse := h.observed(route{path: "guard", handle: func(_ http.ResponseWriter, r *http.Request) error {
		if !isLocalHost(r.Host) {
			return problem.ForeignOrigin.Of("without tokens the Host of a request must be localhost or a loopback address: set it, or use --api-tokens")
		}
		return problem.ForeignOrigin.Of("a web page of another origin sent the request; without tokens only programs on this host and pages of the same origin are admitted")
	}})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocalHost(r.Host) || pages.Check(r) != nil {
			refuse(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLocalHost reports whether a Host is a local name of this machine. An empty Host is not.
func isLocalHost(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
		if n := len(name); n > 1 && name[0] == '[' && name[n-1] == ']' {
			name = name[1 : n-1]
		}
	}
	return name == "localhost" || net.ParseIP(name).IsLoopback()
}
