package sim

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/shell"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// A frame is one message between a worker and a dispatcher.
type frame struct {
	at         moment // arrival time
	job        dispatcherd.JobID
	attempt    dispatcherd.Attempt
	number     int32 // of a slot; of the first new slot
	count      int32 // of new slots
	retryAfter moment
	sent, keep moment // of a ping and its answer
	kind       frameKind
	typ        uint8 // of a job
	ok         bool
	returned   bool
	permanent  bool
}

type frameKind uint8

const (
	frameSlots   frameKind = iota // worker: hello or additional slots
	frameRemove                   // worker: removes a slot
	frameDrain                    // worker: removes all slots
	frameResult                   // worker
	frameReport                   // worker: partial output
	frameSpawn                    // worker: inserts children
	frameGoodbye                  // worker: it continues nothing
	framePing                     // worker: asks how long executions may continue
	framePong                     // dispatcher: the answer
	frameGoAway                   // dispatcher: the worker is to go to another one
	frameJob                      // dispatcher
	frameCancel                   // dispatcher
	frameStale                    // dispatcher
	frameOther                    // dispatcher: a frame that needs no reaction
	frameWelcome                  // dispatcher: the decided resume offers
	frameEnd                      // end of the stream or a broken connection
)

// A pipe is one direction of a connection. It keeps the order of frames.
type pipe struct {
	frames  []frame
	head    int
	last    moment // arrival time of the newest frame
	planned bool   // a read is planned
}

// conn is one connection of a worker. Session id = number + 1.
type conn struct {
	number          int32
	host            int16
	worker          int16
	hostIncarnation uint32
	up, down        pipe // to the dispatcher, to the worker
	hostEnd         end
	workEnd         end
	cut             bool
	draining        bool // the worker drains
	slots           []announcedSlot
	link            link

	resumeOffers  []resumeOffer     // offers in the hello of the worker
	resumed       []int32           // accepted offers, as positions in resumeOffers
	awaitsWelcome bool              // the worker waits for its welcome
	handshaking   bool              // the dispatcher has not decided the offers
	afterWelcome  []frame           // frames to send after the welcome
	ignoredCancel dispatcherd.JobID // the job that ignored its cancel, after the session ended
	hangUpFor     dispatcherd.JobID // the job that ignored its cancel, before the connection closes
}

type end struct {
	closed bool
	at     moment
}

// announcedSlot is a slot that a worker registered.
type announcedSlot struct {
	number int32
	set    int16
	at     moment
}

func (c *conn) session() dispatcherd.SessionID { return dispatcherd.SessionID(c.number + 1) }

// write sends a frame in one direction.
func (w *world) write(c *conn, p *pipe, f frame) {
	if c.cut && f.kind != frameEnd || c.link.swallowed {
		return
	}
	f.at = max(p.last, w.now+w.random.span(15, 150), c.link.heldUntil)
	p.last = f.at
	p.frames = append(p.frames, f)
	w.planRead(c, p)
}

func (w *world) planRead(c *conn, p *pipe) {
	if p.planned || p.head == len(p.frames) {
		return
	}
	p.planned = true
	t := task{at: max(w.now, p.frames[p.head].at), arg: c.number}
	if p == &c.up {
		t.kind, t.who, t.incarnation = hostRead, c.host, c.hostIncarnation
	} else {
		t.kind = workerRead
	}
	w.plan(t)
}

// arrived removes and returns the frames of a pipe that have arrived.
func (w *world) arrived(p *pipe) []frame {
	p.planned = false
	from := p.head
	for p.head < len(p.frames) && p.frames[p.head].at <= w.now {
		p.head++
	}
	return p.frames[from:p.head]
}

// readOn plans the next read and removes the frames that were read.
func (w *world) readOn(c *conn, p *pipe) {
	if p.head == len(p.frames) {
		p.frames, p.head = p.frames[:0], 0
	} else if p.head > 64 {
		n := copy(p.frames, p.frames[p.head:])
		p.frames, p.head = p.frames[:n], 0
	}
	w.planRead(c, p)
}

