package sim

import (
	"slices"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// takeBack asks the Core about what a worker brought along. Its free slots are
// registered when all of it is decided.
func (h *host) takeBack(c *conn) {
	w := h.world
	ev := actor.Registered{Session: c.session(), Worker: "worker", Fingerprint: c.mark()}
	for i := range c.brought {
		b := &c.brought[i]
		mode := dispatcherd.Queued
		if w.table.row(b.job) == nil {
			mode = dispatcherd.OnDemand
		}
		ev.Offers = append(ev.Offers, actor.ResumeOffer{Job: b.job, Mode: mode, Attempt: b.attempt, From: b.from, To: b.to, Slot: h.slot(b.offer)})
	}
	c.opening = true
	h.plan(hostImpatient, w.now+w.carry.patience, c.number)
	h.step(&ev)
}

// resumes notes that an execution goes on.
func (h *host) resumes(e *actor.Resume) {
	w := h.world
	c := w.conns[e.Session-1]
	w.stats.Resumed++
	for n := range c.brought {
		if b := &c.brought[n]; b.job == e.Job && b.offer.number == e.Number {
			c.resumed = append(c.resumed, int32(n))
		}
	}
}

// welcome tells a worker what goes on, and then what else is new.
func (h *host) welcome(c *conn) {
	w := h.world
	if c.hostEnd.closed || c.hostLife != h.life || !c.opening {
		return
	}
	h.register(c, c.offers[len(c.brought):])
	c.opening = false
	w.write(c, &c.down, frame{kind: frameWelcome})
	for _, f := range c.early {
		w.write(c, &c.down, f)
	}
	c.early = nil
}

// loseHeart ends a connection of which it takes too long to decide what goes on,
// or that the Core turns away.
func (h *host) loseHeart(c *conn) {
	if c.opening && c.hostLife == h.life && !c.hostEnd.closed {
		h.refuse(c)
	}
}

// refuse closes a connection that was not welcomed.
func (h *host) refuse(c *conn) {
	h.world.closeHostEnd(c)
	h.conns = slices.DeleteFunc(h.conns, func(o int32) bool { return o == c.number })
	h.unregister(c)
}

// The stages of a stop that leaves what runs on to others, after draining.
const (
	settling = interrupted + 10 + iota // connections are closed, ends are recorded
	parting                            // statements under way are answered
	departed
)

// handStage follows daemon.stop.
func (h *host) handStage() {
	w := h.world
	limit := w.scale.grace
	if h.leaving > draining {
		limit = second
	}
	if h.world.opt.Break == WithoutGrace {
		limit = 0
	}
	waited := w.now-h.staged > limit
	switch {
	case h.leaving == draining && (h.core.Idle() || waited):
		h.stageAt(settling)
		if h.trusted() {
			h.step(actor.HandedOver{})
		} else {
			h.revoked = true
			h.step(actor.Interrupted{})
		}
		h.closeAll()
	case h.leaving == settling && (h.core.Idle() || waited):
		h.stageAt(parting)
		h.quit = true
	case h.leaving == parting && !h.asks():
		h.stageAt(departed)
		h.depart()
		return
	}
	h.plan(hostStage, w.now+10*millisecond, 0)
}

// asks reports whether statements are under way.
func (h *host) asks() bool {
	return slices.ContainsFunc(h.links[:], func(l []int32) bool { return len(l) > 0 })
}

func (h *host) stageAt(stage int) { h.leaving, h.staged = stage, h.world.now }

// closeAll ends all connections.
func (h *host) closeAll() {
	w := h.world
	for _, n := range slices.Clone(h.conns) {
		if c := w.conns[n]; !c.hostEnd.closed {
			w.judge.cutsOff(w, h, c)
			h.refuse(c)
		}
	}
}

func (h *host) depart() {
	if h.core.Stats().Left > 0 || h.core.Adopting() {
		h.submit(h.world.statement(opHandOver, h))
		return
	}
	h.submit(h.world.statement(opLeave, h))
}

// handedOver is the end of the process. A hand-over that failed is tried again,
// once: its connection may have died long before.
func (h *host) handedOver(s *statement) {
	if s.verdict == contract.OK || h.leaving > departed {
		h.exit()
		return
	}
	h.leaving++
	h.submit(h.world.statement(opHandOver, h))
}
