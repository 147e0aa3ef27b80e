package sim

import (
	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/shell"
)

// A worker is a process with slots.
type worker struct {
	world        *world
	id           int16
	host         int16 // whose socket it dials
	incarnation  uint32
	dead         bool
	stopped      bool
	conn         *conn // nil while there is none
	slots        []workerSlot
	number       int32  // last slot number used
	notResumable bool   // it cannot keep executions without a connection
	cutUntil     moment // it reaches no dispatcher until then
	inbox        []task
}

// workerSlot executes one job at a time.
type workerSlot struct {
	set        int16
	number     int32 // number under which it is registered; 0 = not registered
	execution  int32 // -1 = none
	lastReport sentReport
}

// addWorker adds a worker and returns its number of slots.
func (w *world) addWorker(host int16) int {
	k := &worker{
		world:        w,
		id:           int16(len(w.workers)),
		host:         host,
		notResumable: w.detach.window == 0 || w.detach.random.chance(w.detach.notResumable),
	}
	w.workers = append(w.workers, k)
	all := uint32(1)<<w.scale.types - 1
	for range 1 + w.random.below(6) {
		mask := uint32(1) << w.random.below(int64(w.scale.types))
		for w.random.below(3) == 0 {
			mask |= 1 << w.random.below(int64(w.scale.types))
		}
		k.slots = append(k.slots, workerSlot{set: w.set(mask), execution: -1})
	}
	if k.id == 0 { // one slot of the world supports all types
		k.slots = append(k.slots, workerSlot{set: w.set(all), execution: -1})
	}
	k.plan(workerDial, w.random.span(0, second/5))
	k.plan(slotTurn, w.random.span(second/10, second))
	return len(k.slots)
}

func (k *worker) plan(o kind, after moment) {
	k.world.plan(task{at: k.world.now + after, kind: o, who: k.id, incarnation: k.incarnation})
}

// do executes a task of the process.
func (k *worker) do(t *task) {
	switch {
	case t.kind == workerResume:
		k.resume()
	case t.kind == workerStart:
		if k.dead {
			k.dead = false
			k.dial()
		}
	case t.incarnation != k.incarnation:
		if t.kind == slotTurn {
			k.plan(slotTurn, second/2)
		}
	case k.stopped:
		k.inbox = append(k.inbox, *t)
	case t.kind == workerDial:
		k.dial()
	case t.kind == slotTurn:
		k.shuffle()
	case t.kind == workerPing:
		k.ping(k.world.conns[t.arg])
	case t.kind == workerSilence:
		k.notice(k.world.conns[t.arg])
	case t.kind == workerGuard:
		k.guard(k.world.conns[t.arg])
	case t.kind == workerHandshakeTimeout:
		k.handshakeTimeout(k.world.conns[t.arg])
	}
}

// dial connects and sends a hello with the resume offers and the free slots.
func (k *worker) dial() {
	w := k.world
	if k.dead || k.conn != nil {
		return
	}
	if w.now < k.cutUntil {
		k.plan(workerDial, k.cutUntil-w.now)
		return
	}
	k.changeHost()
	k.next()
	h := w.hosts[k.host]
	if h.sentAway && !k.hasDetached() || !h.up || h.core == nil || h.stop != nil && h.stop.Stage() >= shell.Settling {
		k.plan(workerDial, w.random.span(second/200, second/5))
		return
	}
	c := &conn{number: int32(len(w.conns)), host: h.id, worker: k.id, hostIncarnation: h.incarnation}
	w.conns = append(w.conns, c)
	h.conns = append(h.conns, c.number)
	k.conn = c
	k.opened(c)
	k.addOffers(c)
	k.announce(true)
}

// announce registers all free slots that are not yet registered.
func (k *worker) announce(hello bool) {
	w, c := k.world, k.conn
	if c.awaitsWelcome && !hello {
		return
	}
	first := len(c.slots)
	for i := range k.slots {
		if s := &k.slots[i]; s.number == 0 && s.execution < 0 {
			k.number++
			s.number = k.number
			c.slots = append(c.slots, announcedSlot{s.number, s.set, w.now})
		}
	}
	if n := len(c.slots) - first; n > 0 || hello {
		w.write(c, &c.up, frame{kind: frameSlots, number: int32(first), count: int32(n), ok: hello})
	}
}

