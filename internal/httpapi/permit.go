package httpapi

import (
	"net"
	"net/http"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow/flowapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// permit returns a problem if a user may not use jobs of a type.
func (h *Handler) permit(peer workerproto.Peer, typ string) error {
	if h.Permit == nil {
		return nil
	}
	objection := h.Permit(peer, typ)
	if objection == "" {
		return nil
	}
	h.obs.Refused(BoundUser)
	return problem.Forbidden.Of(objection)
}

// caller is the user of an HTTP connection to the Unix socket.
type caller struct {
	h    *Handler
	peer workerproto.Peer
	tcp  bool // tokens restrict callers over TCP
}

func (h *Handler) callerOf(r *http.Request) caller {
	c := caller{h: h}
	if h.Permit == nil {
		return c
	}
	conn := ConnOf(r)
	_, c.tcp = conn.(*net.TCPConn)
	c.peer = workerproto.PeerOf(conn)
	return c
}

// permit returns a problem if the caller may not use jobs of a type.
func (c caller) permit(typ string) error {
	if c.tcp {
		return nil
	}
	return c.h.permit(c.peer, typ)
}

// permitRow is permit for the type of a row or of a request in memory. It reads the type only if callers are restricted.
// It does not see a change of the type between its read and the operation that follows. Only
// the owner of the schema and dispatcherd_dispatcher can change a type.
func (h *Handler) permitRow(r *http.Request, id dispatcherd.JobID) error {
	if h.Permit == nil {
		return nil
	}
	if id.OnDemand() {
		why, err := h.backend.Why(r.Context(), id)
		if err == nil {
			err = h.callerOf(r).permit(why.Type)
		}
		return err
	}
	_, err := h.permittedRow(r, id)
	return err
}

// permittedRow reads a row. It returns a problem if the caller may not use jobs of its type.
func (h *Handler) permittedRow(r *http.Request, id dispatcherd.JobID) (contract.Job, error) {
	job, err := h.backend.Job(r.Context(), id)
	if err == nil {
		err = h.callerOf(r).permit(job.Type)
	}
	return job, err
}

// permitMembers returns a problem if a caller may not cancel the members of the batch or flow whose callback a job is: they are
// cancelled with it.
func (h *Handler) permitMembers(r *http.Request, id dispatcherd.JobID) error {
	if h.Permit == nil || id.OnDemand() {
		return nil
	}
	return flowapi.PermitCancel(r, h.backend.Flows(), tableHost{h}, id)
}

// narrow completes the filter of an operation. Waiting jobs may be callbacks, with which members of any type are cancelled. So only
// a caller of all types cancels them by a filter.
func (h *Handler) narrow(r *http.Request, op contract.Operation, f *contract.Filter) error {
	named := slices.Contains(f.Statuses, dispatcherd.Waiting)
	if err := op.Narrow(f); err != nil {
		return problem.InvalidRequest.Of(err.Error())
	}
	if h.Permit == nil || !slices.Contains(f.Statuses, dispatcherd.Waiting) {
		return nil
	}
	err := tableHost{h}.PermitAll(r)
	if err != nil && !named {
		f.Statuses = slices.DeleteFunc(slices.Clone(f.Statuses), func(s dispatcherd.Status) bool { return s == dispatcherd.Waiting })
		return nil
	}
	return err
}
