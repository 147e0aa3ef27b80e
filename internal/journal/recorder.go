package journal

import (
	"bytes"
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
// history, and the loop spends no more on states than on events. While the state
// of the core takes more than a quarter of the memory no segment can begin: what
// was recorded before stays, and the gap is told by Stats, by the file and by the
// name of the segment behind it.
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
	Missing  uint64        // of these, the ones since the last that was recorded
	State    int           // bytes of the last state that was looked at
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
		r.full = true // what comes after a step that is missing begins anew
		r.dropEmpty()
		r.stats.Lost++
		r.stats.Missing++
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
	if cap(state) > 2*len(state) { // the last one was far larger
		state = bytes.Clone(state)
	}
	took := time.Since(began)
	r.size = len(state)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.States++
	r.stats.Spent += took
	r.stats.Longest = max(r.stats.Longest, took)
	r.stats.State = len(state)
	if r.limit != Unbounded && cap(state) > r.limit/stateShare || !r.makeRoom(cap(state), 0) {
		r.pausing, r.retryAt = true, now+retryPause
		return false
	}
	r.held += cap(state)
	name := r.name
	if r.stats.Missing > 0 && r.stats.Recorded > 0 {
		name = fmt.Sprintf("%s, after a gap of %d steps that were not recorded", r.name, r.stats.Missing)
	}
	r.segments = append(r.segments, &segment{name: name, now: now, wall: began, state: state})
	r.full = false
	return true
}

// keep adds the step under way to the last segment, if there is room.
func (r *Recorder) keep() bool {
	s := r.segments[len(r.segments)-1]
	n := len(s.chunks)
	if n == 0 || len(s.chunks[n-1])+len(r.rec) > cap(s.chunks[n-1]) {
		size := max(len(r.rec), chunkSize)
		if !r.makeRoom(size, 1) {
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
	r.stats.Missing = 0
	r.full = r.limit != Unbounded && s.bytes >= max(r.limit/eventShare, len(s.state))
	return true
}

// makeRoom lets old segments go until so many bytes more fit; the last ones stay.
func (r *Recorder) makeRoom(more, stay int) bool {
	if r.limit == Unbounded {
		return true
	}
	for r.held+more > r.limit && len(r.segments) > stay {
		r.held -= r.segments[0].size()
		r.segments[0] = nil
		r.segments = r.segments[1:]
	}
	return r.held+more <= r.limit
}

// size is the memory of a segment.
func (s *segment) size() int {
	n := cap(s.state)
	for _, c := range s.chunks {
		n += cap(c)
	}
	return n
}

// dropEmpty takes back the last segment if its first step did not fit.
func (r *Recorder) dropEmpty() {
	if n := len(r.segments); n > 0 && r.segments[n-1].steps == 0 {
		r.held -= r.segments[n-1].size()
		r.segments = r.segments[:n-1]
	}
}

// missing says what of the last steps a file will not hold, and why.
func (r *Recorder) missing() string {
	st := r.Stats()
	if st.Missing == 0 {
		return ""
	}
	return fmt.Sprintf("%s: the last %d steps are missing: a state of the core takes %d bytes, more than a quarter of the %d that the recorder has; raise --recorder-bytes\n",
		r.name, st.Missing, st.State, r.limit)
}

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
