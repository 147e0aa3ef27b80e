package api

import (
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// event is one thing that happened to a run, as it is streamed.
type event struct {
	name string
	data []byte // JSON on one line
}

// run is one execution that any number of callers follow. It implements Caller.
//
// Lock order: nothing is called with mu held but what is at hand here; the
// backend above all, since its goroutine comes in through the methods of Caller.
type run struct {
	owner   *runs
	id      string            // random, so that nobody guesses it
	keys    []string          // its idempotency keys, entries of owner.byKey; guarded by owner.mu
	lates   []string          // those of keys by which callers were told that it is late, while it went on; guarded by owner.mu
	same    string            // the coalesce key's entry in owner.bySame; "" = none
	mark    [32]byte          // fingerprint of the request
	kind    string            // the type that it needs
	row     bool              // durable: another dispatcher may run it, which nobody here sees
	earlier dispatcherd.JobID // the row that an earlier try with its keys may have written; 0 = none

	undecided dispatcherd.JobID // the row that may have been written for it when it failed; guarded by owner.mu

	mu      sync.Mutex
	kept    int               // callers who fetch it later: with one it goes on without callers
	until   time.Time         // the latest deadline of those who share it; zero = the dispatcher keeps it
	lapse   *time.Timer       // of a kept run: at until
	vigil   vigil             // of a kept run that is shared
	job     dispatcherd.JobID // 0 until submitted
	ready   bool              // submitted, or known to have failed to be
	queued  *event            // what a stream begins with
	events  []event
	dropped int   // events that made room, before events[0]
	bytes   int64 // held in events and answer
	held    load  // the body of who began it, until it has ended or is a row
	changed chan struct{}
	started bool
	answer  *Answer
	failure error // instead of an answer: it was not submitted
	given   bool  // nobody wants it any more
	callers int
	late    bool // somebody has left because he was late
	endedAt time.Time
}

// Started implements Caller.
func (r *run) Started(slot dispatcherd.SlotID, worker string) {
	data := eventJSON(startedEvent{Slot: slot, Worker: worker})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = true
	r.appendLocked(event{"started", data})
}

// startedEvent is the data of a "started" event.
type startedEvent struct {
	Slot   dispatcherd.SlotID `json:"slot"`
	Worker string             `json:"worker"`
}

// Reported implements Caller.
func (r *run) Reported(p Report) {
	name := "progress"
	if p.Partial {
		name = "partial"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.appendLocked(event{name, p.JSON})
}

// Answered implements Caller.
func (r *run) Answered(a Answer) { r.end(&a, nil) }

// end makes the run's end known, once.
func (r *run) end(a *Answer, failure error) {
	r.mu.Lock()
	if r.overLocked() {
		r.mu.Unlock()
		return
	}
	r.answer, r.failure, r.endedAt = a, failure, time.Now()
	r.held.drop()
	for _, t := range []*time.Timer{r.lapse, r.vigil.again} {
		if t != nil {
			t.Stop()
		}
	}
	if a != nil {
		r.grow(int64(len(a.Payload) + len(a.Reason)))
	}
	r.wakeLocked()
	r.mu.Unlock()
	r.owner.ended(r)
}

func (r *run) overLocked() bool { return r.answer != nil || r.failure != nil }

func (r *run) appendLocked(e event) {
	if r.answer != nil {
		return
	}
	o := r.owner
	for len(r.events) > 0 && (len(r.events) >= o.h.cfg.EventsOfRun || o.bytes.Load() > o.h.cfg.KeepBytes) {
		r.grow(-int64(len(r.events[0].data)))
		r.events[0] = event{}
		r.events = r.events[1:]
		r.dropped++
	}
	if o.bytes.Load() > o.h.cfg.KeepBytes {
		r.dropped++ // not even room for this one
	} else {
		r.events = append(r.events, e)
		r.grow(int64(len(e.data)))
	}
	r.wakeLocked()
}

func (r *run) grow(by int64) {
	r.bytes += by
	r.owner.bytes.Add(by)
}

func (r *run) wakeLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// isRow says that a row has the body now.
func (r *run) isRow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held.drop()
}

// submitted notes the id and, for streams, the place in the queue.
func (r *run) submitted(job dispatcherd.JobID, rank Rank) {
	data := eventJSON(rank)
	r.mu.Lock()
	r.job, r.ready = job, true
	r.queued = &event{"queued", data}
	r.wakeLocked()
	given := r.given
	r.mu.Unlock()
	if given {
		r.owner.h.backend.Abandon(job, r)
	}
}

// leave counts a caller out. The last one takes the run with him, unless it is
// kept or over. He takes it out of sight in the same breath, so that nobody joins
// a run that is being given up: but if he leaves because he is late, or somebody has
// before him, whoever has a key of the run may not start it once more, and shares the
// end of who was late. key is the entry of his own, if he had one.
func (r *run) leave(late bool, key string) {
	r.owner.mu.Lock()
	if late && key != "" {
		r.owner.lateLocked(r, key)
	}
	r.mu.Lock()
	r.callers--
	r.late = r.late || late
	last := r.callers == 0 && r.kept == 0 && !r.overLocked()
	late = r.late && last && len(r.keys) > 0
	r.mu.Unlock()
	switch {
	case late:
		r.owner.hideLocked(r, Late)
	case last:
		r.owner.dropLocked(r)
	}
	r.owner.mu.Unlock()
	r.owner.followers.Add(-1)
	switch {
	case late:
		r.giveUp(r.tooLate())
	case last:
		r.giveUp(Answer{Kind: Cancelled, Reason: "every caller hung up"})
	}
}

// giveUp cancels a run that goes on, and forgets one that is over: its row may
// have been retried since, and is not this caller's any more.
func (r *run) giveUp(end Answer) {
	r.mu.Lock()
	first := !r.given
	r.given = true
	job, over := r.job, r.answer != nil
	r.mu.Unlock()
	if end.Kind != Late {
		r.owner.forget(r)
	}
	if !first {
		return
	}
	if job != 0 && !over {
		r.owner.h.backend.Abandon(job, r)
	}
	r.end(&end, nil)
}

// view is what a follower sees at a moment.
type view struct {
	events  []event
	next    int  // sequence number behind the last of events
	missed  int  // events that are gone already
	more    bool // there are further ones: look again at once
	ready   bool
	started bool
	job     dispatcherd.JobID
	answer  *Answer
	failure error
	changed <-chan struct{}
}

// look returns what happened from sequence number from on. Number 0 is the
// "queued" event.
func (r *run) look(from int) view {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := view{ready: r.ready, started: r.started, job: r.job, answer: r.answer, failure: r.failure, changed: r.changed, next: from}
	if !r.ready {
		return v
	}
	if from == 0 && r.queued != nil {
		v.events = append(v.events, *r.queued)
		from = 1
	}
	at := max(from, 1) - 1 - r.dropped
	if at < 0 {
		v.missed, at = -at, 0
	}
	size := 0
	for at < len(r.events) && size < viewBytes {
		size += len(r.events[at].data)
		v.events = append(v.events, r.events[at])
		at++
	}
	v.more = at < len(r.events)
	v.next = max(from, 1+r.dropped+min(at, len(r.events)))
	return v
}

// viewBytes is how much a follower takes out at a time, apart from the last event
// of it. What he holds while he waits for a slow reader counts as nobody's.
const viewBytes = 64 << 10

// lastEvent reads Last-Event-ID: the sequence number to go on from.
func (r *run) lastEvent(id string) int {
	n, err := strconv.Atoi(id)
	if err != nil || n < 0 {
		return 0
	}
	return n + 1
}

// problemJSON is a problem on one line.
func problemJSON(p *Problem) []byte { return eventJSON(p) }

// eventJSON encodes what consists of numbers and text, which cannot fail.
func eventJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		return []byte(`{}`)
	}
	return data
}
