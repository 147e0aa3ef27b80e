package httpapi

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// Tokens are the valid bearer tokens: the name of each by its SHA-256. The time of a look-up says nothing about a token, because
// callers cannot choose the bytes of a hash.
type Tokens map[[sha256.Size]byte]string

// ReadTokens reads one token per line: a name, white space, and the SHA-256 of
// the token in hex. It skips empty lines and lines that begin with #.
func ReadTokens(r io.Reader) (Tokens, error) {
	t := Tokens{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		var hash []byte
		if len(fields) == 2 {
			hash, _ = hex.DecodeString(fields[1]) // an error leaves it too short
		}
		if len(hash) != sha256.Size {
			return nil, fmt.Errorf("line %d is not a name and the SHA-256 of a token in hex: make one with "+
				"`printf %%s \"$TOKEN\" | sha256sum`", n)
		}
		t[[sha256.Size]byte(hash)] = fields[0]
	}
	if len(t) == 0 && lines.Err() == nil {
		return nil, errors.New("it contains no token")
	}
	return t, lines.Err()
}

// userOf returns the user of a request: the name of its token, or the user on the Unix socket.
// A user on the Unix socket contains a space, so it is not the name of a token.
func userOf(r *http.Request) string { return quota.UserOf(r.Context()) }

// callerName names the caller of a request for the table: the user, or the name of the token.
func callerName(r *http.Request) string {
	user := userOf(r)
	switch kind, id, onSocket := strings.Cut(user, " "); {
	case onSocket:
		return "api: " + kind + "=" + id // uid=1001
	case user == "":
		return "api"
	}
	return "api: token=" + user
}

// Guarded admits requests with one of the tokens that current returns. It calls current
// for every request. Probes need no token. No request may come from a web page of another origin.
func (h *Handler) Guarded(current func() Tokens) http.Handler {
	refuse := h.guard(rest.Unauthorized, "send Authorization: Bearer and a token this dispatcher knows")
	return h.sameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/livez", "/readyz", "/startupz":
			h.ServeHTTP(w, r)
			return
		}
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		name, ok := current()[sha256.Sum256([]byte(strings.TrimSpace(token)))]
		if !ok || !strings.EqualFold(scheme, "Bearer") {
			h.obs.Refused(BoundToken)
			refuse(w, r)
			return
		}
		h.ServeHTTP(w, r.WithContext(quota.WithUser(r.Context(), name)))
	}))
}
