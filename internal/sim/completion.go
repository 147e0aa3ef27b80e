package sim

// sampleGap is the time between two samples (the first comes later), and maxIdleTicks
// how often a Core may ask to be woken for nothing in so long. One that spins asks every
// millisecond.
const (
	sampleGap    = second / 5
	maxIdleTicks = 60
)

// sample looks at what no single event shows.
func (w *world) sample() {
	if w.healing {
		return
	}
	w.plan(task{at: w.now + sampleGap, kind: sampleTurn})
	for _, run := range w.table.present {
		if w.table.member(run).lost {
			w.sweep()
			break
		}
	}
	for _, h := range w.hosts {
		if h.core != nil {
			w.checkIdleSlots(h)
		}
		if gap := w.now - w.sampledAt; int64(h.idleTicks)*int64(sampleGap) > maxIdleTicks*int64(gap) {
			w.violate("dispatcher %d spins: %d alarms for nothing in %v", h.id, h.idleTicks, gap.duration())
		}
		h.idleTicks = 0
	}
	w.sampledAt = w.now
}

// idleBesideWaiting: no slot stays free beside a job that it could do. A slot
// may look free at one glance, between two jobs; it must not at every glance.
func (w *world) checkIdleSlots(h *host) {
	free := &w.judge.freeSince[h.id]
	freeNow := [maxTypes]bool{}
	if !h.stopped && h.exitStage == 0 {
		for _, t := range h.core.Types() {
			freeNow[typeNumber(t.Name)] = t.Free > 0
		}
	}
	for t := range free {
		switch {
		case !freeNow[t]:
			free[t] = 0
		case free[t] == 0:
			free[t] = w.now
		case w.undisturbed() && w.now-free[t] > slack:
			w.checkWaiting(h, t)
		}
	}
}

func (w *world) checkWaiting(h *host, t int) {
	for _, p := range w.scale.priorities {
		for _, k := range w.table.lanes[t][p].all() {
			r := w.table.row(k.ID)
			if k.RunAt+int64(slack) > w.dbNow() {
				break
			}
			if r.lock == 0 && w.now-r.visible > slack {
				w.violate("job %d of type %d waits for %v, while dispatcher %d has a free slot for it since %v",
					k.ID, t, (w.now - r.visible).duration(), h.id, w.judge.freeSince[h.id][t].duration())
				return
			}
		}
	}
}

// heal ends all trouble: everything runs again, everybody hears, nothing is
// slow. From here on the world must come to its end.
func (w *world) heal() {
	if w.has(Kill) { // what comes back now comes back to a world in which nothing else happens
		w.workers[w.random.below(int64(len(w.workers)))].kill()
	}
	w.healing, w.healedAt = true, w.now
	w.table.down, w.table.cut = false, false
	for _, h := range w.hosts {
		if h.stopped {
			h.resume()
		}
		if !h.up {
			w.plan(task{at: w.now, kind: hostStart, who: h.id})
		}
	}
	for _, k := range w.workers {
		if k.stopped {
			k.resume()
		}
		if k.dead {
			w.plan(task{at: w.now, kind: workerStart, who: k.id})
		}
	}
}

// patience is how long nothing may end in a healed world in which something is
// still open. The database's clock may have gone back two minutes, so leases of
// the dead may last as long, and so may rows wait that were put off by a clock
// that was ahead.
const maxHealing = 4 * 60 * second

// over reports whether everything has come to its end, and complains when it
// takes too long or is no good end.
func (w *world) complete() bool {
	if w.table.open > 0 || !w.idle() {
		w.expireCallers()
		if w.now-max(w.healedAt, w.progress) > maxHealing {
			w.stuck()
		}
		return false
	}
	for n := range w.table.rows {
		if r := &w.table.rows[n]; !r.status.final() || r.lock != 0 || r.execution != 0 {
			w.violate("job %d ended in status %d, lock %d, execution %d", n+1, r.status, r.lock, r.execution)
		}
	}
	for n := range w.table.rows {
		if w.judge.atEnd != nil {
			w.judge.atEnd(&w.table.rows[n])
		}
	}
	for _, h := range w.hosts {
		h.check()
		w.checkSlots(h)
	}
	return true
}

// sendHome lets callers lose patience who wait for a slot of a type that
// nobody at their dispatcher has.
func (w *world) expireCallers() {
	if w.now < w.expireCallersAt {
		return
	}
	w.expireCallersAt = w.now + 5*second
	for _, h := range w.hosts {
		for i := range h.calls.all {
			if h.calls.all[i].state == callWaiting {
				h.plan(hostNoWait, w.expireCallersAt, int32(-1-i))
			}
		}
	}
}

// quiet reports whether nobody has anything in hand.
func (w *world) idle() bool {
	for _, h := range w.hosts {
		if h.core == nil || h.stopped || h.exitStage > 0 || h.calls.open > 0 || !h.core.Idle() {
			return false
		}
	}
	for _, k := range w.workers {
		if k.conn == nil || k.dead || k.stopped || k.conn.draining {
			return false
		}
		for i := range k.slots {
			if k.slots[i].number == 0 || k.slots[i].execution >= 0 {
				return false
			}
		}
		if c := k.conn; c.awaitsWelcome || c.up.head < len(c.up.frames) || c.down.head < len(c.down.frames) {
			return false
		}
	}
	return len(w.statements.active) == 0
}

// slotsConserved: a dispatcher knows exactly the seats that are on line at it,
// and all of them are free.
func (w *world) checkSlots(h *host) {
	want := 0
	for _, k := range w.workers {
		if k.host == h.id {
			want += len(k.slots)
		}
	}
	if g := h.core.Gauges(); g.Slots != want || g.Free != want || g.InHand != 0 || g.Unrecorded != 0 {
		w.violate("at rest dispatcher %d has %d slots, %d of them free, %d jobs in hand and %d unrecorded; its workers have %d slots",
			h.id, g.Slots, g.Free, g.InHand, g.Unrecorded, want)
	}
}

// stuck says what does not come to its end.
func (w *world) stuck() {
	for n := range w.table.rows {
		if r := &w.table.rows[n]; !r.status.final() {
			w.violate("job %d is lost: %v after all trouble was over it is in status %d, attempt %d, dispatcher %d",
				n+1, (w.now - w.healedAt).duration(), r.status, r.attempt, r.dispatcher)
			return
		}
	}
	for _, h := range w.hosts {
		if h.calls.open > 0 {
			w.violate("%d requests of dispatcher %d are never answered", h.calls.open, h.id)
			return
		}
	}
	w.violate("all jobs have ended, but something is still in hand after %v", (w.now - w.healedAt).duration())
}
