package daemon

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/shell"
	"github.com/dispatcherd/dispatcherd/workerproto"
)

// resumeTimeout is how long a worker with resume offers waits for its welcome. Workers
// disconnect after 15 s. A rejected worker continues its jobs and reconnects.
const resumeTimeout = 10 * time.Second

// pendingResume is a session whose resume offers are not all decided. The loop writes its
// fields and then closes done.
type pendingResume struct {
	resumed []workerproto.Resumed
	refused *workerproto.Error // the session was rejected, and no offer was decided
	done    chan struct{}
}

// fingerprintOf returns the session fingerprint of a nonce. The fingerprint proves that
// a worker knows the nonce. It does not reveal the nonce to readers of the table.
func fingerprintOf(nonce string) contract.Fingerprint {
	sum := sha256.Sum256([]byte(nonce))
	return contract.Fingerprint(binary.BigEndian.Uint64(sum[:8]))
}

// offerResume passes the resume offers of a hello to the loop and waits for the decision.
// It blocks this session only.
func (w *workers) offerResume(s *workerproto.Session, ev event.Registered, running []workerproto.Running) error {
	slots := make([]workerproto.Slot, len(running))
	for i := range running {
		slots[i] = running[i].Slot
	}
	numbered := w.number(slots)
	for i := range running {
		r := &running[i]
		from := fingerprintOf(r.Session)
		mode := dispatcherd.Queued
		if r.Job < 0 { // docs/protocol.md: the id of a request is negative
			mode = dispatcherd.OnDemand
		}
		ev.Offers = append(ev.Offers, event.ResumeOffer{
			Job: r.Job, Mode: mode, Attempt: r.Attempt, From: from, To: from.WithGeneration(r.Generation), Slot: numbered[i],
		})
	}
	o := &pendingResume{done: make(chan struct{})}
	w.mu.Lock()
	w.pending[ev.Session] = o
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.pending, ev.Session)
		w.mu.Unlock()
	}()
	shell.Register(w.loop.Register, ev, shell.Portion)
	timeout := time.NewTimer(resumeTimeout)
	defer timeout.Stop()
	select {
	case <-o.done:
		if o.refused != nil {
			return o.refused
		}
	case <-timeout.C:
		return workerproto.Complain(workerproto.Internal, 0, "Postgres did not answer in time whether the jobs may be resumed; reconnect")
	}
	for _, r := range o.resumed {
		s.Resume(r.Job, r.Attempt)
	}
	return nil
}

// resumes records that an execution continues. The waiting Open reads the record.
func (w *workers) resumes(e *effect.Resume) {
	if o := w.pendingOf(e.Session); o != nil {
		o.resumed = append(o.resumed, workerproto.Resumed{Job: e.Job, Attempt: e.Attempt})
	}
}

// decided ends the wait of an Open for its resume offers, with or without a rejection. It
// reports whether an Open waits.
func (w *workers) decided(id dispatcherd.SessionID, rejection *workerproto.Error) bool {
	o := w.pendingOf(id)
	if o == nil {
		return false
	}
	o.refused = rejection
	close(o.done)
	return true
}

func (w *workers) pendingOf(id dispatcherd.SessionID) *pendingResume {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.pending[id]
}
