package daemon

import (
	"encoding/json"
	"fmt"
	"net"

	"go.uber.org/zap"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// permit returns why the user of a worker may not serve a type, or "".
func (d *Daemon) permit(p workerproto.Peer, typ string) string {
	objection := d.cfg.Allow.Objection(p, typ)
	if objection != "" {
		d.metrics.workers.denied.Inc()
		d.workers.denials.peer(p, zap.String("type", typ))
	}
	return objection
}

// identifyWorker decides who a worker over TCP is.
func (d *Daemon) identifyWorker(conn net.Conn, token string) (workerproto.Peer, string) {
	who, objection := d.listeners.visitors.identify(conn, token)
	if objection == "" && who.Rights&httpapi.MayWork == 0 {
		objection = httpapi.Lacks(who.Peer, "worker", "a worker")
	}
	if objection != "" {
		d.metrics.visitors.WithLabelValues("token").Inc()
		d.workers.strangers.peer(who.Peer, zap.String("reason", objection))
	}
	return who.Peer, objection
}

// permitSpawn returns why the user of a worker may not insert children, or "". A worker that
// inserts jobs needs the rights of a caller. Names of members are compared exactly, as
// Postgres does.
func (d *Daemon) permitSpawn(r *contract.SpawnRequest) string {
	if d.cfg.AllowAPI.Empty() {
		return ""
	}
	s := d.workers.find(r.Session)
	if s == nil {
		return "the session has ended"
	}
	if s.Peer().Address != "" && !d.cfg.AllowAPI.NamesProofs() {
		return ""
	}
	var jobs []map[string]json.RawMessage
	if err := json.Unmarshal(r.Jobs, &jobs); err != nil {
		return "the jobs are no array of objects"
	}
	for _, job := range jobs {
		var typ string
		if err := json.Unmarshal(job["type"], &typ); err != nil {
			return "a job has no type"
		}
		if objection := d.cfg.AllowAPI.CallerObjection(s.Peer(), typ); objection != "" {
			d.metrics.api.Denied(s.Peer(), typ)
			return objection
		}
	}
	return ""
}

// limited wraps a listener in the limit of connections per second and user. reject gets the text for a process that exceeds it.
func (d *Daemon) limited(l net.Listener, reject func(conn net.Conn, reason string)) net.Listener {
	tooFast := newLimitedLog(d.log, 1, "a user opens connections too fast; they are rejected")
	return &rateListener{l, newConnectionLimit(d.cfg.ConnectionRate), func(conn net.Conn, p workerproto.Peer) {
		tooFast.peer(p, zap.Stringer("listener", l.Addr()))
		reject(conn, fmt.Sprintf("uid %d opens more than %d connections per second: keep connections open, or try again later",
			p.UID, d.cfg.ConnectionRate))
	}}
}

// rejectWorker answers a connection on the worker socket with an error and closes it.
func (d *Daemon) rejectWorker(conn net.Conn, reason string) {
	workerproto.Reject(conn, d.metrics.workers, workerproto.Complain(workerproto.TooManyConnections, "%s", reason))
}
