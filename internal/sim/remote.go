package sim

import (
	"math/rand/v2"
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
)

// In a world with the fault Remote, workers are connected over a network. Messages may be delayed while both ends
// believe that the connection is open, or disappear, and the two ends may notice the end of a connection at very
// different times. Workers go from one live dispatcher to another, because their connection ended, because they heard nothing, or
// because they were told to. Each worker follows the rules of package workerproto: it asks with pings how long its executions may
// continue, and gives them up in time.

// remote holds the parameters of remote workers. It uses its own random source; see pickDetachment.
type remote struct {
	random random
	keep   moment            // how long a dispatcher waits for a worker whose session has ended; 0 = all workers are local
	gap    moment            // mean time between two faults of the network
	served map[requestID]int // executions that have not ended
}

// requestID names a request, because each run of a dispatcher numbers its requests.
type requestID struct {
	host        int16
	incarnation uint32
	job         dispatcherd.JobID
}

// request names the request that was sent on a connection.
func (c *conn) request(job dispatcherd.JobID) requestID {
	return requestID{c.host, c.hostIncarnation, job}
}

// link is what the two ends of a connection over a network know of each other.
type link struct {
	helloAt   moment // when the worker sent the hello
	granted   moment // how long executions may continue after that, as the welcome says
	until     moment // when the executions of the worker must have ended; 0 = it has received nothing
	heardUp   moment // when the dispatcher last received something
	heardDown moment // when the worker last received something
	heldUntil moment // messages are held until then
	swallowed bool   // messages disappear
}

func (w *world) pickRemote() {
	r := &w.remote
	r.random.pcg = *rand.NewPCG(w.opt.Seed, 0x7e307e)
	if !w.opt.Every && r.random.below(3) > 0 {
		w.faults &^= Remote
	}
	if w.faults&Remote == 0 {
		return
	}
	r.keep = []moment{second / 2, second}[r.random.below(2)]
	r.gap = []moment{second / 10, second / 2, 2 * second}[r.random.below(3)]
	r.served = map[requestID]int{}
	w.scale.keepRunning = false // a handler that continues without its dispatcher may run beside the next attempt
}

// strict reports whether no job may be executed twice at one time. The faults that are excluded stop an execution at its
// dispatcher before they stop it at its worker: a dispatcher that stops without a hand-over, clocks that jump, and workers that
// cannot measure the time because they are suspended.
func (w *world) strict() bool { return w.remote.keep > 0 && w.faults&(Restart|Clocks|Suspend) == 0 }

// keep returns what a dispatcher promises to a worker now.
func (h *host) keep() moment {
	return max(0, min(h.world.remote.keep, moment(h.lease.Left(h.time()).Microseconds())))
}

// parts reports whether a dispatcher treats its workers as remote ones.
func (h *host) parts() bool { return h.world.remote.keep > 0 && h.world.opt.Break != WithoutParting }

// moves reports whether the worker of a connection goes to another dispatcher when it is told to.
func (h *host) moves(c *conn) bool {
	return h.world.remote.keep > 0 && len(h.world.hosts) > 1 && !h.world.workers[c.worker].notResumable
}

// opened begins the duties of the worker's end of a connection.
func (k *worker) opened(c *conn) {
	w := k.world
	if w.remote.keep == 0 {
		return
	}
	c.link = link{helloAt: w.now, heardUp: w.now, heardDown: w.now}
	k.planOf(workerPing, w.remote.keep/5, c)
	k.planOf(workerSilence, 2*w.remote.keep/5, c)
	w.plan(task{at: w.now + w.remote.keep, kind: hostSilence, who: c.host, incarnation: c.hostIncarnation, arg: c.number})
}

func (k *worker) planOf(o kind, after moment, c *conn) {
	k.world.plan(task{at: k.world.now + after, kind: o, who: k.id, incarnation: k.incarnation, arg: c.number})
}

// ping asks how long executions may continue.
func (k *worker) ping(c *conn) {
	if k.conn != c {
		return
	}
	k.world.write(c, &c.up, frame{kind: framePing, sent: k.world.now})
	k.planOf(workerPing, k.world.remote.keep/5, c)
}

// heard notes that something has arrived at the worker's end.
func (k *worker) heard(c *conn) {
	if k.world.remote.keep == 0 {
		return
	}
	if c.link.heardDown = k.world.now; c.link.until == 0 {
		k.grant(c, c.link.helloAt, c.link.granted)
		k.planOf(workerGuard, max(0, c.link.until-k.world.now), c)
	}
}

// grant extends the time of executions after an answer to something that was sent at a moment.
func (k *worker) grant(c *conn, sent, keep moment) {
	if k.world.opt.Break == WithoutGuard {
		keep = 1000 * second
	}
	c.link.until = max(c.link.until, sent+keep/5*4)
}

// guard gives up the executions of a connection whose time is over.
func (k *worker) guard(c *conn) {
	w := k.world
	switch {
	case k.conn != c:
	case c.link.until > w.now:
		k.planOf(workerGuard, c.link.until-w.now, c)
	default:
		for n := range k.slots {
			if i := k.slots[n].execution; i >= 0 && w.executions.all[i].conn == c.number && !w.executions.all[i].detached {
				w.stats.Expired++
				k.slots[n].execution = -1
				w.dropExecution(i)
			}
		}
		k.redial()
	}
}

