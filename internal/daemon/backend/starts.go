package backend

import (
	"sync/atomic"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
)

// maxStarts bounds the recorded starts. It suffices for the starts of 10 ms at the
// highest rate. An insertion takes a small part of that time.
const maxStarts = 1024

// starts records the latest jobs that were sent while a durable request was being inserted.
// The row is visible after its commit. Therefore a worker may have the job before the
// insertion returns the id. The lock of Rows guards all fields except awaited.
type starts struct {
	awaited atomic.Int32 // insertions in flight
	latest  []start      // the oldest are overwritten
	next    int
}

type start struct {
	job     dispatcherd.JobID
	attempt dispatcherd.Attempt
	slot    dispatcherd.SlotID
	session dispatcherd.SessionID
}

// note records a job that was sent. It overwrites the oldest record.
func (s *starts) note(e *effect.Send) {
	this := start{e.Job, e.Attempt, e.Slot, e.Session}
	if len(s.latest) < maxStarts {
		s.latest = append(s.latest, this)
		return
	}
	s.latest[s.next] = this
	s.next = (s.next + 1) % maxStarts
}

// find returns the last recorded start of a job.
func (s *starts) find(id dispatcherd.JobID) (found start, ok bool) {
	for _, this := range s.latest {
		if this.job == id && this.attempt > found.attempt {
			found, ok = this, true
		}
	}
	return found, ok
}