// shuffle removes or adds slots, or drains, if this world has that fault.
func (k *worker) shuffle() {
	w := k.world
	k.plan(slotTurn, w.random.span(second/20, second))
	switch {
	case k.dead || k.conn == nil || k.conn.awaitsWelcome:
	case k.conn.draining:
		k.hangUp()
		k.plan(workerDial, w.random.span(second/100, second/2))
	case w.healing || !w.has(Shuffle):
		k.announce(false)
	case w.random.below(10) == 0:
		k.conn.draining = true
		w.write(k.conn, &k.conn.up, frame{kind: frameDrain})
	default:
		s := &k.slots[w.random.below(int64(len(k.slots)))]
		if s.number != 0 {
			w.write(k.conn, &k.conn.up, frame{kind: frameRemove, number: s.number})
			s.number, s.lastReport = 0, sentReport{}
			if k.id != 0 && s.execution < 0 {
				s.set = int16(w.random.below(int64(len(w.typeSets))))
			}
			return
		}
		k.announce(false)
	}
}

// hangUp closes the worker's end of the connection, as the kernel does when the
// process dies.
func (k *worker) hangUp() {
	c := k.conn
	k.conn = nil
	for i := range k.slots {
		k.slots[i].number = 0
	}
	switch {
	case !k.notResumable && !k.dead && !c.draining:
		k.detachExecutions(c)
	case !k.world.scale.keepRunning:
		k.dropExecutions()
	}
	if c.draining && !k.dead && k.world.remote.keep > 0 {
		k.world.write(c, &c.up, frame{kind: frameGoodbye})
	}
	k.world.closeWorkEnd(c)
}

// dropExecutions ends all executions without a report.
func (k *worker) dropExecutions() {
	for i := range k.slots {
		if e := k.slots[i].execution; e >= 0 {
			k.slots[i].execution = -1
			k.world.dropExecution(e)
		}
	}
}

// kill is kill -9.
func (k *worker) kill() {
	w := k.world
	if k.dead {
		return
	}
	w.stats.Kills++
	k.incarnation++
	k.dead, k.stopped = true, false
	k.inbox = k.inbox[:0]
	if k.conn != nil {
		k.hangUp()
	}
	k.dropExecutions()
	w.plan(task{at: w.now + w.random.span(second/1000, second), kind: workerStart, who: k.id})
	w.plan(task{at: w.now + second, kind: slotTurn, who: k.id, incarnation: k.incarnation})
}

// suspend is SIGSTOP. The dispatcher counts the worker as dead after
// silenceTimeout.
func (k *worker) suspend() {
	w := k.world
	if k.dead || k.stopped {
		return
	}
	w.stats.Suspensions++
	k.stopped = true
	if c := k.conn; c != nil && !c.hostEnd.closed && w.remote.keep == 0 {
		w.plan(task{at: w.now + w.scale.silenceTimeout, kind: hostSilence, who: c.host, incarnation: c.hostIncarnation, arg: c.number})
	}
	w.plan(task{at: w.now + w.random.span(second/100, 4*w.scale.silenceTimeout), kind: workerResume, who: k.id})
}

// resume is SIGCONT.
func (k *worker) resume() {
	w := k.world
	if !k.stopped {
		return
	}
	k.stopped = false
	for _, t := range k.inbox {
		t.at = w.now + w.random.span(0, millisecond)
		w.plan(t)
	}
	k.inbox = k.inbox[:0]
}

// readAtWorker handles the frames of a dispatcher.
func (w *world) readAtWorker(c *conn) {
	k := w.workers[c.worker]
	if c.workEnd.closed {
		return
	}
	if k.stopped {
		k.inbox = append(k.inbox, task{kind: workerRead, arg: c.number})
		return
	}
	frames := w.arrived(&c.down)
	if len(frames) > 0 {
		k.heard(c)
	}
	for i := range frames {
		f := &frames[i]
		switch f.kind {
		case frameJob:
			k.execute(c, f)
		case frameCancel, frameStale:
			w.stopExecution(k, f)
		case frameWelcome:
			k.welcomed(c)
		case framePong:
			k.grant(c, f.sent, f.keep)
		case frameGoAway:
			if k.conn == c && !c.draining && !c.awaitsWelcome {
				w.stats.Moves++
				k.redial()
				return
			}
		case frameEnd:
			c.workEnd.closed = true
			if c.ignoredCancel != 0 && !k.notResumable {
				k.dropIgnored(c.ignoredCancel)
			}
			k.hangUp()
			k.plan(workerDial, w.random.span(second/1000, second/10)+w.reconnectDelay())
			return
		}
	}
	w.readOn(c, &c.down)
}

// slotOf returns the slot with a number, or nil if it has been removed.
func (k *worker) slotOf(number int32) *workerSlot {
	for i := range k.slots {
		if k.slots[i].number == number {
			return &k.slots[i]
		}
	}
	return nil
}

// answer sends a result on the connection on which the job arrived.
func (k *worker) answer(c *conn, f frame) {
	f.kind = frameResult
	k.world.write(c, &c.up, f)
}

func (k *worker) returnJob(c *conn, job dispatcherd.JobID, attempt dispatcherd.Attempt) {
	k.answer(c, frame{job: job, attempt: attempt, returned: true})
}