func (w *world) closeHostEnd(c *conn) {
	if c.hostEnd.closed {
		return
	}
	c.hostEnd = end{true, w.now}
	if !c.workEnd.closed {
		w.write(c, &c.down, frame{kind: frameEnd})
	}
}

func (w *world) closeWorkEnd(c *conn) {
	if c.workEnd.closed {
		return
	}
	c.workEnd.closed = true
	if !c.hostEnd.closed {
		w.write(c, &c.up, frame{kind: frameEnd})
	}
}

// cutConn breaks a connection. Each direction loses its last frames, and each
// end notices the break at its own time.
func (w *world) cutConn(c *conn) {
	if c.cut {
		return
	}
	c.cut = true
	for _, p := range []*pipe{&c.up, &c.down} {
		p.frames = p.frames[:p.head+int(w.random.below(int64(len(p.frames)-p.head+1)))]
		p.last = max(p.last, w.now+w.random.span(0, second/10))
		w.write(c, p, frame{kind: frameEnd})
	}
}

// readAtHost passes the frames of a worker to the shell. The simulator itself
// handles hellos and the end of the connection.
func (w *world) readAtHost(c *conn) {
	h := w.hosts[c.host]
	if c.hostEnd.closed || c.hostIncarnation != h.incarnation {
		return
	}
	var frames []workerproto.WorkerFrame
	deliver := func() {
		shell.Deliver(h.order, c.session(), workerName, frames, h.number, false)
		frames = frames[:0]
	}
	arrived := w.arrived(&c.up)
	if len(arrived) > 0 {
		c.link.heardUp = w.now
	}
	for i := range arrived {
		f := &arrived[i]
		if f.kind == framePing {
			deliver()
			h.sendFrame(c.session(), frame{kind: framePong, sent: f.sent, keep: h.keep()})
			continue
		}
		if decoded := w.decode(c, f); decoded != nil {
			frames = append(frames, decoded)
			continue
		}
		deliver()
		if f.kind == frameEnd {
			c.hostEnd = end{true, w.now}
			h.conns = slices.DeleteFunc(h.conns, func(o int32) bool { return o == c.number })
			h.unregister(c)
			break
		}
		c.link.granted = h.keep()
		if len(c.resumeOffers) > 0 {
			h.beginHandshake(c)
		} else {
			h.register(c, c.slots[f.number:f.number+f.count])
		}
	}
	deliver()
	w.readOn(c, &c.up)
}

// decode returns the frame that a worker sends, or nil for a hello and for the end of the
// connection.
func (w *world) decode(c *conn, f *frame) workerproto.WorkerFrame {
	execution := workerproto.Execution{Job: f.job, Attempt: f.attempt}
	switch {
	case f.kind == frameSlots && !f.ok:
		return &workerproto.SlotAdd{Slots: w.slotsOf(c.slots[f.number : f.number+f.count])}
	case f.kind == frameRemove:
		return &workerproto.SlotRemove{Slots: []int32{f.number}}
	case f.kind == frameDrain:
		return &workerproto.Drain{}
	case f.kind == frameGoodbye:
		return &workerproto.Goodbye{}
	case f.kind == frameReport && f.ok:
		return &workerproto.Partial{Execution: execution}
	case f.kind == frameReport:
		return &workerproto.Progress{Execution: execution}
	case f.kind == frameSpawn:
		return &workerproto.Spawn{Execution: execution, Request: 1}
	case f.kind != frameResult:
		return nil
	case f.ok:
		return &workerproto.Done{Execution: execution}
	case f.returned:
		return &workerproto.Release{Execution: execution}
	}
	return &workerproto.Fail{Execution: execution, Permanent: f.permanent, RetryAfter: f.retryAfter.duration()}
}

func (w *world) slotsOf(announced []announcedSlot) (slots []workerproto.Slot) {
	for _, o := range announced {
		slots = append(slots, workerproto.Slot{Number: o.number, Types: w.typeSets[o.set]})
	}
	return slots
}

