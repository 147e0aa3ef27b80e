package sim

import (
	"slices"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// This file holds work that outlives its connection to the rules.

// handed is when the time is over for which rows are left to others, by the
// database clock and in truth.
type handOver struct {
	until int64
	end   moment
}

// handsOver notes until when the rows of a run are left to others.
func (j *judge) handsOver(w *world, run int32) {
	if j.handOvers == nil {
		j.handOvers = map[int32]handOver{}
	}
	j.handOvers[run] = handOver{w.dbNow() + int64(w.detach.window), w.now + w.detach.window}
	for n := range w.table.rows {
		if r := &w.table.rows[n]; r.status == running && r.dispatcher == run {
			w.stats.HandedOver++
		}
	}
}

// declaredLost: what was left to others stays so for the whole window. If the
// database clock goes back, a beat that arrives late begins it anew by a clock that
// shows less: then the true time counts.
func (j *judge) declaredLost(w *world, run int32) {
	if until, left := j.handOvers[run]; left && until.until > w.dbNow() && until.end > w.now {
		w.violate("the jobs of run %d were left to others for %v more, and it is declared lost", run, (until.end - w.now).duration())
	}
}

// adopted: an execution goes from hand to hand. Only the worker that began the
// live attempt can bring it along, from the session in which it began, to a
// dispatcher that nobody has declared lost.
func (j *judge) adopted(w *world, p *contract.ResumeOffer, r *row, s *statement) {
	m := w.table.member(s.run)
	again := r.dispatcher == s.run && r.token == s.token
	switch {
	case r.status != running || r.attempt != p.Attempt:
		w.violate("attempt %d of job %d was adopted, while attempt %d in status %d is live", p.Attempt, p.ID, r.attempt, r.status)
	case m.lost || m.leaving:
		w.violate("dispatcher %d adopted job %d although it was declared lost or has left", s.run, p.ID)
	case session(r.fingerprint) != session(p.From) && !again:
		w.violate("job %d is adopted by dispatcher %d from a session to which it was not handed", p.ID, s.run)
	case r.started == r.attempt && w.workerOf(p.To) != r.ranBy:
		w.violate("job %d is adopted for worker %d, but worker %d runs it", p.ID, w.workerOf(p.To), r.ranBy)
	default:
		j.lateAdoption(w, p, r, s)
	}
}

// stolen: what goes on at one dispatcher is adopted by no other.
func (j *judge) lateAdoption(w *world, p *contract.ResumeOffer, r *row, s *statement) {
	for at := r.execution; at != 0; at = w.executions.all[at-1].next {
		e := &w.executions.all[at-1]
		if e.attempt != p.Attempt {
			continue
		}
		c := w.conns[e.conn]
		if e.detached && e.offeredConn != 0 {
			c = w.conns[e.offeredConn-1]
		}
		h := w.hosts[c.host]
		if w.workers[e.worker].conn == c && h.connected(c) && h.run == r.dispatcher && !h.fenced && h.id != s.host {
			w.stats.LateAdoptions++
			if p.To != p.From && session(r.fingerprint) == session(p.To) && r.fingerprint != p.From && r.fingerprint&0xffff >= p.To&0xffff {
				w.violate("job %d is adopted by dispatcher %d for an earlier presentation than the one by which dispatcher %d has it", p.ID, s.host, h.id)
			}
		}
	}
}

// workerOf finds the worker of a session by its mark.
func (w *world) workerOf(fp contract.Fingerprint) int16 {
	for _, c := range slices.Backward(w.conns) {
		if session(c.fingerprint()) == session(fp) {
			return c.worker
		}
	}
	return -1
}

// resumes: an execution goes on only where it runs.
func (j *judge) resumes(w *world, e *actor.Resume) {
	r := w.table.row(e.Job)
	if r == nil || r.attempt != e.Attempt || r.status != running {
		return // over, or taken away meanwhile
	}
	if k := w.conns[e.Session-1].worker; r.ranBy != k {
		w.violate("job %d goes on at worker %d, but worker %d runs it", e.Job, k, r.ranBy)
	}
}

// givenBack: no execution is run anew while its worker is known to go on with
// it. It is not known if the connection broke, if the dispatcher could not prove
// its lease, or if it has told its workers to stop.
func (j *judge) releasedRunning(w *world, r *row, f *contract.Finish, s *statement) {
	if o := f.Outcome; o != contract.Released && o != contract.Crashed && o != contract.Isolated {
		return
	}
	h := w.hosts[s.host]
	if h.run != s.run || h.fenced || h.revoked || w.detach.window == 0 {
		return
	}
	for at := r.execution; at != 0; at = w.executions.all[at-1].next {
		e := &w.executions.all[at-1]
		if e.attempt != f.Attempt {
			continue
		}
		if !e.detached && w.workers[e.worker].conn != w.conns[e.conn] {
			continue // its worker has given it up
		}
		if !w.mayRelease(h, e) {
			w.violate("attempt %d of job %d is given back (%v) by dispatcher %d, and worker %d goes on with it", f.Attempt, f.ID, f.Outcome, h.id, e.worker)
		}
	}
}

// excused reports whether a dispatcher may give an execution up: it saw the
// connection break on which it was handed out or went on. One that it closed
// itself, because of another job or before it was known whose the execution is,
// leaves the worker the time to resume.
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

// reaches reports whether a connection is there, as far as a dispatcher knows.
func (h *host) connected(c *conn) bool {
	return c.host == h.id && c.hostIncarnation == h.incarnation && !c.hostEnd.closed && c.hangUpFor == 0
}

// cutsOff: who is told to stop waits for what runs.
func (j *judge) disconnects(w *world, h *host, c *conn) {
	if w.now-h.terminatedAt >= w.scale.grace {
		return
	}
	k := w.workers[c.worker]
	for n := range k.slots {
		i := k.slots[n].execution
		if i < 0 || k.conn != c {
			continue
		}
		e := &w.executions.all[i]
		if r := w.table.row(e.job); r != nil && e.conn == c.number && r.status == running && r.attempt == e.attempt && r.dispatcher == h.run {
			w.violate("dispatcher %d cuts worker %d off %v after it was told to stop, in the midst of job %d: the grace is %v",
				h.id, k.id, (w.now - h.terminatedAt).duration(), e.job, w.scale.grace.duration())
			return
		}
	}
}
