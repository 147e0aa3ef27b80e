package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// longestUpload bounds the duration of a stream of jobs, because the transaction of the
// stream holds a connection and delays vacuum.
const longestUpload = time.Hour

// maxProblems bounds the bad lines of an upload that are listed.
const maxProblems = 100

// Inserted answers a single insert.
type Inserted struct {
	rest.Warned

	ID       dispatcherd.JobID `json:"id"`
	Existing bool              `json:"existing,omitempty"` // nothing was inserted: the job with this id has the unique key
}

// Uploaded answers a stream of jobs.
type Uploaded struct {
	rest.Warned

	Inserted int64          `json:"inserted"`
	Bad      int            `json:"bad"`                // lines that were left out
	Problems []rest.Problem `json:"problems,omitempty"` // one for each of the first 100 bad lines
	// With the parameter ids: of the first 1,000,000 jobs, in the order of the lines.
	IDs []dispatcherd.JobID `json:"ids,omitempty"`
}

// postJobs inserts one job, or a stream of jobs with one job per line.
func (h *Handler) postJobs(w http.ResponseWriter, call *rest.Request) error {
	var q insertion
	r := call.Request
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	refused := withoutKey(w, r)
	if refused == nil {
		refused = call.Parse(&q)
	}
	switch {
	case refused != nil:
		return refused
	case err == nil && (kind == "application/x-ndjson" || kind == "application/jsonl" || kind == "application/json-lines"):
		return h.uploadJobs(w, call, &q)
	case !isJSON(r):
		endBody(w, r, false)
		return rest.UnsupportedMedia.Of("send application/json for one job, application/x-ndjson for many")
	}
	body, held, err := h.readBody(w, r, int64(h.cfg.MaxPayload))
	if long, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return rest.TooLarge.Of(fmt.Sprintf("at most %d bytes are accepted for one job; %s", long.Limit, howManyGo))
	}
	if err != nil {
		return err
	}
	defer held.Drop()
	inserted, err := h.backend.Insert(r.Context(), body, call.Permit)
	if rest.InvalidJob.Is(err) && areMany(body) {
		return rest.InvalidJob.Of("the body contains more than one job; " + howManyGo)
	}
	if err != nil {
		return err
	}
	w.Header().Set("Location", rest.JobPath(inserted.ID))
	status := http.StatusCreated
	if inserted.Existing {
		status = http.StatusOK
	}
	rest.Send(w, status, inserted)
	return nil
}

// howManyGo explains how to send several jobs.
const howManyGo = "send several jobs as one line each, with Content-Type: application/x-ndjson (curl --data-binary keeps the line breaks)"

// areMany reports whether a body that is not a job contains several objects, one after
// the other or in an array.
func areMany(body []byte) bool {
	d := json.NewDecoder(bytes.NewReader(body))
	var first, second json.RawMessage
	if d.Decode(&first) != nil {
		return false
	}
	return first[0] == '[' || first[0] == '{' && d.Decode(&second) == nil && second[0] == '{'
}

// uploadJobs copies a stream of jobs into the table, in one transaction.
func (h *Handler) uploadJobs(w http.ResponseWriter, r *rest.Request, q *insertion) error {
	strict, control := q.OnError == "abort", http.NewResponseController(w)
	body := &patientBody{
		Reader: http.MaxBytesReader(w, r.Body, h.cfg.MaxUpload), control: control, silence: h.cfg.BodyTimeout,
		until: time.Now().Add(h.longestUpload),
	}
	_ = control.SetWriteDeadline(time.Time{}) // the upload may take longer; extendWrite sets the deadline again for the response
	var report Uploaded
	done, err := h.backend.InsertLines(r.Context(), body, r.Permit, strict, q.IDs, func(line int, reason error) {
		if report.Bad++; report.Bad <= maxProblems {
			p := rest.InvalidJob.Of(reason.Error())
			p.Line = line
			report.Problems = append(report.Problems, *p)
		}
	})
	h.extendWrite(w)
	refused := strict && report.Bad > 0
	if err != nil || refused {
		endBody(w, r.Request, !errors.Is(err, ErrTooManyUploads))
	}
	if err != nil {
		if body.err != nil {
			return h.bodyError(body.err)
		}
		if errors.Is(err, ErrTooManyUploads) {
			h.obs.Refused(BoundUploads)
		}
		return err
	}
	if refused {
		p := rest.BadLines.Of(fmt.Sprintf("bad lines: %d; on_error=skip inserts the others", report.Bad))
		p.Bad, p.Problems = report.Bad, report.Problems
		return p
	}
	done.Bad, done.Problems = report.Bad, report.Problems
	rest.Send(w, http.StatusCreated, done)
	return nil
}

// patientBody restarts the read timeout at each read of a long body. The whole body also
// has a deadline. patientBody keeps the error of a read.
type patientBody struct {
	io.Reader

	control *http.ResponseController
	silence time.Duration
	until   time.Time
	err     error
}

// Read implements io.Reader.
func (b *patientBody) Read(p []byte) (int, error) {
	limit := time.Now().Add(b.silence)
	if limit.After(b.until) {
		limit = b.until
	}
	_ = b.control.SetReadDeadline(limit) // fails only on a connection without deadlines
	n, err := b.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

// jobID is the id of a job.
type jobID struct {
	ID dispatcherd.JobID `param:"id" minimum:"1"` // Id of the job.
}

// anyID is the id of a job or request.
type anyID struct {
	ID dispatcherd.JobID `param:"id"` // Id of the job, or of an on-demand request in memory (negative), as /v1/slots shows it.
}

func (h *Handler) getJob(r *rest.Request, q *jobID) (contract.Job, error) {
	return h.permittedRow(r, q.ID)
}

// JobState answers the cancellation and the retry of a job.
type JobState struct {
	ID     dispatcherd.JobID  `json:"id"`
	Status dispatcherd.Status `json:"status" enum:"cancelled,running,pending"` // running: its worker was asked to stop
}

// deleteJob cancels a waiting job at once. It asks the worker of a running job to stop the
// job, and answers 202 without waiting. The members of the batch or flow whose callback it is are cancelled with it.
func (h *Handler) deleteJob(r *rest.Request, q *anyID) (s JobState, err error) {
	s.ID = q.ID
	if err = h.permitRow(r, q.ID); err != nil {
		return s, err
	}
	if h.Permit != nil && !q.ID.OnDemand() {
		types, all, err := h.backend.CancelledWith(r.Context(), q.ID)
		if err == nil {
			err = rest.PermitTypes(r, types, all)
		}
		if err != nil {
			return s, err
		}
	}
	if s.Status, err = h.backend.Cancel(r.Context(), q.ID, r.Name()); s.Status == dispatcherd.Running {
		r.SetStatus(http.StatusAccepted)
	}
	return s, err
}

// retryJob makes a failed or cancelled job pending again. For a caller it is the same as a
// further submission of the payload, so it needs the same permission.
func (h *Handler) retryJob(r *rest.Request, q *jobID) (JobState, error) {
	err := h.permitRow(r, q.ID)
	if err == nil {
		err = h.backend.Retry(r.Context(), q.ID)
	}
	return JobState{ID: q.ID, Status: dispatcherd.Pending}, err
}

// getWhy explains rows, and requests in memory. Requests in memory have negative ids.
func (h *Handler) getWhy(r *rest.Request, q *anyID) (Why, error) {
	why, err := h.backend.Why(r.Context(), q.ID)
	if err == nil {
		err = r.Permit(why.Type)
	}
	return why, err
}
