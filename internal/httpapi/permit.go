package httpapi

import (
	"net/http"
	"strings"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// permitsAll reports whether a user may use jobs of all types without a question.
func (h *Handler) permitsAll(peer workerproto.Peer) bool {
	return h.Permit == nil || peer.Address != "" && !h.PermitTCP
}

// permit returns a problem if a user may not use jobs of a type.
func (h *Handler) permit(peer workerproto.Peer, typ string) error {
	if h.permitsAll(peer) {
		return nil
	}
	return h.refuseUser(peer, typ, h.Permit(peer, typ))
}

// refuseUser returns a problem for an objection against a user, and reports it.
func (h *Handler) refuseUser(peer workerproto.Peer, typ, objection string) error {
	if objection == "" {
		return nil
	}
	h.obs.Refused(BoundUser)
	h.obs.Denied(peer, typ)
	return rest.Forbidden.Of(objection)
}

// caller implements rest.Caller. Permit restricts users of the Unix socket. It restricts callers over TCP only if it names some of them.
type caller struct {
	h *Handler
	r *http.Request
}

// Permit implements rest.Caller.
func (c caller) Permit(typ string) error { return c.h.permit(peerOf(c.r), typ) }

// PermitAll implements rest.Caller.
func (c caller) PermitAll() error {
	peer := peerOf(c.r)
	if c.h.PermitAll == nil || c.h.permitsAll(peer) {
		return nil
	}
	return c.h.refuseUser(peer, "all", c.h.PermitAll(peer))
}

// Permitted implements rest.Caller.
func (c caller) Permitted() func(typ string) bool {
	peer := peerOf(c.r)
	if c.h.permitsAll(peer) {
		return nil
	}
	return func(typ string) bool { return c.h.Permit(peer, typ) == "" }
}

// Reveals implements rest.Caller.
func (c caller) Reveals() bool { return may(c.r, MayReveal) }

// Name implements rest.Caller. It names the caller for the table: the user, or the name of the token.
func (c caller) Name() string {
	user := userOf(c.r)
	switch kind, id, onSocket := strings.Cut(user, " "); {
	case onSocket:
		return "api: " + kind + "=" + id // uid=1001, cert=gpu-1
	case user == "":
		return "api"
	}
	return "api: token=" + user
}

// ReadBody implements rest.Caller.
func (c caller) ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, func(), error) {
	if err := withoutKey(w, r); err != nil {
		return nil, nil, err
	}
	if !isJSON(r) {
		endBody(w, r, false)
		return nil, nil, rest.UnsupportedMedia.Of("send application/json")
	}
	body, held, err := c.h.readBody(w, r, int64(c.h.cfg.MaxPayload))
	return body, held.Drop, err
}

// permitRow returns a problem if the caller may not use the type of a row or of a request in memory. It reads the type only if callers
// are restricted. It does not see a change of the type between its read and the operation that follows. Only the owner of the schema
// and dispatcherd_dispatcher can change a type.
func (h *Handler) permitRow(r *rest.Request, id dispatcherd.JobID) error {
	if h.Permit == nil {
		return nil
	}
	if id.OnDemand() {
		_, err := h.getWhy(r, &anyID{id})
		return err
	}
	_, err := h.permittedRow(r, id)
	return err
}

// permittedRow reads a row. It returns a problem if the caller may not use jobs of its type.
func (h *Handler) permittedRow(r *rest.Request, id dispatcherd.JobID) (contract.Job, error) {
	job, err := h.backend.Job(r.Context(), id)
	if err == nil {
		err = r.Permit(job.Type)
	}
	return job, err
}
