package ondemand

import (
	"slices"
	"strconv"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/problem"
)

// This file decides which answers are kept, for which keys, and for how long.

// ended keeps the answer of a request whose callers may ask again, and forgets
// other requests. An answer after which another try makes sense (Busy, Stopping,
// Unsupported, Cancelled) is kept only for the request's id. Late is kept for the
// keys if the request may have started, because another try could execute it a
// second time. Callers that were answered Late before the end get the same answer
// again, whatever the end is.
func (g *registry) ended(r *Shared) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unshareLocked(r)
	late := slices.DeleteFunc(slices.Clone(r.keys), func(key string) bool { return !slices.Contains(r.lateKeys, key) })
	r.mu.Lock()
	final := r.answer != nil &&
		(r.answer.Kind == Done || r.answer.Kind == Failed || r.answer.Kind == Late && (r.started || r.row))
	keep := r.answer != nil && r.later
	r.mu.Unlock()
	final = final || r.undecided != 0 // a repeated request with one of its keys finds the row
	keep = keep || len(r.keys) > 0 && final
	if g.byID[r.id] != r || !keep || g.closed {
		g.dropLocked(r)
	} else {
		if !final {
			g.unnameLocked(r, true)
		}
		g.kept = append(g.kept, r)
	}
	g.stayLateLocked(r, late)
	g.purgeLocked(time.Now())
}

// lateLocked records that the caller with a key was answered Late. If the request has
// just ended, Late is also the answer that is kept for the key.
func (g *registry) lateLocked(r *Shared, key string) {
	if !slices.Contains(r.lateKeys, key) {
		r.lateKeys = append(r.lateKeys, key)
	}
	r.mu.Lock()
	over := r.endedLocked()
	r.mu.Unlock()
	if over {
		g.stayLateLocked(r, []string{key})
	}
}

// stayLateLocked keeps the answer Late for keys of a request that has ended
// otherwise or is forgotten. So a started request is not executed again for a key.
func (g *registry) stayLateLocked(r *Shared, keys []string) {
	keys = slices.DeleteFunc(keys, func(key string) bool { return g.byKey[key] != nil })
	r.mu.Lock()
	job, started := r.job, r.started
	r.mu.Unlock()
	begun := started || r.row && job != 0
	if len(keys) == 0 || !begun || g.makeRoomLocked() != nil {
		return
	}
	n := &Shared{
		owner: g, id: newID(), mark: r.mark, typ: r.typ, row: r.row, changed: make(chan struct{}),
		job: job, ready: true, started: started, answer: &Answer{Kind: Late, Reason: lateReason}, endedAt: time.Now(),
	}
	n.grow(int64(len(lateReason)))
	g.byID[n.id] = n
	for _, key := range keys {
		g.name(n, key)
	}
	g.kept = append(g.kept, n)
}

// makeRoomLocked drops the oldest ended request when the limit is reached.
func (g *registry) makeRoomLocked() error {
	if g.closed {
		return problem.Stopping.Of("the dispatcher is about to stop").Retryable()
	}
	if len(g.byID) < g.s.limits.SharedRequests {
		return nil
	}
	g.s.refused(BoundRequests)
	if len(g.kept) == 0 {
		return problem.QueueFull.Of(strconv.Itoa(len(g.byID)) + " requests are followed or kept already, the limit").Retryable()
	}
	g.dropLocked(g.kept[0])
	g.kept = slices.Delete(g.kept, 0, 1)
	return nil
}

// makeRoomForKeyLocked drops the oldest ended request that has keys when the limit of
// keys is reached.
func (g *registry) makeRoomForKeyLocked(key string) error {
	if key == "" || len(g.byKey) < g.s.limits.Keys {
		return nil
	}
	g.s.refused(BoundKeys)
	at := slices.IndexFunc(g.kept, func(r *Shared) bool { return len(r.keys) > 0 })
	if at < 0 {
		return problem.QueueFull.Of(strconv.Itoa(len(g.byKey)) + " Idempotency-Keys are in use already, the limit").Retryable()
	}
	g.dropLocked(g.kept[at])
	g.kept = slices.Delete(g.kept, at, at+1)
	return nil
}

// purgeLocked drops answers that were kept long enough, and further ones while too
// many bytes are held.
func (g *registry) purgeLocked(now time.Time) {
	n := 0
	for n < len(g.kept) && (now.Sub(g.kept[n].endedAt) > g.s.limits.KeepAnswers || g.s.Full()) {
		g.dropLocked(g.kept[n])
		n++
	}
	g.kept = slices.Delete(g.kept, 0, n)
}

// dropLocked removes a request from all maps and subtracts its bytes. Followers
// that are still reading keep their references.
func (g *registry) dropLocked(r *Shared) {
	if g.byID[r.id] == r {
		delete(g.byID, r.id)
	}
	r.mu.Lock()
	r.grow(-r.bytes)
	r.body.Drop()
	over := r.endedLocked()
	r.mu.Unlock()
	g.unnameLocked(r, over)
}

// unnameLocked removes a request from its keys. It can still be found by id. A
// request that has not ended keeps the keys whose callers were answered Late.
func (g *registry) unnameLocked(r *Shared, over bool) {
	var left []string
	for _, key := range r.keys {
		switch {
		case !over && slices.Contains(r.lateKeys, key):
			left = append(left, key)
		case g.byKey[key] == r:
			delete(g.byKey, key)
		}
	}
	r.keys = left
	g.unshareLocked(r)
}

// unshareLocked removes a request from the coalesce keys.
func (g *registry) unshareLocked(r *Shared) {
	if r.coalesce != "" && g.byCoalesce[r.coalesce] == r {
		delete(g.byCoalesce, r.coalesce)
	}
}

// hideLocked hides a request that is about to end from new callers. A late request
// keeps its keys, because only its end shows whether it has started.
func (g *registry) hideLocked(r *Shared, end AnswerKind) {
	if end == Late {
		g.unshareLocked(r)
	} else {
		g.unnameLocked(r, false)
	}
}

// forget removes a request from all maps and keeps no answer.
func (g *registry) forget(r *Shared) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dropLocked(r)
	r.mu.Lock()
	over := !r.endedAt.IsZero()
	r.mu.Unlock()
	if !over {
		return
	}
	if at := slices.Index(g.kept, r); at >= 0 {
		g.kept = slices.Delete(g.kept, at, at+1)
	}
}
