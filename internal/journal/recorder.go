package journal

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/freeze"
)

// Bounds of a Recorder's memory.
const (
	MinBytes = 1 << 20
	// Unbounded is for recordings that end by themselves, such as a simulation.
	Unbounded = 0
)

const (
	chunkSize  = 128 << 10
	stateShare = 4         // a state may take that part of the memory; a larger one is not recorded
	eventShare = 8         // a segment ends when its events take that part, and as much as its state
	retryPause = 10 * 1000 // ms after a state was too large
)

// Recorder keeps the last steps of one core. It implements actor.Journal; its
// other methods may be called from any goroutine.
//
// Memory is bounded: when it is full the oldest segment goes. A segment begins
// with the state of the core and ends when its events take an eighth of the
// memory and no less than the state did; so at least half of the memory is
// history, and the loop spends no more on states than on events. A core whose
// state takes more than a quarter of the memory is not recorded, which Stats tells.
type Recorder struct {
	name  string
	limit int

	// Of the loop alone.
	writers map[reflect.Type]numbered
	events  *freeze.Writer
	states  *freeze.Writer
	hash    hasher
	rec     []byte // the step under way; empty: it is not recorded
	full    bool   // the next step begins a segment
	size    int    // of the last state
	pausing bool   // a state was too large: none is taken before retryAt
	retryAt actor.Instant

	mu       sync.Mutex
	segments []*segment
	held     int // bytes of all memory
	stats    Stats
}

type numbered struct {
	kind  int
	write eventWriter
}

// segment is a state and what happened from there.
type segment struct {
	name   string
	now    actor.Instant
	wall   time.Time
	state  []byte
	chunks [][]byte // of whole records
	bytes  int      // in chunks
	steps  int
}

// Stats tell what a Recorder holds and did.
type Stats struct {
	Bytes    int           // of memory, never more than the bound
	Steps    int           // that could be replayed
	Since    time.Time     // when the first of them happened; zero without any
	Recorded uint64        // steps in all
	Lost     uint64        // steps that were not recorded, because the state or the step itself was too large
	States   uint64        // taken
	Spent    time.Duration // on taking them, in the loop
	Longest  time.Duration // time for one of them
}

// NewRecorder returns a recorder that takes at most so many bytes, at least
// MinBytes, or Unbounded. The name tells several recorders in a file apart.
func NewRecorder(name string, bytes int) *Recorder {
	if bytes != Unbounded && bytes < MinBytes {
		panic(fmt.Sprintf("journal: a recorder of %d bytes, must have %d or more", bytes, MinBytes))
	}
	r := &Recorder{
		name: name, limit: bytes, events: files.codec.NewWriter(), states: files.codec.NewWriter(),
		hash: hasher{w: files.codec.NewWriter()}, writers: map[reflect.Type]numbered{}, full: true,
	}
	for i, k := range files.kinds {
		n := numbered{i, k.writer()}
		r.writers[k.typ], r.writers[reflect.PointerTo(k.typ)] = n, n
	}
	return r
}

// Before implements actor.Journal.
func (r *Recorder) Before(c *actor.Core, now actor.Instant, ev actor.Event) {
	r.rec = r.rec[:0]
	if r.full && !r.begin(c, now) {
		return
	}
	w, known := r.writers[reflect.TypeOf(ev)]
	if !known { // a test keeps this from happening; here it must do no harm
		return
	}
	r.rec = w.write(r.events, append(r.rec, noHead[:]...), ev)
	sealEvent(r.rec, w.kind, now)
}

var noHead [recordHead]byte

// After implements actor.Journal.
func (r *Recorder) After(fx []actor.Effect) {
	var sum uint32
	if len(r.rec) > 0 {
		sum = r.hash.sum(fx)
		sealEffects(r.rec, len(fx), sum)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rec) == 0 || !r.keep() {
		r.forget()
		r.stats.Lost++
	}
	r.rec = modest(r.rec)
}

// begin starts a segment with the state of the core as it is.
func (r *Recorder) begin(c *actor.Core, now actor.Instant) bool {
	if r.pausing && now < r.retryAt {
		return false
	}
	r.pausing = false
	began := time.Now()
	state := freeze.Append(r.states, make([]byte, 0, r.size+r.size/8), files.state, c)
	took := time.Since(began)
	r.size = len(state)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.States++
	r.stats.Spent += took
	r.stats.Longest = max(r.stats.Longest, took)
	if r.limit != Unbounded && cap(state) > r.limit/stateShare || !r.makeRoom(cap(state)) {
		r.pausing, r.retryAt = true, now+retryPause
		return false
	}
	r.held += cap(state)
	r.segments = append(r.segments, &segment{name: r.name, now: now, wall: began, state: state})
	r.full = false
	return true
}

// keep adds the step under way to the last segment, if there is room.
func (r *Recorder) keep() bool {
	s := r.segments[len(r.segments)-1]
	n := len(s.chunks)
	if n == 0 || len(s.chunks[n-1])+len(r.rec) > cap(s.chunks[n-1]) {
		size := max(len(r.rec), chunkSize)
		if !r.makeRoom(size) {
			return false
		}
		r.held += size
		s.chunks = append(s.chunks, make([]byte, 0, size))
		n++
	}
	s.chunks[n-1] = append(s.chunks[n-1], r.rec...)
	s.bytes += len(r.rec)
	s.steps++
	r.stats.Recorded++
	r.full = r.limit != Unbounded && s.bytes >= max(r.limit/eventShare, len(s.state))
	return true
}

// makeRoom lets old segments go until so many bytes more fit; the last one stays.
func (r *Recorder) makeRoom(more int) bool {
	if r.limit == Unbounded {
		return true
	}
	for r.held+more > r.limit && len(r.segments) > 1 {
		s := r.segments[0]
		r.held -= cap(s.state)
		for _, c := range s.chunks {
			r.held -= cap(c)
		}
		r.segments[0] = nil
		r.segments = r.segments[1:]
	}
	return r.held+more <= r.limit
}

// forget drops everything because a step is missing: what comes after it could
// not be replayed.
func (r *Recorder) forget() { r.segments, r.held, r.full = nil, 0, true }

// Stats returns them.
func (r *Recorder) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.stats
	st.Bytes = r.held
	for _, s := range r.segments {
		st.Steps += s.steps
	}
	if len(r.segments) > 0 {
		st.Since = r.segments[0].wall
	}
	return st
}

// hold returns the segments as they are now. What is in them does not change:
// chunks only grow, and memory is not used twice.
func (r *Recorder) hold() []segment {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := make([]segment, len(r.segments))
	for i, s := range r.segments {
		held[i] = *s
		held[i].chunks = slices.Clone(s.chunks)
	}
	return held
}
