package ondemand

import (
	"encoding/json"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Shared is one execution that any number of callers follow. It implements Caller.
// Service.mu guards the fields that change.
type Shared struct {
	Events // the answer also counts towards their bytes

	id       string   // random, so that it cannot be guessed
	keys     []string // its idempotency keys, entries of Service.byKey
	lateKeys []string // keys whose callers were answered Late before the end
	coalesce string   // its entry in Service.byCoalesce; "" = none
	mark     [32]byte // fingerprint of the request
	typ      string   // the type that it needs
	row      bool     // it became a job in the table, which any dispatcher may run
	via      string   // ViaQueue or ""
	needs    string   // the keys of the row whose permits it needs

	later    bool              // a caller fetches the answer later
	job      dispatcherd.JobID // 0 until submitted
	ready    bool              // it was submitted, or the submission failed
	queued   *Event            // the first event
	body     Body              // share of the caller that submitted it, until the request ends or becomes a row
	changed  chan struct{}
	started  bool
	answer   *Answer
	failure  error // set instead of an answer if the submission failed
	givenUp  bool
	callers  int
	detached bool       // one of the callers stands for callers that disconnected, see leave
	someLate bool       // a caller left after its deadline
	laterEnd AnswerKind // why the last caller that fetches the answer later left: Late or Unsupported; 0 = none has left
	endedAt  time.Time
	weight   int // among the kept answers; 0 = not kept
}

// Start is the data of a "started" event.
type Start struct {
	Slot   dispatcherd.SlotID `json:"slot"`
	Worker string             `json:"worker"`
}

// Started implements Caller.
func (r *Shared) Started(slot dispatcherd.SlotID, worker string) {
	data, _ := json.Marshal(Start{Slot: slot, Worker: worker}) // a number and a text cannot fail
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.started = true
	r.appendLocked(Event{Name: "started", Data: data, Slot: slot, Worker: worker})
}

// Reported implements Caller.
func (r *Shared) Reported(e Event) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.appendLocked(e)
}

// Answered implements Caller.
func (r *Shared) Answered(a Answer) { r.end(&a, nil) }

// end ends the request. Only the first call sets the answer. A failed submission also
// ends the wait for the submission.
func (r *Shared) end(a *Answer, failure error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	defer r.wakeLocked()
	r.ready = r.ready || failure != nil
	if failure != nil {
		r.s.forgetLocked(r)
	}
	if r.ended() {
		return
	}
	r.countKeysLocked(-1)
	r.s.running.Add(r.user, -1)
	if a != nil {
		a.Via = r.via
	}
	r.answer, r.failure, r.endedAt = a, failure, time.Now()
	r.body.Drop()
	if a != nil {
		r.grow(int64(len(a.Payload) + len(a.Reason)))
	}
	r.s.keepLocked(r)
}

// countKeysLocked counts the keys n times for their users.
func (r *Shared) countKeysLocked(n int) {
	for _, key := range r.keys {
		r.s.keys.Add(userOf(key), n)
	}
}

// ended reports whether the request has ended; s.mu is held.
func (r *Shared) ended() bool { return r.answer != nil || r.failure != nil }

// appendLocked adds an event of a request that has not ended.
func (r *Shared) appendLocked(e Event) {
	if r.answer == nil {
		r.Add(e)
		r.wakeLocked()
	}
}

func (r *Shared) wakeLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// submitted records the id of the job and its place in the queue.
func (r *Shared) submitted(job dispatcherd.JobID, rank Rank) {
	rank.Via = r.via
	data, _ := json.Marshal(rank) // numbers and a text cannot fail
	r.s.mu.Lock()
	r.job, r.ready = job, true
	if r.row {
		r.body.Drop() // the row now contains the payload
	}
	r.queued = &Event{Name: "queued", Data: data, Rank: rank}
	r.wakeLocked()
	givenUp := r.givenUp
	r.s.mu.Unlock()
	if givenUp {
		r.s.backend.Abandon(job, r)
	}
}

// User returns the user that began the request.
func (r *Shared) User() string { return r.user }

// attachLocked adds a caller. later says that a caller fetches the answer later.
func (r *Shared) attachLocked(user string, later bool) {
	r.callers++
	r.s.callers.Add(user, 1)
	r.later = r.later || later
}

// leave removes a caller. The request ends with its last caller. leave hides the request
// under the same lock, so that no caller joins a request that is about to end. If a
// caller left after its deadline, the request keeps its keys. So later callers get the
// answer Late and do not start the execution again. A row with a key continues until its
// deadline: a caller whose connection broke repeats the call, here or at another dispatcher.
// If a caller cancels the request, the callers that have disconnected do not count.
func (r *Shared) leave(f *Follower) {
	s := r.s
	s.mu.Lock()
	if f.late && f.key != "" {
		s.lateLocked(r, f.key)
	}
	r.callers--
	s.callers.Add(f.user, -1)
	r.someLate = r.someLate || f.late
	if f.later {
		r.laterEnd = Unsupported
		if f.late {
			r.laterEnd = Late
		}
	}
	last := !r.ended() && (r.callers == 0 || r.callers == 1 && r.detached && f.cancels)
	end := r.laterEnd
	switch {
	case end != 0:
	case r.someLate && len(r.keys) > 0:
		end = Late
	default:
		end = Cancelled
	}
	if last && end == Cancelled && r.row && len(r.keys) > 0 && !r.givenUp && !f.cancels {
		r.detached = s.waitLaterLocked(f)
		last = !r.detached
	}
	switch {
	case !last:
	case end == Late: // it keeps its keys, because only its end shows whether it has started
		s.unshareLocked(r)
	default:
		s.unnameLocked(r)
	}
	s.mu.Unlock()
	if last {
		r.giveUp(r.endWithoutCallers(end))
	}
}

// endWithoutCallers is the answer of a request that ends with its last caller. s.mu is
// not held.
func (r *Shared) endWithoutCallers(kind AnswerKind) Answer {
	switch kind {
	case Late:
		return Answer{Kind: Late, Reason: r.lateReason()}
	case Unsupported:
		return Answer{Kind: Unsupported, Reason: noCapacity}
	}
	return Answer{Kind: Cancelled, Reason: "every caller disconnected"}
}

// giveUp cancels a request that has not ended. It forgets a request that has ended: after
// a retry, the row no longer belongs to this caller.
func (r *Shared) giveUp(end Answer) {
	r.s.mu.Lock()
	first := !r.givenUp
	r.givenUp = true
	job, over := r.job, r.answer != nil
	if end.Kind == Cancelled {
		r.s.forgetLocked(r)
	}
	r.s.mu.Unlock()
	if !first {
		return
	}
	if job != 0 && !over {
		r.s.backend.Abandon(job, r)
	}
	r.end(&end, nil)
}
