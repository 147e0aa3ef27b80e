package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// jobWatch implements ondemand.Caller for a caller that follows a row. It holds reports of
// the worker up to a bound. All other events only say that the row may have changed.
type jobWatch struct {
	changed chan struct{} // capacity 1

	mu      sync.Mutex
	reports ondemand.Events
	over    bool // the caller has disconnected
}

// Started implements Caller.
func (j *jobWatch) Started(dispatcherd.SlotID, string) { j.wake() }

// Answered implements Caller.
func (j *jobWatch) Answered(ondemand.Answer) { j.wake() }

// Reported implements Caller.
func (j *jobWatch) Reported(e ondemand.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.over {
		j.reports.Add(e)
		j.wake()
	}
}

func (j *jobWatch) wake() {
	select {
	case j.changed <- struct{}{}:
	default:
	}
}

// take returns the reports of attempts that a row of the table knows; see [ondemand.Events.Take].
func (j *jobWatch) take(known dispatcherd.Attempt) (missed int, reports []ondemand.Event, more bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.reports.Take(known)
}

// close drops the waiting reports.
func (j *jobWatch) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.over = true
	j.reports.Clear()
}

// getJobEvents streams the events of a row until the row is final. Status events have ids,
// so a caller that reconnects with Last-Event-ID gets only newer status events. Reports of
// a worker are sent while the job runs on this dispatcher, and those of a durable request
// also while it runs on another one. They are not kept.
func (h *Handler) getJobEvents(w http.ResponseWriter, call *rest.Request) error {
	var q followedJob
	if err := call.Parse(&q); err != nil {
		return err
	}
	id, r := q.ID, call.Request
	watch := &jobWatch{changed: make(chan struct{}, 1), reports: h.requests.NewEvents(userOf(r))}
	defer watch.close()
	stop := h.backend.Watch(id, watch)
	defer stop()
	job, err := h.permittedRow(call, id)
	if err != nil {
		return err
	}
	statuses := statusLine{out: h.newSSE(w), sent: r.Header.Get("Last-Event-ID")}
	if r.Method == http.MethodHead {
		return nil
	}
	beat := time.Tick(h.cfg.Heartbeat)
	for {
		// The reports are taken after the row was read, so an ended row has no further ones. Those of an attempt that the row did
		// not know yet wait for its next read.
		missed, reports, more := watch.take(job.Attempt)
		h.sendReports(&statuses, &job, missed, reports)
		if !more {
			statuses.send(&job)
		}
		if !more && job.Status.Final() {
			statuses.out.end("", job.ID, finalAnswer(&job))
			return statuses.out.flush()
		}
		if err := statuses.out.flush(); err != nil {
			return err
		}
		if !more {
			select {
			case <-watch.changed:
			case <-beat:
				statuses.out.heartbeat()
			case <-r.Context().Done():
				return rest.CallerGone.Of("")
			}
		}
		switch fresh, err := h.permittedRow(call, id); {
		case err == nil:
			job = fresh
		case errors.Is(err, ErrNotFound), problemOf(err).Status == http.StatusForbidden: // the row was deleted, or its type has changed
			statuses.out.event("", "error", problemOf(err).Text())
			return statuses.out.flush()
		} // after another error the row is read again at the next change or heartbeat
	}
}

// sendReports queues reports, after the status of the attempt if it runs.
func (h *Handler) sendReports(statuses *statusLine, job *contract.Job, missed int, reports []ondemand.Event) {
	if job.Status == dispatcherd.Running {
		statuses.send(job)
	}
	if missed > 0 {
		h.gap(statuses.out, missed)
	}
	for _, e := range reports {
		if e.Attempt >= statuses.attempt {
			statuses.out.event("", e.Name, e.Data)
		}
	}
}

// StatusEvent is the data of a "status" event.
type StatusEvent struct {
	ID       dispatcherd.JobID   `json:"id"`
	Status   dispatcherd.Status  `json:"status"`
	Attempt  dispatcherd.Attempt `json:"attempt"`
	RunAt    time.Time           `json:"run_at"`
	Failures int                 `json:"failures"`
}

// statusLine sends the status events of a row to a caller, each once. A status between two reads of the row is not sent.
type statusLine struct {
	out     *sse
	sent    string              // id of the last status event, possibly of an earlier stream
	attempt dispatcherd.Attempt // of the last status event of this stream
}

// send queues the status of a row that was just read, unless it was sent before.
func (s *statusLine) send(job *contract.Job) {
	id := fmt.Sprintf("%d-%s", job.Attempt, job.Status)
	data, err := json.Marshal(StatusEvent{job.ID, job.Status, job.Attempt, job.RunAt, job.Failures})
	if id == s.sent || err != nil { // a date that JSON cannot represent, which no row of the table has
		return
	}
	s.out.event(id, "status", data)
	s.sent, s.attempt = id, job.Attempt
}

// finalAnswer returns how a row has ended.
func finalAnswer(job *contract.Job) *ondemand.Answer {
	switch job.Status {
	case dispatcherd.Done:
		return &ondemand.Answer{Kind: ondemand.Done, Payload: job.Result}
	case dispatcherd.Failed:
		return &ondemand.Answer{Kind: ondemand.Failed, Reason: job.LastError()}
	}
	reason := "it was cancelled"
	if job.Cancelled != nil {
		reason += " by " + *job.Cancelled
	}
	return &ondemand.Answer{Kind: ondemand.Cancelled, Reason: reason}
}