// redial ends the connection and connects to another dispatcher.
func (k *worker) redial() {
	k.hangUp()
	k.plan(workerDial, k.world.random.span(second/1000, second/20))
}

// notice ends a connection on which the worker has heard nothing for too long.
func (k *worker) notice(c *conn) {
	limit := 2 * k.world.remote.keep / 5
	switch silent := k.world.now - c.link.heardDown; {
	case k.conn != c:
	case silent < limit:
		k.planOf(workerSilence, limit-silent, c)
	default:
		k.redial()
	}
}

// isSilent reports whether the dispatcher has heard nothing for too long. If not, it looks again later.
func (h *host) isSilent(c *conn) bool {
	w := h.world
	silent := w.now - c.link.heardUp
	if silent < w.remote.keep && w.remote.keep > 0 {
		h.plan(hostSilence, w.now+w.remote.keep-silent, c.number)
		return false
	}
	return true
}

// next chooses the dispatcher that a remote worker dials.
func (k *worker) next() {
	w := k.world
	if w.remote.keep == 0 || len(w.hosts) == 1 {
		return
	}
	if h := w.hosts[k.host]; h.sentAway || w.remote.random.below(2) == 0 {
		k.host = int16((int64(k.host) + 1 + w.remote.random.below(int64(len(w.hosts)-1))) % int64(len(w.hosts)))
	}
}

// disturbNetwork injects a fault of the network or sends workers away.
func (w *world) disturbNetwork() {
	if w.healing {
		return
	}
	d := &w.remote.random
	w.plan(task{at: w.now + 1 + d.span(0, 4*w.remote.gap), kind: networkTurn})
	h := w.hosts[d.below(int64(len(w.hosts)))]
	c := w.workers[d.below(int64(len(w.workers)))].conn
	length := w.remote.keep / 3 * []moment{1, 4, 12}[d.below(3)]
	switch n := d.below(8); {
	case n == 5:
		h.isolate(length)
	case n == 6:
		h.isolate(length)
		for _, number := range h.conns {
			w.hold(w.conns[number], length)
		}
	case n == 7:
		h.sendAway(length)
	case c == nil:
	case n < 3: // n = 0: only this connection; otherwise the worker reaches no dispatcher
		if w.hold(c, length); n > 0 {
			w.workers[c.worker].cutUntil = w.now + length
		}
	case n == 3:
		w.stats.Partitions++
		c.link.swallowed = true
	default:
		w.endOneSide(c, length)
	}
}

// hold delays all messages of a connection.
func (w *world) hold(c *conn, length moment) {
	w.stats.Partitions++
	c.link.heldUntil = max(c.link.heldUntil, w.now+length)
	for _, p := range []*pipe{&c.up, &c.down} {
		for i := p.head; i < len(p.frames); i++ {
			if f := &p.frames[i]; f.at > w.now {
				f.at = max(f.at, c.link.heldUntil)
				p.last = max(p.last, f.at)
			}
		}
	}
}

// endOneSide ends a connection for the dispatcher, as a proxy does that was cut off from the worker. What the dispatcher
// has sent before reaches the worker later.
func (w *world) endOneSide(c *conn, length moment) {
	h := w.hosts[c.host]
	w.hold(c, length)
	if !c.hostEnd.closed && c.hostIncarnation == h.incarnation && !h.stopped && h.core != nil {
		c.up.frames = c.up.frames[:c.up.head]
		h.disconnect(c)
	}
}

// isolate cuts a dispatcher off from Postgres.
func (h *host) isolate(length moment) {
	w := h.world
	if h.isolated {
		return
	}
	w.stats.Isolations++
	h.isolated = true
	w.plan(task{at: w.now + length, kind: networkRepair, who: h.id})
}

// sendAway drains a dispatcher for a while, unless all others are drained.
func (h *host) sendAway(length moment) {
	w := h.world
	if others := slices.IndexFunc(w.hosts, func(o *host) bool { return o != h && !o.sentAway }); others < 0 || h.sentAway || !h.works() {
		return
	}
	w.stats.SentAway++
	h.sentAway = true
	h.step(actor.SentAway{On: true})
	w.plan(task{at: w.now + length, kind: networkRepair, who: h.id})
}

// repair ends what isolate and sendAway have done.
func (h *host) repair() {
	h.isolated = false
	if !h.sentAway {
		return
	}
	if h.stopped { // it can be told nothing
		h.world.plan(task{at: h.world.now + second/10, kind: networkRepair, who: h.id})
		return
	}
	if h.sentAway = false; h.core != nil && !h.departing() {
		h.step(actor.SentAway{On: false})
	}
}

// executedTwice reports that a job begins while another worker executes it.
func (w *world) executedTwice(job dispatcherd.JobID) {
	if w.strict() {
		w.violate("job %d is executed twice at one time", job)
	}
}

// serves notes the begin of an execution of a request.
func (w *world) serves(r requestID) {
	if w.remote.keep == 0 {
		return
	}
	if w.remote.served[r]++; w.remote.served[r] > 1 {
		w.executedTwice(r.job)
	}
}

// served notes the end of an execution of a request.
func (w *world) served(r requestID) {
	if n := w.remote.served[r]; n > 1 {
		w.remote.served[r]--
	} else if n == 1 {
		delete(w.remote.served, r)
	}
}
