package sim

import (
	"math/bits"
	"math/rand/v2"
)

// fault injects one of the faults of this world.
func (w *world) fault() {
	if w.healing {
		return
	}
	w.plan(task{at: w.now + 1 + w.random.span(0, 4*w.scale.faultGap), kind: faultTurn})
	able := uint32(w.faults & (Crash | Stop | Restart | Clocks | Unreachable | Kill | Suspend | Cut))
	n := bits.OnesCount32(able)
	if n == 0 {
		return
	}
	for range w.random.below(int64(n)) {
		able &= able - 1
	}
	h := w.hosts[w.random.below(int64(len(w.hosts)))]
	k := w.workers[w.random.below(int64(len(w.workers)))]
	switch Faults(able & -able) {
	case Crash:
		if h.up {
			w.stats.Crashes++
			h.crash()
		}
	case Stop:
		h.pause()
	case Restart:
		h.terminate(false)
	case Clocks:
		w.jumpClock(h)
	case Unreachable:
		w.isolatePostgres()
	case Kill:
		k.kill()
	case Suspend:
		k.suspend()
	case Cut:
		if k.conn != nil {
			w.stats.Cuts++
			w.cutConn(k.conn)
		}
	}
}

// jumpClock moves the clock of a host or of the database.
func (w *world) jumpClock(h *host) {
	by := w.random.between(-int64(5*second), int64(5*second))
	switch {
	case w.random.below(2) == 0 || w.exactHostClocks:
		w.postgres.offset = min(max(w.postgres.offset+by, epoch-int64(60*second)), epoch+int64(60*second))
	case h.up:
		h.jumpClock(by)
	}
}

// isolatePostgres makes Postgres unavailable: it restarts, which closes all
// connections, or it cannot be reached.
func (w *world) isolatePostgres() {
	t := &w.postgres
	if t.down || t.cut {
		return
	}
	w.stats.Unreachable++
	if w.random.below(2) == 0 {
		t.down = true
		w.breakConnections()
	} else {
		t.cut = true
	}
	w.plan(task{at: w.now + w.random.span(second/100, 6*second), kind: postgresUp, incarnation: uint32(w.stats.Unreachable)})
}

func (w *world) restorePostgres(number uint32) {
	if int(number) == w.stats.Unreachable {
		w.postgres.down, w.postgres.cut, w.postgres.restored = false, false, w.now
	}
}

// detachment holds the parameters of detached executions.
type detachment struct {
	random        random
	window        moment // how long workers keep detached executions, and how long handed-over rows wait for them; 0 = not at all
	handshake     moment // how long a dispatcher takes at most to decide the resume offers of a connection
	gap           moment // mean time between two faults of detached executions
	notResumable  int64  // workers of 10,000 that cannot keep executions
	reconnectLate int64  // reconnects of 10,000 that are late, possibly after the window
	otherHost     int64  // reconnects of 10,000 that go to another dispatcher
	forged        int64  // resume offers of 10,000 that are invalid
	shortGrace    bool   // the cancel grace is shorter than jobs are, so that sessions are ended
}

// pickDetachment uses its own random source. So the other properties of a
// world do not depend on whether the world has detached executions.
func (w *world) pickDetachment() {
	c := &w.detach
	c.random.pcg = *rand.NewPCG(w.opt.Seed, 0xca44)
	d := &c.random
	if !w.opt.Every {
		for _, f := range []Faults{Resume, HandOver} {
			if d.below(2) == 0 {
				w.faults &^= f
			}
		}
	}
	if w.faults&detachFaults == 0 {
		return
	}
	c.window = []moment{second, 4 * second, 12 * second}[d.below(3)]
	c.handshake = []moment{second / 4, second}[d.below(2)]
	c.gap = []moment{second / 10, second / 2, 2 * second}[d.below(3)]
	c.notResumable = []int64{0, 0, 3000}[d.below(3)]
	c.reconnectLate, c.otherHost, c.forged = 1000, 2000, 300
	c.shortGrace = w.faults&Shuffle != 0 && mix(w.opt.Seed, 0x73686f7274)&1 == 0
}

// disturbDetached injects one fault that concerns detached executions.
func (w *world) disturbDetached() {
	if w.healing {
		return
	}
	d := &w.detach.random
	w.plan(task{at: w.now + 1 + d.span(0, 4*w.detach.gap), kind: detachedTurn})
	h := w.hosts[d.below(int64(len(w.hosts)))]
	k := w.workers[d.below(int64(len(w.workers)))]
	n := d.below(8)
	if n < 4 {
		if w.has(HandOver) {
			h.terminate(true)
		}
		return
	}
	switch {
	case !w.has(Resume):
	case n == 4:
		if h.up {
			w.stats.Crashes++
			h.crash()
		}
	case n == 5:
		w.cutWorker(k)
	default:
		w.disturbResume(k, n == 6)
	}
}

// disturbResume cuts off or kills a worker that is about to offer executions.
func (w *world) disturbResume(k *worker, kill bool) {
	for range w.workers {
		if k.conn != nil && k.conn.awaitsWelcome || k.conn == nil && k.hasDetached() {
			break
		}
		k = w.workers[(int(k.id)+1)%len(w.workers)]
	}
	if kill && w.has(Kill) {
		k.kill()
		return
	}
	w.cutWorker(k)
}

func (w *world) cutWorker(k *worker) {
	if k.conn != nil && !k.conn.cut {
		w.stats.Cuts++
		w.cutConn(k.conn)
	}
}

// reconnectDelay returns an additional delay before a worker reconnects.
func (w *world) reconnectDelay() moment {
	if w.detach.window == 0 || !w.has(Resume) || !w.detach.random.chance(w.detach.reconnectLate) {
		return 0
	}
	return w.detach.random.span(0, 2*w.detach.window)
}

// changeHost lets a worker with detached executions dial another dispatcher.
func (k *worker) changeHost() {
	w := k.world
	if w.detach.window == 0 || !w.has(Resume) || !k.hasDetached() || !w.detach.random.chance(w.detach.otherHost) {
		return
	}
	k.host = int16(w.detach.random.below(int64(len(w.hosts))))
}
