package httpapi

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Tokens is the set of the valid bearer tokens. It contains only their SHA-256 hashes.
type Tokens struct {
	names  []string
	hashes [][sha256.Size]byte
}

// maxTokens bounds the number of hashes that each token is compared with.
const maxTokens = 1000

// ReadTokens reads one token per line: a name, white space, and the SHA-256 of
// the token in hex. It skips empty lines and lines that begin with #.
func ReadTokens(r io.Reader) (*Tokens, error) {
	t := &Tokens{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		var hash []byte
		var err error
		if len(fields) == 2 {
			hash, err = hex.DecodeString(fields[1])
		}
		if err != nil || len(hash) != sha256.Size {
			return nil, fmt.Errorf("line %d is not a name and the SHA-256 of a token in hex: make one with "+
				"`printf %%s \"$TOKEN\" | sha256sum`", n)
		}
		if len(t.names) == maxTokens {
			return nil, fmt.Errorf("more than %d tokens", maxTokens)
		}
		t.names = append(t.names, fields[0])
		t.hashes = append(t.hashes, [sha256.Size]byte(hash))
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(t.names) == 0 {
		return nil, errors.New("it contains no token")
	}
	return t, nil
}

// Len returns the number of tokens.
func (t *Tokens) Len() int { return len(t.names) }

// owner returns the name of a token. It compares the token with all hashes, so that the
// duration does not depend on the result.
func (t *Tokens) owner(token string) (name string, ok bool) {
	sum := sha256.Sum256([]byte(token))
	found := 0
	for i := range t.hashes {
		same := subtle.ConstantTimeCompare(sum[:], t.hashes[i][:])
		found = subtle.ConstantTimeSelect(same, i+1, found)
	}
	if found == 0 {
		return "", false
	}
	return t.names[found-1], true
}

type scopeKey struct{}

// userOf returns the user of a request: the name of its token, or the user on the Unix socket.
// A user on the Unix socket contains a space, so it is not the name of a token.
func userOf(r *http.Request) string {
	if name, ok := r.Context().Value(scopeKey{}).(string); ok {
		return name
	}
	return workerproto.PeerOf(ConnOf(r)).User()
}

// callerName names the caller of a request for the table: the user, or the name of the token.
func callerName(r *http.Request) string {
	if name, ok := r.Context().Value(scopeKey{}).(string); ok {
		return "api: token=" + name
	}
	if p := workerproto.PeerOf(ConnOf(r)); p.UID >= 0 {
		return fmt.Sprintf("api: uid=%d", p.UID)
	}
	return "api"
}

// Guarded admits requests with one of the tokens that current returns. It calls current
// for every request. Probes need no token. Every request must name a Host, and none may come
// from a web page of another origin.
func (h *Handler) Guarded(current func() *Tokens) http.Handler {
	nameless := h.guard(rest.InvalidRequest, "the Host header is missing or empty: set it to the name or address of the dispatcher's host")
	refuse := h.guard(rest.Unauthorized, "send Authorization: Bearer and a token this dispatcher knows")
	return h.sameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "" {
			nameless(w, r)
			return
		}
		switch r.URL.Path {
		case "/livez", "/readyz", "/startupz":
			h.ServeHTTP(w, r)
			return
		}
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		name, ok := current().owner(strings.TrimSpace(token))
		if !ok || !strings.EqualFold(scheme, "Bearer") {
			h.obs.Refused(BoundToken)
			refuse(w, r)
			return
		}
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), scopeKey{}, name)))
	}), func(string) bool { return true }, "")
}