// number assigns ids to new slots.
func (h *host) number(slots []workerproto.Slot) []dispatcherd.Slot {
	h.lastSlot += dispatcherd.SlotID(len(slots))
	return shell.Number(slots, h.lastSlot)
}

// workerName is the name of all workers.
const workerName = "worker"

// register passes the slots of a hello to the core.
func (h *host) register(c *conn, slots []announcedSlot) {
	shell.Register(h.order, actor.Registered{
		Session: c.session(), Worker: workerName, Fingerprint: c.fingerprint(), NotResumable: h.world.workers[c.worker].notResumable,
		Remote: h.parts(), Moves: h.moves(c), Slots: h.number(h.world.slotsOf(slots)),
	}, h.portion())
}

// unregister tells the core that a session has ended.
func (h *host) unregister(c *conn) {
	for _, n := range c.resumed {
		if b := &c.resumeOffers[n]; b.execution >= 0 {
			if e := &h.world.executions.all[b.execution]; e.live && e.job == b.job && e.attempt == b.attempt {
				e.brokenConn = c.number + 1
			}
		}
	}
	if h.world.opt.Break != WithoutEnd {
		h.step(actor.Unregistered{Session: c.session()})
	}
}

// beginHandshake passes the resume offers of a worker to the core. The free
// slots are registered when all offers are decided.
func (h *host) beginHandshake(c *conn) {
	w := h.world
	ev := actor.Registered{
		Session: c.session(), Worker: workerName, Fingerprint: c.fingerprint(), Remote: h.parts(), Moves: h.moves(c),
	}
	slots := h.number(w.slotsOf(c.slots[:len(c.resumeOffers)]))
	for i := range c.resumeOffers {
		b := &c.resumeOffers[i]
		mode := dispatcherd.Queued
		if w.job(b.job) == nil {
			mode = dispatcherd.OnDemand
		}
		ev.Offers = append(ev.Offers, actor.ResumeOffer{Job: b.job, Mode: mode, Attempt: b.attempt, From: b.from, To: b.to, Slot: slots[i]})
	}
	c.handshaking = true
	h.plan(hostHandshakeTimeout, w.now+w.detach.handshake, c.number)
	shell.Register(h.step, ev, h.portion())
}

// smallSteps reports whether the work of a step is so small that ordinary events
// take several steps. This is the case for every second dispatcher.
func (h *host) smallSteps() bool { return h.id%2 == 1 }

// portion returns the size of the events that register slots.
func (h *host) portion() int {
	if h.smallSteps() {
		return 24
	}
	return shell.Portion
}

// recordResume records an accepted offer.
func (h *host) recordResume(e *effect.Resume) {
	w := h.world
	c := w.conns[e.Session-1]
	w.stats.Resumed++
	for n := range c.resumeOffers {
		if b := &c.resumeOffers[n]; b.job == e.Job && b.slot.number == e.Number {
			c.resumed = append(c.resumed, int32(n))
		}
	}
}

// finishHandshake sends the welcome and then the frames that were deferred.
func (h *host) finishHandshake(c *conn) {
	w := h.world
	if c.hostEnd.closed || c.hostIncarnation != h.incarnation || !c.handshaking {
		return
	}
	h.register(c, c.slots[len(c.resumeOffers):])
	c.handshaking = false
	w.write(c, &c.down, frame{kind: frameWelcome})
	for _, f := range c.afterWelcome {
		w.write(c, &c.down, f)
	}
	c.afterWelcome = nil
}

// abortHandshake closes a connection whose handshake takes too long or which
// the core turns away.
func (h *host) abortHandshake(c *conn) {
	if c.handshaking && c.hostIncarnation == h.incarnation && !c.hostEnd.closed {
		h.disconnect(c)
	}
}

// disconnect closes a connection and unregisters its session.
func (h *host) disconnect(c *conn) {
	h.world.closeHostEnd(c)
	h.conns = slices.DeleteFunc(h.conns, func(o int32) bool { return o == c.number })
	h.unregister(c)
}
