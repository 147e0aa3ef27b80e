package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"

	"github.com/dispatcherd/dispatcherd"
)

// longestUpload bounds the duration of a stream of jobs, because the transaction of the
// stream holds a connection and delays vacuum.
const longestUpload = time.Hour

// maxProblems bounds the bad lines of an upload that are listed.
const maxProblems = 100

// Inserted answers a single insert.
type Inserted struct {
	ID       dispatcherd.JobID `json:"id"`
	Existing bool              `json:"existing,omitempty"` // nothing was inserted: the job with this id has the unique key
}

// Uploaded answers a stream of jobs.
type Uploaded struct {
	Inserted int64             `json:"inserted"`
	Bad      int               `json:"bad"`                // lines that were left out
	Problems []problem.Problem `json:"problems,omitempty"` // one for each of the first 100 bad lines
}

// postJobs inserts one job, or a stream of jobs with one job per line.
func (h *Handler) postJobs(w http.ResponseWriter, r *http.Request) error {
	onError := r.URL.Query().Get("on_error")
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case len(r.Header.Values("Idempotency-Key")) > 0: // ignoring it could insert the job twice
		endBody(w, r, false)
		return problem.InvalidRequest.Of(
			"an insert takes no Idempotency-Key, because a repeated insert adds another job; POST /v1/requests takes a key",
		)
	case onError != "" && onError != "abort" && onError != "skip":
		return problem.InvalidRequest.Of("on_error must be abort or skip")
	case err == nil && (kind == "application/x-ndjson" || kind == "application/jsonl" || kind == "application/json-lines"):
		return h.uploadJobs(w, r, onError != "skip")
	case !isJSON(r):
		endBody(w, r, false)
		return problem.UnsupportedMedia.Of("send application/json for one job, application/x-ndjson for many")
	}
	body, held, err := h.readBody(w, r, int64(h.cfg.MaxPayload))
	if long, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return problem.TooLarge.Of("at most " + strconv.FormatInt(long.Limit, 10) + " bytes are accepted for one job; " + howManyGo)
	}
	if err != nil {
		return err
	}
	defer held.Drop()
	id, inserted, err := h.backend.Insert(r.Context(), body, h.callerOf(r).permit)
	if _, invalid := errors.AsType[*ondemand.InvalidError](err); invalid && areMany(body) {
		return problem.InvalidJob.Of("the body contains more than one job; " + howManyGo)
	}
	if err != nil {
		return err
	}
	w.Header().Set("Location", jobPath(id))
	status := http.StatusOK
	if inserted {
		status = http.StatusCreated
	}
	answerJSON(w, status, Inserted{ID: id, Existing: !inserted})
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
func (h *Handler) uploadJobs(w http.ResponseWriter, r *http.Request, strict bool) error {
	control := http.NewResponseController(w)
	body := &patientBody{
		Reader: http.MaxBytesReader(w, r.Body, h.cfg.MaxUpload), control: control, silence: h.cfg.BodyTimeout,
		until: time.Now().Add(h.longestUpload),
	}
	_ = control.SetWriteDeadline(time.Time{}) // the upload may take longer; extendWrite sets the deadline again for the response
	var report Uploaded
	n, err := h.backend.InsertLines(r.Context(), body, h.callerOf(r).permit, strict, func(line int, reason error) {
		if report.Bad++; report.Bad <= maxProblems {
			p := problem.InvalidJob.Of(reason.Error())
			p.Line = line
			report.Problems = append(report.Problems, *p)
		}
	})
	h.extendWrite(w)
	refused := strict && report.Bad > 0
	if err != nil || refused {
		endBody(w, r, !errors.Is(err, ErrTooManyUploads))
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
		p := problem.BadLines.Of("bad lines: " + strconv.Itoa(report.Bad) + "; on_error=skip inserts the others")
		p.Bad, p.Problems = report.Bad, report.Problems
		return p
	}
	report.Inserted = n
	answerJSON(w, http.StatusCreated, report)
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

// jobID reads the id in a path.
func jobID(r *http.Request) (dispatcherd.JobID, error) {
	n, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || n < 1 {
		return 0, problem.NotFound.Of("ids of jobs are whole numbers from 1")
	}
	return dispatcherd.JobID(n), nil
}

// anyID reads the id of a row or of a request in memory in a path.
func anyID(r *http.Request) (dispatcherd.JobID, error) {
	n, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || n == 0 {
		return 0, problem.NotFound.Of("ids of jobs are whole numbers from 1, those of requests in memory from -1 down")
	}
	return dispatcherd.JobID(n), nil
}

func (h *Handler) getJob(w http.ResponseWriter, r *http.Request) error {
	id, err := jobID(r)
	if err != nil {
		return err
	}
	job, err := h.permittedRow(r, id)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, job)
	return nil
}

// JobState answers the cancellation and the retry of a job.
type JobState struct {
	ID     dispatcherd.JobID  `json:"id"`
	Status dispatcherd.Status `json:"status"` // running: its worker was asked to stop
}

// deleteJob cancels a waiting job at once. It asks the worker of a running job to stop the
// job, and answers 202 without waiting.
func (h *Handler) deleteJob(w http.ResponseWriter, r *http.Request) error {
	id, err := anyID(r)
	if err != nil {
		return err
	}
	if err := h.permitRow(r, id); err != nil {
		return err
	}
	if err := h.permitMembers(r, id); err != nil {
		return err
	}
	status, err := h.backend.Cancel(r.Context(), id, callerName(r))
	if err != nil {
		return err
	}
	code := http.StatusOK
	if status == dispatcherd.Running {
		code = http.StatusAccepted
	}
	answerJSON(w, code, JobState{ID: id, Status: status})
	return nil
}

// retryJob makes a failed or cancelled job pending again. For a caller it is the same as a
// further submission of the payload, so it needs the same permission.
func (h *Handler) retryJob(w http.ResponseWriter, r *http.Request) error {
	id, err := jobID(r)
	if err != nil {
		return err
	}
	if err := h.permitRow(r, id); err != nil {
		return err
	}
	if err := h.backend.Retry(r.Context(), id); err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, JobState{ID: id, Status: dispatcherd.Pending})
	return nil
}

// getWhy explains rows, and requests in memory. Requests in memory have negative ids.
func (h *Handler) getWhy(w http.ResponseWriter, r *http.Request) error {
	id, err := anyID(r)
	if err != nil {
		return err
	}
	why, err := h.backend.Why(r.Context(), id)
	if err == nil {
		err = h.callerOf(r).permit(why.Type)
	}
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, why)
	return nil
}
