package sim

import "github.com/dispatcherd/dispatcherd/actor"

// sampleGap is the time between two samples. maxIdleTicks is how many timers
// without work a core may cause per sampleGap. A core that spins causes one
// per millisecond.
const (
	sampleGap    = second / 5
	maxIdleTicks = 60
)

// sample checks what no single event shows.
func (w *world) sample() {
	if w.healing {
		return
	}
	w.plan(task{at: w.now + sampleGap, kind: sampleTurn})
	if w.table.AnyLost() {
		for _, id := range w.table.Sweep() {
			run := w.table.Row(id).Dispatcher
			w.violate("job %d runs under lost dispatcher %d, and no claim of this dispatcher lists it", id, run)
		}
	}
	w.judge.joins.checkOrphans(w)
	for _, h := range w.hosts {
		if h.core != nil {
			w.checkIdleSlots(h)
		}
		if gap := w.now - w.sampledAt; int64(h.idleTicks)*int64(sampleGap) > maxIdleTicks*int64(gap) {
			w.violate("dispatcher %d spins: %d timers without work in %v", h.id, h.idleTicks, gap.duration())
		}
		h.idleTicks = 0
	}
	w.sampledAt = w.now
}

// checkIdleSlots checks that no slot stays free while a job waits whose type
// it supports. A slot may be free in one sample, between two jobs, but not in
// every sample.
func (w *world) checkIdleSlots(h *host) {
	free := &w.judge.freeSince[h.id]
	freeNow := [maxTypes]bool{}
	if !h.stopped && h.stop == nil {
		for _, t := range actor.ListTypes(h.core) {
			freeNow[typeNumber(t.Type)] = t.Free > 0
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
	for _, lane := range w.lanes(t) {
		for _, k := range w.table.Pending(lane) {
			j := w.job(k.ID)
			if k.RunAt+int64(slack) > w.dbNow() {
				break
			}
			if !w.table.Row(k.ID).Locked() && j.visible <= h.known() && w.now-j.visible > slack {
				w.violate("job %d of type %d waits for %v, while dispatcher %d has a free slot for it since %v",
					k.ID, t, (w.now - j.visible).duration(), h.id, w.judge.freeSince[h.id][t].duration())
				return
			}
		}
	}
}

// heal ends all faults. Afterwards every job must end.
func (w *world) heal() {
	if w.has(Kill) { // this worker restarts in a world without further faults
		w.workers[w.random.below(int64(len(w.workers)))].kill()
	}
	w.healing, w.healedAt = true, w.now
	w.postgres.down, w.postgres.cut = false, false
	for _, h := range w.hosts {
		if h.stopped {
			h.resume()
		}
		h.repair()
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

// maxHealing is the longest time without the end of a row in a healed world
// that has open rows. The database clock may have gone back two minutes, so
// leases of dead dispatchers and delayed rows may last that long.
const maxHealing = 4 * 60 * second

// complete reports whether everything has ended. It is a violation if that
// takes too long or if the final state is wrong.
func (w *world) complete() bool {
	w.judge.joins.checkOrphans(w)
	if w.open > 0 || !w.idle() {
		w.expireCallers()
		if w.now-max(w.healedAt, w.progress) > maxHealing {
			w.stuck()
		}
		return false
	}
	for _, r := range w.table.Rows() {
		if !r.Status.Final() || r.Locked() || w.job(r.ID).execution != 0 {
			w.violate("job %d ended in status %s, locked %t, execution %d", r.ID, r.Status, r.Locked(), w.job(r.ID).execution)
		}
		if w.judge.atEnd != nil {
			w.judge.atEnd(r)
		}
	}
	for _, h := range w.hosts {
		w.checkSlots(h)
	}
	return true
}

// expireCallers ends the capacity wait of callers, because some types may have
// no slot at their dispatcher.
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

// idle reports whether no process has work or statements in flight.
func (w *world) idle() bool {
	for _, h := range w.hosts {
		if h.core == nil || h.stopped || h.stop != nil || h.calls.open > 0 || !h.core.Idle() {
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
		if c := k.conn; c.awaitsWelcome || c.hangUpFor != 0 || c.up.head < len(c.up.frames) || c.down.head < len(c.down.frames) {
			return false
		}
	}
	return len(w.statements.active) == 0
}

// checkSlots checks that a dispatcher knows exactly the slots of its workers
// and that all of them are free.
func (w *world) checkSlots(h *host) {
	want := 0
	for _, k := range w.workers {
		if k.host == h.id {
			want += len(k.slots)
		}
	}
	if g := h.core.Gauges(); g.Slots != want || g.Free != want || g.InHand != 0 || g.Unrecorded != 0 {
		w.violate("at the end dispatcher %d has %d slots, %d of them free, %d jobs in hand and %d unrecorded; its workers have %d slots",
			h.id, g.Slots, g.Free, g.InHand, g.Unrecorded, want)
	}
}

// stuck reports what does not end.
func (w *world) stuck() {
	for _, r := range w.table.Rows() {
		if !r.Status.Final() {
			w.violate("job %d is lost: %v after healing it has status %s, attempt %d, dispatcher %d",
				r.ID, (w.now - w.healedAt).duration(), r.Status, r.Attempt, r.Dispatcher)
			return
		}
	}
	for _, h := range w.hosts {
		if h.calls.open > 0 {
			w.violate("%d requests of dispatcher %d are never answered", h.calls.open, h.id)
			return
		}
	}
	w.violate("all jobs have ended, but a dispatcher or worker is not idle after %v", (w.now - w.healedAt).duration())
}
