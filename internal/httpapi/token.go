package httpapi

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/quota"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// Rights are what the holder of a token or of a certificate may do.
type Rights uint8

// The rights. They are bits.
const (
	MayWork    Rights = 1 << iota // connect as a worker
	MayRead                       // read everything except payloads, results, progress, errors and logs of jobs
	MayOperate                    // make calls that change something
	MayReveal                     // read payloads, results, progress, errors and logs of jobs

	AllRights = MayWork | MayRead | MayOperate | MayReveal
)

// roles are the rights that a line of the token file can give.
var roles = map[string]Rights{
	"worker": MayWork, "read": MayRead, "operate": MayRead | MayOperate, "payload": MayRead | MayReveal,
}

// Holder is who holds a token or a certificate.
type Holder struct {
	Name   string
	Rights Rights
}

// Tokens are the holders of the valid bearer tokens and certificates, by their keys: [KeyOf], or [Certificate] and the name. nil = there is
// no file of tokens.
type Tokens map[string]Holder

// Certificate begins the name of a certificate in the file of tokens. The name "*" stands for all certificates without a line.
const Certificate = "cert:"

// ReadTokens reads one token per line: a name, the SHA-256 of the token in hex, and optionally its role, with white space between them. A
// line for a certificate has cert:NAME, a hyphen and optionally a role. It skips empty lines and lines that begin with #. All tokens and
// certificates without a line are refused.
func ReadTokens(r io.Reader) (Tokens, error) {
	t := Tokens{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, math.MaxInt) // the caller bounds the file
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if err := t.add(fields); err != nil {
			return nil, fmt.Errorf("line %d %w", n, err)
		}
	}
	return t, lines.Err()
}

// add adds a line. Its errors quote nothing of it except the role, because it may contain a token.
func (t Tokens) add(fields []string) error {
	holder := Holder{Name: fields[0], Rights: AllRights}
	if len(fields) == 3 {
		given, known := roles[fields[2]]
		if !known {
			return fmt.Errorf("gives an unknown role: give one of %s, or none for all rights", strings.Join(slices.Sorted(maps.Keys(roles)), ", "))
		}
		holder.Rights, fields = given, fields[:2]
	}
	key := holder.Name
	if name, is := strings.CutPrefix(key, Certificate); !is || len(fields) != 2 || fields[1] != "-" || name == "" {
		var hash []byte
		if len(fields) == 2 {
			hash, _ = hex.DecodeString(fields[1]) // an error leaves it too short
		}
		if len(hash) != sha256.Size {
			return errors.New("is not a name and the SHA-256 of a token in hex: make one with `printf %s \"$TOKEN\" | sha256sum`")
		}
		key = strings.ToLower(fields[1])
	}
	if _, twice := t[key]; twice {
		return errors.New("has the token or certificate of an earlier line: delete one of the two lines")
	}
	t[key] = holder
	return nil
}

// KeyOf returns the key of a token. The time of a search for it says nothing about the token, because it is a hash.
func KeyOf(token string) string {
	hash := sha256.Sum256([]byte(token))
	return hex.EncodeToString(hash[:])
}

// Holder returns who holds a token or a certificate, by its key. Without a file of tokens each certificate has all rights.
func (t Tokens) Holder(key string) (h Holder, known bool) {
	h, known = t[key]
	if name, is := strings.CutPrefix(key, Certificate); is {
		if !known {
			h, known = t[Certificate+"*"]
		}
		if t == nil {
			h.Rights, known = AllRights, true
		}
		h.Name = name
	}
	return h, known
}

// Visitor is a peer over TCP, with its rights.
type Visitor struct {
	workerproto.Peer

	Rights Rights
}

// visitorKey is the key of the Visitor in the context of a request over TCP that needs a token or a certificate.
type visitorKey struct{}

// peerOf returns who makes a call.
func peerOf(r *http.Request) workerproto.Peer {
	if v, ok := r.Context().Value(visitorKey{}).(Visitor); ok {
		return v.Peer
	}
	return workerproto.PeerOf(ConnOf(r))
}

// may reports whether the caller has rights. On a Unix socket, and without tokens, all callers have all rights.
func may(r *http.Request, needed Rights) bool {
	v, ok := r.Context().Value(visitorKey{}).(Visitor)
	return !ok || v.Rights&needed == needed
}

// permitRoute returns a problem if the role of the caller does not permit a call.
func permitRoute(rt *rest.Route, r *http.Request) error {
	needed, role := MayOperate, "operate"
	switch {
	case !strings.HasPrefix(rt.Path, "/"): // a guard, or no route
		return nil
	case rt.Reveals:
		needed, role = MayReveal, "payload"
	case rt.Method == http.MethodGet:
		needed, role = MayRead, "read"
	}
	if may(r, needed) {
		return nil
	}
	return lacks(r, role, "this call")
}

// lacks returns the problem of a caller without a role that something needs.
func lacks(r *http.Request, role, what string) error {
	return rest.Forbidden.Of(Lacks(peerOf(r), role, what))
}

// Lacks says that a peer has not a role that something needs, and what to do.
func Lacks(p workerproto.Peer, role, what string) string {
	return fmt.Sprintf("%s lacks the role %s, which %s needs: give it the role in --api-tokens of the dispatcher", p, role, what)
}

// userOf returns the user of a request: the name of its token, or the user on the Unix socket.
// A user on the Unix socket contains a space, so it is not the name of a token.
func userOf(r *http.Request) string { return quota.UserOf(r.Context()) }

// Guarded admits requests of visitors that Identify knows. Probes need no proof, and the metrics need none if openMetrics is true. No
// request may come from a web page of another origin. An answer to an unknown visitor closes its connection, and its body is not read.
func (h *Handler) Guarded(openMetrics bool) http.Handler {
	return h.sameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/livez", "/readyz", "/startupz":
			h.ServeHTTP(w, r)
			return
		}
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			token = ""
		}
		visitor, objection := h.Identify(ConnOf(r), strings.TrimSpace(token))
		switch {
		case objection == "":
			identified(r, visitor.User())
			ctx := context.WithValue(quota.WithUser(r.Context(), visitor.User()), visitorKey{}, visitor)
			h.ServeHTTP(w, r.WithContext(ctx))
		case openMetrics && r.URL.Path == "/metrics":
			h.ServeHTTP(w, r)
		default:
			h.obs.Refused(BoundToken)
			w.Header().Set("Connection", "close")
			h.guard(rest.Unauthorized, objection)(w, r)
		}
	}))
}
