package sim

import "math/rand/v2"

// carrying is what a world knows of work that outlives its connection.
type carrying struct {
	dice     dice
	window   moment // how long workers keep executions without a connection, and how long they are left to others; 0 = not at all
	patience moment // how long a dispatcher takes at most to say what of the work brought along goes on
	gap      moment // between two things that happen to such work
	plain    int64  // workers of 10,000 that cannot keep executions
	late     int64  // tries to connect again, of 10,000, that come late, maybe after the window
	wander   int64  // of 10,000 that go to another dispatcher
	bold     int64  // of 10,000 that bring along what is not the worker's
	short    bool   // the grace after a cancel is shorter than jobs are, so that sessions are hung up
}

// pickCarrying decides with dice of its own, so that a seed without such work is
// the world it always was.
func (w *world) pickCarrying() {
	c := &w.carry
	c.dice.pcg = *rand.NewPCG(w.opt.Seed, 0xca44)
	d := &c.dice
	if !w.opt.Every {
		for _, f := range []Faults{Resume, HandOver} {
			if d.below(2) == 0 {
				w.faults &^= f
			}
		}
	}
	if w.faults&carried == 0 {
		return
	}
	c.window = []moment{second, 4 * second, 12 * second}[d.below(3)]
	c.patience = []moment{second / 4, second}[d.below(2)]
	c.gap = []moment{second / 10, second / 2, 2 * second}[d.below(3)]
	c.plain = []int64{0, 0, 3000}[d.below(3)]
	c.late, c.wander, c.bold = 1000, 2000, 300
	c.short = w.faults&Shuffle != 0 && mix(w.opt.Seed, 0x73686f7274)&1 == 0
}

// shakeCarried lets something happen to work that outlives its connection.
func (w *world) shakeCarried() {
	if w.healing {
		return
	}
	d := &w.carry.dice
	w.plan(task{at: w.now + 1 + d.span(0, 4*w.carry.gap), kind: carryTurn})
	h := w.hosts[d.below(int64(len(w.hosts)))]
	k := w.workers[d.below(int64(len(w.workers)))]
	n := d.below(8)
	if n < 4 {
		if w.has(HandOver) {
			h.handOver()
		}
		return
	}
	switch {
	case !w.has(Resume):
	case n == 4:
		if h.up {
			w.stats.Crashes++
			h.die()
		}
	case n == 5:
		w.cutWorker(k)
	default:
		w.disturbReturn(k, n == 6)
	}
}

// disturbReturn breaks the connection, or ends the life, of a worker that is
// bringing something along.
func (w *world) disturbReturn(k *worker, kill bool) {
	for range w.workers {
		if k.conn != nil && k.conn.unwelcome || k.conn == nil && k.keeps() {
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

// dawdle is how much longer than usual a worker takes to connect again.
func (w *world) dawdle() moment {
	if w.carry.window == 0 || !w.has(Resume) || !w.carry.dice.chance(w.carry.late) {
		return 0
	}
	return w.carry.dice.span(0, 2*w.carry.window)
}

// wander lets a worker that has lost its dispatcher go to another one.
func (k *worker) wander() {
	w := k.world
	if w.carry.window == 0 || !w.has(Resume) || !k.keeps() || !w.carry.dice.chance(w.carry.wander) {
		return
	}
	k.host = int16(w.carry.dice.below(int64(len(w.hosts))))
}
