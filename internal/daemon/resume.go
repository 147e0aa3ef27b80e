package daemon

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// resumePatience is how long a worker that brings running work along waits for
// its welcome. Workers hang up after 15 s; one that is turned away works on and
// comes again.
const resumePatience = 10 * time.Second

// opening is a session whose worker brought running work along, until all of
// it is decided. The loop writes, then closes done.
type opening struct {
	resumed []workerproto.Resumed
	refused *workerproto.Error // nothing of it was decided, and why
	done    chan struct{}
}

// markOf is the fingerprint of a session's nonce: it proves that somebody knows
// the nonce, and does not tell it to who reads the table.
func markOf(nonce string) contract.Fingerprint {
	sum := sha256.Sum256([]byte(nonce))
	return contract.Fingerprint(binary.BigEndian.Uint64(sum[:8]))
}

// takeBack asks the loop about the executions of a hello and waits for the
// answer: it blocks this worker alone.
func (w *workers) takeBack(s *workerproto.Session, ev actor.Registered, running []workerproto.Running) error {
	slots := make([]workerproto.Slot, len(running))
	for i := range running {
		slots[i] = running[i].Slot
	}
	numbered := w.number(slots)
	for i := range running {
		r := &running[i]
		from := markOf(r.Session)
		ev.Running = append(ev.Running, actor.Presentation{Job: r.Job, Attempt: r.Attempt, From: from, To: from.WithGeneration(r.Times), Slot: numbered[i]})
	}
	o := &opening{done: make(chan struct{})}
	w.mu.Lock()
	w.opening[ev.Session] = o
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.opening, ev.Session)
		w.mu.Unlock()
	}()
	w.loop.Register(ev)
	timeout := time.NewTimer(resumePatience)
	defer timeout.Stop()
	select {
	case <-o.done:
		if o.refused != nil {
			return o.refused
		}
	case <-timeout.C:
		return workerproto.Complain(workerproto.Internal, 0, "Postgres did not tell in time whose the running work is; reconnect")
	}
	for _, r := range o.resumed {
		s.Resume(r.Job, r.Attempt)
	}
	return nil
}

// decided hands an effect about presented work to the Open that waits for it,
// and reports whether one does.
func (w *workers) decided(e *actor.Effect) bool {
	w.mu.RLock()
	o := w.opening[e.Session]
	w.mu.RUnlock()
	if o == nil {
		return false
	}
	switch e.Kind {
	case actor.Resume:
		o.resumed = append(o.resumed, workerproto.Resumed{Job: e.Job, Attempt: e.Attempt})
		return true
	case actor.RefuseSlots:
		o.refused = workerproto.Complain(workerproto.TooManyConnections, 0, "%s", e.Reason)
	case actor.TurnAway:
		o.refused = workerproto.Complain(workerproto.ShuttingDown, 0, "%s", e.Reason)
	}
	close(o.done)
	return true
}
