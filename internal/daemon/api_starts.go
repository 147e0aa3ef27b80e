package daemon

import (
	"sync/atomic"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
)

// maxStarts is how many starts are remembered: those of 10 ms at the highest
// rate, which is many times as long as Postgres takes to tell an id.
const maxStarts = 1024

// starts are the latest jobs that were sent while a durable request waited to be
// told its row's id: the row can be seen from its commit on, and may be with a
// worker before its id is here. The lock of rows guards them, awaited apart.
type starts struct {
	awaited atomic.Int32 // ids that are on their way
	latest  []start      // the oldest are overwritten
	next    int
}

type start struct {
	job     dispatcherd.JobID
	attempt dispatcherd.Attempt
	slot    dispatcherd.SlotID
	session dispatcherd.SessionID
}

// note remembers a job that was sent, in place of the oldest one.
func (s *starts) note(e *actor.Send) {
	this := start{e.Job, e.Attempt, e.Slot, e.Session}
	if len(s.latest) < maxStarts {
		s.latest = append(s.latest, this)
		return
	}
	s.latest[s.next] = this
	s.next = (s.next + 1) % maxStarts
}

// find returns the last start of a job that is remembered.
func (s *starts) find(id dispatcherd.JobID) (found start, ok bool) {
	for _, this := range s.latest {
		if this.job == id && this.attempt > found.attempt {
			found, ok = this, true
		}
	}
	return found, ok
}
