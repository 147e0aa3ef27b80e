package api

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// runs holds the runs that can still be found: by id, by idempotency key and,
// while they go on, by coalesce key. Lock order: runs.mu, then run.mu.
type runs struct {
	h     *Handler
	bytes atomic.Int64 // held by all runs

	followers atomic.Int64 // callers of all runs

	mu     sync.Mutex
	byID   map[string]*run
	byKey  map[string]*run
	bySame map[string]*run
	over   []*run // ended ones that are kept, by the time of their end
	closed bool
}

func newRuns(h *Handler) *runs {
	return &runs{h: h, byID: map[string]*run{}, byKey: map[string]*run{}, bySame: map[string]*run{}}
}

// runWish is what a caller wants of a run.
type runWish struct {
	stream bool   // events
	kept   bool   // fetched later
	key    string // Idempotency-Key, "" = none
	held   *load  // his body, which a fresh run takes over
}

// keeps is what the wish adds to the run's count of those who fetch it later.
func (w runWish) keeps() int {
	if w.kept {
		return 1
	}
	return 0
}

// fingerprint tells requests apart that use the same key.
func fingerprint(q *requestBody, r *Request) [32]byte {
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(r.Type), r.Payload, []byte(q.CoalesceKey), {byte(r.Priority)}, []byte(strconv.FormatBool(r.Durable))} {
		sum.Write(strconv.AppendInt(nil, int64(len(part)), 10))
		sum.Write([]byte{':'})
		sum.Write(part)
	}
	return [32]byte(sum.Sum(nil))
}

// entryOf is what an Idempotency-Key is in byKey, where each scope has its own.
func entryOf(key, scope string) string {
	if key == "" {
		return ""
	}
	return scope + "\x00" + key
}

// join finds the run that a request belongs to, or makes one: then the caller
// has to submit it. Either way the caller counts as a follower. key is the entry of
// his Idempotency-Key.
func (s *runs) join(q *requestBody, r *Request, wish runWish, key string) (_ *run, fresh bool, err error) {
	mark := fingerprint(q, r)
	var same string
	if q.CoalesceKey != "" {
		same = string(mark[:]) + q.CoalesceKey
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.purgeLocked(time.Now())
	n := &run{owner: s, same: same, mark: mark, kind: r.Type, row: r.Durable, callers: 1, changed: make(chan struct{})}
	keys := []string{key}
	if old := s.byKey[key]; key != "" && old != nil {
		if old.mark != mark {
			return nil, false, keyReused.of("the key was used for another type, payload, priority, durable or coalesce_key")
		}
		if !s.undecidedLocked(old) {
			s.attachLocked(old, wish)
			return old, false, nil
		}
		keys = s.inheritLocked(n, old)
	} else if old := s.bySame[same]; same != "" && old != nil {
		if err := s.makeRoomForKeyLocked(key); err != nil {
			return nil, false, err
		}
		s.name(old, key)
		s.attachLocked(old, wish)
		return old, false, nil
	}
	if err := s.makeRoomLocked(); err != nil {
		return nil, false, err
	}
	if err := s.makeRoomForKeyLocked(key); err != nil {
		return nil, false, err
	}
	n.id, n.kept, n.held = newID(), wish.keeps(), wish.held.move()
	s.followers.Add(1)
	s.byID[n.id] = n
	for _, key := range keys {
		s.name(n, key)
	}
	if same != "" {
		s.bySame[same] = n
	}
	return n, true, nil
}

// mayBe notes that nobody knows whether a run, which is about to end, has got the row
// that was meant for it.
func (s *runs) mayBe(r *run, row dispatcherd.JobID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.undecided = row
}

// undecidedLocked reports whether a run has ended so.
func (s *runs) undecidedLocked(r *run) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.undecided != 0 && r.failure != nil
}

