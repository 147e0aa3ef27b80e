package httpapi

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

// statusLine sends the status events of a row to a caller, in order and each once. Because
// the row is polled, reports of a worker may arrive before the status of their attempt.
type statusLine struct {
	out  *sse
	sent string              // id of the last status event, possibly of an earlier stream
	last dispatcherd.Attempt // the highest attempt sent in this stream

	waiting contract.Job // the row when it was last read as pending
}

// send queues the status of a row that was just read, unless this status or a newer one was
// sent before.
func (s *statusLine) send(job *contract.Job) {
	if job.Status == dispatcherd.Pending {
		s.waiting = *job
	}
	if job.Attempt < s.last {
		return
	}
	s.event(&StatusEvent{ID: job.ID, Status: job.Status, Attempt: job.Attempt, RunAt: job.RunAt, Failures: job.Failures})
}

// running queues the status of a running attempt before its first report. It returns false
// if the report must not be sent. This is so if a newer status was sent, or if the row ended
// with an earlier attempt. The row may have been read before the attempt began or after it
// ended. Then running takes the members that a claim does not change from the row as it was
// when it was pending.
func (s *statusLine) running(job *contract.Job, attempt dispatcherd.Attempt) bool {
	switch {
	case s.sent == statusID(attempt, dispatcherd.Running):
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
	if id == s.sent {
		return
	}
	data, err := json.Marshal(e)
	if err != nil {
		return // e contains a date that JSON cannot represent; no row of the table does
	}
	s.out.event(id, "status", data)
	s.sent, s.last = id, max(s.last, e.Attempt)
}

func statusID(a dispatcherd.Attempt, s dispatcherd.Status) string { return fmt.Sprintf("%d-%s", a, s) }
