package sim

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// The checks of this file concern detached executions and hand-overs.

// handsOver records a hand-over of the rows of a run.
func (j *judge) handsOver(w *world, run int32) {
	if j.handOvers == nil {
		j.handOvers = map[int32]bool{}
	}
	j.handOvers[run] = true
	j.leased(run, w.now+w.detach.window)
	for _, r := range w.table.Rows() {
		if r.Status == dispatcherd.Running && r.Dispatcher == run {
			w.stats.HandedOver++
		}
	}
}

// leased records until when a run must not be declared lost.
func (j *judge) leased(run int32, until moment) {
	if j.leases == nil {
		j.leases = map[int32]moment{}
	}
	j.leases[run] = until
}

// declaredLost checks that a run has sent no heartbeat for its lease, and that handed-over
// rows wait for the whole window, whatever the database clock shows. The clock of a host
// that runs fast may end both early.
func (j *judge) declaredLost(w *world, run int32) {
	if until := j.leases[run]; until > w.now && !w.wrongHostClocks() {
		w.violate("run %d is declared lost %v before the end of its lease or hand-over", run, (until - w.now).duration())
	}
}

// adopted checks an adoption. Only the worker that started the running attempt
// may offer it, from the session in which the attempt started. The adopting
// dispatcher must not be declared lost.
func (j *judge) adopted(w *world, p *contract.ResumeOffer, r *claimfake.Row, s *claimfake.Statement) {
	again := r.Dispatcher == s.Dispatcher() && r.Token == s.Token()
	switch {
	case r.Status != dispatcherd.Running || r.Attempt != p.Attempt:
		w.violate("attempt %d of job %d was adopted, while attempt %d in status %s is current", p.Attempt, p.ID, r.Attempt, r.Status)
	case w.table.Lost(s.Dispatcher()) || w.table.Leaving(s.Dispatcher()):
		w.violate("dispatcher %d adopted job %d although it was declared lost or has left", s.Dispatcher(), p.ID)
	case session(r.Session) != session(p.From) && !again:
		w.violate("job %d is adopted by dispatcher %d from a session to which it was not sent", p.ID, s.Dispatcher())
	case w.job(p.ID).started == r.Attempt && w.workerOf(p.To) != w.job(p.ID).ranBy:
		w.violate("job %d is adopted for worker %d, but worker %d runs it", p.ID, w.workerOf(p.To), w.job(p.ID).ranBy)
	default:
		j.lateAdoption(w, p, r, s)
	}
}

// lateAdoption checks an adoption after the worker has returned to the former
// dispatcher. If the worker returned with a later generation, the adoption
// must not succeed.
func (j *judge) lateAdoption(w *world, p *contract.ResumeOffer, r *claimfake.Row, s *claimfake.Statement) {
	heir := w.hostOf(s.Dispatcher())
	for at := w.job(p.ID).execution; at != 0; at = w.executions.all[at-1].next {
		e := &w.executions.all[at-1]
		if e.attempt != p.Attempt {
			continue
		}
		c := w.conns[e.conn]
		if e.detached && e.offeredConn != 0 {
			c = w.conns[e.offeredConn-1]
		}
		h := w.hosts[c.host]
		if w.workers[e.worker].conn == c && h.connected(c) && h.client.Dispatcher() == r.Dispatcher && !h.fenced && h != heir {
			w.stats.LateAdoptions++
			if p.To != p.From && session(r.Session) == session(p.To) && r.Session != p.From && r.Session&0xffff >= p.To&0xffff {
				w.violate("job %d is adopted by dispatcher %d for an earlier generation than that of dispatcher %d", p.ID, heir.id, h.id)
			}
		}
	}
}

// workerOf returns the worker of a session.
func (w *world) workerOf(fp contract.Fingerprint) int16 {
	for _, c := range slices.Backward(w.conns) {
		if session(c.fingerprint()) == session(fp) {
			return c.worker
		}
	}
	return -1
}

// resumes checks that an execution is resumed on the worker that runs it.
func (j *judge) resumes(w *world, e *effect.Resume) {
	if !w.runsAttempt(e.Job, e.Attempt) {
		return // ended or released meanwhile
	}
	if k, r := w.conns[e.Session-1].worker, w.job(e.Job); r.ranBy != k {
		w.violate("job %d is resumed on worker %d, but worker %d runs it", e.Job, k, r.ranBy)
	}
}

// releasedRunning checks that a dispatcher does not release an attempt while
// its worker is known to continue it. The dispatcher does not know it if the
// connection broke, if it could not prove its lease, or if it told its workers
// to stop.
func (j *judge) releasedRunning(w *world, f *contract.Finish, s *claimfake.Statement) {
	if o := f.Outcome; o != contract.Released && o != contract.Crashed && o != contract.Isolated {
		return
	}
	h := w.hostOf(s.Dispatcher())
	if h.client.Dispatcher() != s.Dispatcher() || h.fenced || h.revoked || w.detach.window == 0 {
		return
	}
	for at := w.job(f.ID).execution; at != 0; at = w.executions.all[at-1].next {
		e := &w.executions.all[at-1]
		if e.attempt != f.Attempt {
			continue
		}
		if !e.detached && w.workers[e.worker].conn != w.conns[e.conn] {
			continue // its worker has given it up
		}
		if !w.mayRelease(h, e) {
			w.violate("attempt %d of job %d is released (%v) by dispatcher %d, while worker %d continues it", f.Attempt, f.ID,
				f.Outcome, h.id, e.worker)
		}
	}
}

// mayRelease reports whether a dispatcher may release an execution, because
// the connection on which the job was sent or resumed broke. If the dispatcher
// itself closed the connection, because of another job or before it decided
// the offers, it must wait for the resume window.
func (w *world) mayRelease(h *host, e *execution) bool {
	c := w.conns[e.conn]
	for _, o := range []*conn{c, w.conns[max(e.brokenConn, 1)-1]} {
		if (o == c || e.brokenConn != 0) && o.host == h.id && o.hostIncarnation == h.incarnation && o.hostEnd.closed && o.ignoredCancel == 0 {
			return true
		}
	}
	if e.offeredConn != 0 {
		if a := w.conns[e.offeredConn-1]; !e.detached || a.host == h.id && a.hostIncarnation == h.incarnation {
			c = a
		}
	}
	switch {
	case h.connected(c):
		return false
	case c.host != h.id || c.hostIncarnation != h.incarnation || !e.detached || w.faults&Clocks != 0:
		return true
	}
	return w.now-c.hostEnd.at > w.detach.window*9/10
}

// connected reports whether a connection exists as far as a dispatcher knows.
func (h *host) connected(c *conn) bool {
	return c.host == h.id && c.hostIncarnation == h.incarnation && !c.hostEnd.closed && c.hangUpFor == 0
}

// disconnects checks that a stopping dispatcher waits for its running jobs.
func (j *judge) disconnects(w *world, h *host, c *conn) {
	if h.time()-h.terminatedAt >= w.scale.grace.duration() {
		return
	}
	k := w.workers[c.worker]
	for n := range k.slots {
		i := k.slots[n].execution
		if i < 0 || k.conn != c {
			continue
		}
		e := &w.executions.all[i]
		if e.conn == c.number && w.runsAttempt(e.job, e.attempt) && w.table.Row(e.job).Dispatcher == h.client.Dispatcher() {
			w.violate("dispatcher %d disconnects worker %d %v after SIGTERM, during job %d: the grace is %v",
				h.id, k.id, h.time()-h.terminatedAt, e.job, w.scale.grace.duration())
			return
		}
	}
}
