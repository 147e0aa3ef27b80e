package api

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// StatusEvent is the data of a "status" event.
type StatusEvent struct {
	ID       dispatcherd.JobID   `json:"id"`
	Status   dispatcherd.Status  `json:"status"`
	Attempt  dispatcherd.Attempt `json:"attempt"`
	RunAt    time.Time           `json:"run_at"`
	Failures int                 `json:"failures"`
}

// statusLine is what a caller that follows a row has been sent of its status. Rows are
// polled, while reports of a worker arrive at once. The events are in order all the
// same, and none is sent twice.
type statusLine struct {
	out  *sse
	told string              // id of the last status event, perhaps of an earlier stream
	last dispatcherd.Attempt // the highest one told in this stream

	waiting contract.Job // as it was last read before an attempt
}

// send queues the status of a row that was just read, unless the caller knows it
// or has been told something newer.
func (s *statusLine) send(job *contract.Job) {
	if job.Status == dispatcherd.Pending {
		s.waiting = *job
	}
	if job.Attempt < s.last {
		return
	}
	s.event(&StatusEvent{ID: job.ID, Status: job.Status, Attempt: job.Attempt, RunAt: job.RunAt, Failures: job.Failures})
}

// running makes sure that the caller knows that an attempt runs, before he hears
// what its worker says. It reports false for an attempt that the stream is past.
// The row may have been read before the attempt began, or after it ended: what a
// claim does not change is then told as it was before it.
func (s *statusLine) running(job *contract.Job, attempt dispatcherd.Attempt) bool {
	switch {
	case s.told == statusID(attempt, dispatcherd.Running):
		return true
	case attempt <= s.last || job.Status.Final() && attempt > job.Attempt:
		return false
	case job.Attempt < attempt:
		s.send(job)
	}
	began := job
	if s.waiting.ID == job.ID && (job.Attempt != attempt || job.Status != dispatcherd.Running) {
		began = &s.waiting
	}
	s.event(&StatusEvent{ID: job.ID, Status: dispatcherd.Running, Attempt: attempt, RunAt: began.RunAt, Failures: began.Failures})
	return true
}

func (s *statusLine) event(e *StatusEvent) {
	id := statusID(e.Attempt, e.Status)
	if id == s.told {
		return
	}
	data, err := json.Marshal(e)
	if err != nil {
		return // a date beyond what JSON can hold: the table takes none
	}
	s.out.event(id, "status", data)
	s.told, s.last = id, max(s.last, e.Attempt)
}

func statusID(a dispatcherd.Attempt, s dispatcherd.Status) string { return fmt.Sprintf("%d-%s", a, s) }