// inheritLocked lets a new run take the place of one that may have got its row: it
// asks for that row, and whoever has a key of the other will find it. There is room
// for both then.
func (s *runs) inheritLocked(n, old *run) (keys []string) {
	keys = old.keys
	n.earlier, n.lates = old.undecided, old.lates
	s.dropLocked(old)
	if at := slices.Index(s.over, old); at >= 0 {
		s.over = slices.Delete(s.over, at, at+1)
	}
	return keys
}

// name lets a run be found by an idempotency key, if there is one.
func (s *runs) name(r *run, key string) {
	if key != "" {
		s.byKey[key] = r
		r.keys = append(r.keys, key)
	}
}

func (s *runs) attachLocked(r *run, wish runWish) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.callers++
	s.followers.Add(1)
	r.kept += wish.keeps()
}

// makeRoomLocked drops the oldest ended run when all places are taken.
func (s *runs) makeRoomLocked() error {
	if s.closed {
		return stopping.of("the dispatcher is about to stop").later()
	}
	if len(s.byID) < s.h.cfg.Runs {
		return nil
	}
	s.h.obs.Refused(BoundRuns)
	if len(s.over) == 0 {
		return queueFull.of(strconv.Itoa(len(s.byID)) + " runs are followed or kept already, the limit").later()
	}
	s.dropLocked(s.over[0])
	s.over = slices.Delete(s.over, 0, 1)
	return nil
}

// makeRoomForKeyLocked drops the oldest ended run that has keys when all places
// for keys are taken. A run that goes on may gather as many as callers share it.
func (s *runs) makeRoomForKeyLocked(key string) error {
	if key == "" || len(s.byKey) < s.h.cfg.Keys {
		return nil
	}
	s.h.obs.Refused(BoundKeys)
	at := slices.IndexFunc(s.over, func(r *run) bool { return len(r.keys) > 0 })
	if at < 0 {
		return queueFull.of(strconv.Itoa(len(s.byKey)) + " Idempotency-Keys are in use already, the limit").later()
	}
	s.dropLocked(s.over[at])
	s.over = slices.Delete(s.over, at, at+1)
	return nil
}

// purgeLocked drops what was kept long enough, and more while too many bytes
// are held.
func (s *runs) purgeLocked(now time.Time) {
	n := 0
	for n < len(s.over) && (now.Sub(s.over[n].endedAt) > s.h.cfg.KeepRuns || s.bytes.Load() > s.h.cfg.KeepBytes) {
		s.dropLocked(s.over[n])
		n++
	}
	s.over = slices.Delete(s.over, 0, n)
}

// dropLocked makes a run unfindable and gives its bytes back. Followers that
// are still reading keep what they hold.
func (s *runs) dropLocked(r *run) {
	if s.byID[r.id] == r {
		delete(s.byID, r.id)
	}
	r.mu.Lock()
	r.grow(-r.bytes)
	r.held.drop()
	over := r.overLocked()
	r.mu.Unlock()
	s.unnameLocked(r, over)
}

// unnameLocked lets nobody join a run any more; whoever has its id finds it. One that
// is not over is left to the keys of those who were late.
func (s *runs) unnameLocked(r *run, over bool) {
	var left []string
	for _, key := range r.keys {
		switch {
		case !over && slices.Contains(r.lates, key):
			left = append(left, key)
		case s.byKey[key] == r:
			delete(s.byKey, key)
		}
	}
	r.keys = left
	s.unshareLocked(r)
}

// unshareLocked lets nobody find a run by its coalesce key any more.
func (s *runs) unshareLocked(r *run) {
	if r.same != "" && s.bySame[r.same] == r {
		delete(s.bySame, r.same)
	}
}

// hideLocked takes a run that is about to end out of the sight of those who would
// join it. One that is late is left to its keys: whether it began is known only
// when the dispatcher has given it up.
func (s *runs) hideLocked(r *run, end AnswerKind) {
	if end == Late {
		s.unshareLocked(r)
	} else {
		s.unnameLocked(r, false)
	}
}

