package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/ondemand"
	"github.com/dispatcherd/dispatcherd/internal/problem"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// jobWatch implements ondemand.Caller for a caller that follows a row. Reports wait up
// to a bound. Everything else only says that the row may have changed.
type jobWatch struct {
	changed chan struct{} // capacity 1

	most     int               // reports that may wait
	requests *ondemand.Service // counts their bytes

	mu      sync.Mutex
	reports []ondemand.Report
	missed  int  // came after reports; none is taken while there are some
	over    bool // the caller is gone
}

// Started implements Caller.
func (j *jobWatch) Started(dispatcherd.SlotID, string) { j.wake() }

// Answered implements Caller.
func (j *jobWatch) Answered(ondemand.Answer) { j.wake() }

// Reported implements Caller.
func (j *jobWatch) Reported(r ondemand.Report) {
	j.mu.Lock()
	switch {
	case j.over:
	case j.missed > 0 || len(j.reports) >= j.most || j.requests.Full():
		j.missed++
	default:
		j.reports = append(j.reports, r)
		j.requests.Hold(int64(len(r.JSON)))
	}
	j.mu.Unlock()
	j.wake()
}

func (j *jobWatch) wake() {
	select {
	case j.changed <- struct{}{}:
	default:
	}
}

// take returns what waits, as much as a follower of a run takes at a time, and
// behind the last of it how much was missed.
func (j *jobWatch) take() (reports []ondemand.Report, missed int, more bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n, size := 0, 0
	for n < len(j.reports) && size < ondemand.ViewBytes {
		size += len(j.reports[n].JSON)
		n++
	}
	j.requests.Hold(-int64(size))
	reports = slices.Clone(j.reports[:n])
	j.reports = slices.Delete(j.reports, 0, n)
	if len(j.reports) > 0 {
		return reports, 0, true
	}
	missed, j.missed = j.missed, 0
	return reports, missed, false
}

// close drops what waits.
func (j *jobWatch) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.over = true
	for i := range j.reports {
		j.requests.Hold(-int64(len(j.reports[i].JSON)))
	}
	j.reports = nil
}

// getJobEvents streams what happens to a row until it is final. A status has an
// id, so that a caller who comes back with Last-Event-ID is told only what is
// new; output of a worker is handed on while it runs here and not kept.
func (h *Handler) getJobEvents(w http.ResponseWriter, r *http.Request) error {
	id, err := jobID(r)
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		if _, err := h.backend.Job(r.Context(), id); err != nil {
			return err
		}
		h.newSSE(w)
		return nil
	}
	watch := &jobWatch{changed: make(chan struct{}, 1), most: h.cfg.EventsPerRequest, requests: h.requests}
	defer watch.close()
	stop := h.backend.Watch(id, watch)
	defer stop()
	job, err := h.backend.Job(r.Context(), id)
	if err != nil {
		return err
	}
	out := h.newSSE(w)
	statuses := statusLine{out: out, told: r.Header.Get("Last-Event-ID")}
	beat := time.NewTicker(h.cfg.Heartbeat)
	defer beat.Stop()
	for {
		if err := h.sendReports(&statuses, &job, watch); err != nil {
			return err
		}
		if statuses.send(&job); job.Status.Final() {
			out.end("", job.ID, finalAnswer(&job))
			return out.flush()
		}
		if err := out.flush(); err != nil {
			return err
		}
		select {
		case <-watch.changed:
		case <-beat.C:
			out.heartbeat()
		case <-r.Context().Done():
			return problem.CallerGone.Of("")
		}
		switch fresh, err := h.backend.Job(r.Context(), id); {
		case err == nil:
			job = fresh
		case errors.Is(err, ErrNotFound): // the row was deleted
			out.event("", "error", problemJSON(problemOf(err)))
			return out.flush()
		} // otherwise the next change, or heartbeat, looks again
	}
}

// sendReports sends what waits, a little at a time; the last of it is queued. The
// row was read before.
func (h *Handler) sendReports(statuses *statusLine, job *contract.Job, watch *jobWatch) error {
	out := statuses.out
	for {
		reports, missed, more := watch.take()
		for _, p := range reports {
			if !statuses.running(job, p.Attempt) {
				continue
			}
			name := "progress"
			if p.Partial {
				name = "partial"
			}
			out.event("", name, p.JSON)
		}
		if missed > 0 {
			if job.Status == dispatcherd.Running {
				statuses.send(job)
			}
			h.obs.Refused(BoundEvents)
			out.event("", "gap", fmt.Appendf(nil, `{"missed":%d}`, missed))
		}
		if !more {
			return nil
		}
		if err := out.flush(); err != nil {
			return err
		}
	}
}

// finalAnswer returns how a row has ended.
func finalAnswer(job *contract.Job) *ondemand.Answer {
	switch job.Status {
	case dispatcherd.Done:
		return &ondemand.Answer{Kind: ondemand.Done, Payload: job.Result}
	case dispatcherd.Failed:
		return &ondemand.Answer{Kind: ondemand.Failed, Reason: lastError(job.Errors)}
	}
	return &ondemand.Answer{Kind: ondemand.Cancelled, Reason: "it was cancelled"}
}

// lastError is what the latest bad end says.
func lastError(history json.RawMessage) string {
	var ends []struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(history, &ends) != nil || len(ends) == 0 {
		return ""
	}
	return ends[len(ends)-1].Error
}
