package sim

import "math/bits"

// fault lets something go wrong that this world knows.
func (w *world) fault() {
	if w.healing {
		return
	}
	w.plan(task{at: w.now + 1 + w.dice.span(0, 4*w.scale.faultGap), kind: faultTurn})
	able := uint32(w.faults & (Crash | Stop | Restart | Clocks | Outage | Kill | Freeze | Cut))
	n := bits.OnesCount32(able)
	if n == 0 {
		return
	}
	for range w.dice.below(int64(n)) {
		able &= able - 1
	}
	h := w.hosts[w.dice.below(int64(len(w.hosts)))]
	k := w.workers[w.dice.below(int64(len(w.workers)))]
	switch Faults(able & -able) {
	case Crash:
		if h.up {
			w.stats.Crashes++
			h.die()
		}
	case Stop:
		h.pause()
	case Restart:
		h.terminate()
	case Clocks:
		w.jump(h)
	case Outage:
		w.outage()
	case Kill:
		k.kill()
	case Freeze:
		k.freeze()
	case Cut:
		if k.conn != nil {
			w.stats.Cuts++
			w.cutConn(k.conn)
		}
	}
}

// jump moves the clock of a host or of the database.
func (w *world) jump(h *host) {
	by := w.dice.between(-int64(5*second), int64(5*second))
	switch {
	case w.dice.below(2) == 0:
		w.table.offset = min(max(w.table.offset+by, epoch-int64(60*second)), epoch+int64(60*second))
	case h.up:
		h.shift(by)
	}
}

// outage takes Postgres away: it restarts, which ends every connection, or
// nothing gets through to it any more.
func (w *world) outage() {
	t := &w.table
	if t.down || t.cut {
		return
	}
	w.stats.Outages++
	if w.dice.below(2) == 0 {
		t.down = true
		w.breakConnections()
	} else {
		t.cut = true
	}
	w.plan(task{at: w.now + w.dice.span(second/100, 6*second), kind: postgresUp, life: uint32(w.stats.Outages)})
}

func (w *world) restorePostgres(outage uint32) {
	if int(outage) == w.stats.Outages {
		w.table.down, w.table.cut, w.table.restored = false, false, w.now
	}
}