// lateLocked notes that somebody with a key is told that a run is late. If it has
// ended just now, his word is the last one for his key, too.
func (s *runs) lateLocked(r *run, key string) {
	if !slices.Contains(r.lates, key) {
		r.lates = append(r.lates, key)
	}
	r.mu.Lock()
	over := r.overLocked()
	r.mu.Unlock()
	if over {
		s.stayLateLocked(r, []string{key})
	}
}

// stayLateLocked keeps, for keys that nobody uses any more, what those who were late
// have been told of a run that is over: it had another end for the others, which says
// "not now", or is forgotten. What has begun is not done once more under a key.
func (s *runs) stayLateLocked(r *run, keys []string) {
	keys = slices.DeleteFunc(keys, func(key string) bool { return s.byKey[key] != nil })
	r.mu.Lock()
	job, started := r.job, r.started
	r.mu.Unlock()
	begun := started || r.row && job != 0
	if len(keys) == 0 || !begun || s.makeRoomLocked() != nil {
		return
	}
	end := Answer{Kind: Late, Reason: runLate}
	n := &run{
		owner: s, id: newID(), mark: r.mark, kind: r.kind, row: r.row, changed: make(chan struct{}),
		job: job, ready: true, started: started, answer: &end, endedAt: time.Now(),
	}
	n.grow(int64(len(end.Reason)))
	s.byID[n.id] = n
	for _, key := range keys {
		s.name(n, key)
	}
	s.over = append(s.over, n)
}

// forget makes a run unfindable, whether it has ended or not, and keeps nothing
// of it.
func (s *runs) forget(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(r)
	r.mu.Lock()
	over := !r.endedAt.IsZero()
	r.mu.Unlock()
	if !over {
		return
	}
	if at := slices.Index(s.over, r); at >= 0 {
		s.over = slices.Delete(s.over, at, at+1)
	}
}

// ended keeps the answer of a run whose callers may ask again, and forgets the
// others. An answer that says "not now" is kept for none but who has the run's id:
// the next try with its key may fare better. So it is with one that came too late,
// unless the run may have begun: then a next try could do the same thing twice. Those
// who were late while it went on are told so again even if it ended otherwise.
func (s *runs) ended(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unshareLocked(r)
	lates := slices.DeleteFunc(slices.Clone(r.keys), func(key string) bool { return !slices.Contains(r.lates, key) })
	r.mu.Lock()
	last := r.answer != nil &&
		(r.answer.Kind == Done || r.answer.Kind == Failed || r.answer.Kind == Late && (r.started || r.row))
	keep := r.answer != nil && r.kept > 0
	r.mu.Unlock()
	last = last || r.undecided != 0 // for its keys: with them it is found out
	keep = keep || len(r.keys) > 0 && last
	if s.byID[r.id] != r || !keep || s.closed {
		s.dropLocked(r)
	} else {
		if !last {
			s.unnameLocked(r, true)
		}
		s.over = append(s.over, r)
	}
	s.stayLateLocked(r, lates)
	s.purgeLocked(time.Now())
}

// find returns a run that is still known, with the caller counted in.
func (s *runs) find(id string) *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.purgeLocked(time.Now())
	r := s.byID[id]
	if r != nil {
		r.mu.Lock()
		r.callers++
		r.mu.Unlock()
		s.followers.Add(1)
	}
	return r
}

// close ends what still goes on.
func (s *runs) close() {
	s.mu.Lock()
	s.closed = true
	var open []*run
	for _, r := range s.byID { // order-free: each ends for itself
		open = append(open, r)
	}
	s.mu.Unlock()
	for _, r := range open {
		r.giveUp(Answer{Kind: Cancelled, Reason: "the dispatcher stops"})
	}
}

// count returns how many runs can be found, and by how many keys.
func (s *runs) count() (runs, keys int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byID), len(s.byKey)
}

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, as documented
	return hex.EncodeToString(b[:])
}
