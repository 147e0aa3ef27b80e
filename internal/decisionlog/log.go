// Package decisionlog keeps the most recent decisions of a dispatcher in memory.
//
// The loop appends the decisions of each step. Other goroutines read them for "job why"
// and for the debug bundle. When the log is full, a new entry overwrites the oldest one,
// so the memory is bounded. Each entry needs 192 bytes. Entries share the further
// memory for names of types and workers.
package decisionlog

import (
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
)

// chunk is how many entries are read under the lock at once.
const chunk = 1 << 10

// Entry is one decision and when it was made.
type Entry struct {
	actor.Decision

	At time.Time
}

// Log is a ring buffer of entries. Its methods may be called from any goroutine.
type Log struct {
	mu      sync.Mutex
	entries []Entry
	written uint64 // entries appended so far
}

// New returns an empty log of a number of entries, at least one.
func New(entries int) *Log { return &Log{entries: make([]Entry, entries)} }

// Append copies decisions into the log.
func (l *Log) Append(at time.Time, decisions []actor.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range decisions {
		*l.at(l.written) = Entry{decisions[i], at}
		l.written++
	}
}

// at returns the place of the entry with a number. The caller holds mu.
func (l *Log) at(number uint64) *Entry { return &l.entries[number%uint64(len(l.entries))] }

// Stats are counters of a log.
type Stats struct {
	Entries     int    // entries that it holds
	Written     uint64 // entries appended so far
	Overwritten uint64 // of these, replaced by newer ones
}

// Stats returns the counters.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := min(l.written, uint64(len(l.entries)))
	return Stats{Entries: int(held), Written: l.written, Overwritten: l.written - held}
}

// Each iterates over the entries, the oldest first. It omits
// entries that are overwritten meanwhile and entries that are appended after the
// call. yield runs without the lock and must not keep the pointer.
func (l *Log) Each(yield func(*Entry) bool) {
	copied := make([]Entry, 0, chunk)
	stats := l.Stats()
	for at := stats.Overwritten; at < stats.Written; {
		copied, at = l.read(copied[:0], at, stats.Written)
		for i := range copied {
			if !yield(&copied[i]) {
				return
			}
		}
	}
}

// read appends entries from number at on, at most a chunk, and returns the number
// of the next one.
func (l *Log) read(to []Entry, at, end uint64) ([]Entry, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if capacity := uint64(len(l.entries)); l.written > capacity {
		at = max(at, l.written-capacity)
	}
	for end = min(end, at+chunk); at < end; at++ {
		to = append(to, *l.at(at))
	}
	return to, at
}

// Find returns the latest placement of a job, and the latest end of one of its
// attempts. An entry that the log does not hold is nil.
func (l *Log) Find(id dispatcherd.JobID) (placed, ended *Entry) {
	for e := range l.Each {
		if e.Job != id {
			continue
		}
		switch found := *e; e.Kind {
		case actor.DecisionPlaced:
			placed = &found
		case actor.DecisionEnded:
			ended = &found
		}
	}
	return placed, ended
}
