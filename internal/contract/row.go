package contract

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Job is one row of the table jobs as the API and the command line show it.
type Job struct {
	ID          dispatcherd.JobID    `json:"id"`
	Type        string               `json:"type"`
	Status      dispatcherd.Status   `json:"status"`
	Priority    dispatcherd.Priority `json:"priority"`
	ReadAt      time.Time            `json:"-"` // when the row was read, database clock; zero in a list
	RunAt       time.Time            `json:"run_at"`
	FirstRunAt  *time.Time           `json:"first_run_at,omitempty"` // run_at of the first attempt, if a retry has changed it
	CreatedAt   time.Time            `json:"created_at"`
	StartedAt   *time.Time           `json:"started_at,omitempty"`
	FinishedAt  *time.Time           `json:"finished_at,omitempty"`
	Attempt     dispatcherd.Attempt  `json:"attempt"` // fencing number of the latest execution; 0 = no execution yet
	MaxAttempts int                  `json:"max_attempts"`
	Backoff     *string              `json:"backoff,omitempty"` // how long it waits after a failure; absent: as its type says
	Failures    int                  `json:"failures"`
	Crashes     int                  `json:"crashes"`
	TimeoutMS   *int                 `json:"timeout_ms,omitempty"`  // timeout of one attempt
	ExpectedMS  *int                 `json:"expected_ms,omitempty"` // how long an attempt probably takes
	Traceparent *string              `json:"traceparent,omitempty"` // W3C trace context of the producer
	Keys        *string              `json:"keys,omitempty"`        // whose permits the job needs
	// Of a job with keys that has its permits, or had them last; absent while it waits for them; it grows with each admission of a key.
	Fence      *int64  `json:"fence,omitempty"`
	AdmittedTo *int    `json:"admitted_to,omitempty"` // the only dispatcher that may run it, because a limit counts the jobs of each
	Parent     *int64  `json:"parent,omitempty"`      // its batch or flow, or the job whose child it is
	Owner      *string `json:"owner,omitempty"`       // of the unique key: a role of Postgres; absent: the dispatchers
	UniqueKey  *string `json:"unique_key,omitempty"`  // that no other pending or running job of the owner has
	// The unique key stays taken so long, also after the end of the job; not in lists.
	KeyUntil *time.Time `json:"unique_key_until,omitempty"`
	// Of an ended job, the pending or running job that has its unique key; not in lists.
	UniqueKeyJob *int64  `json:"unique_key_job,omitempty"`
	ParentKeys   *string `json:"-"` // of a pending job with keys: those of which its parent has permits; nil in lists
	Dispatcher   *int    `json:"dispatcher,omitempty"`
	// The name of this dispatcher, or of the only one that may run it; absent: it is gone.
	DispatcherName *string  `json:"dispatcher_name,omitempty"`
	Worker         *string  `json:"worker,omitempty"`         // that runs it, or ran the last attempt, if that is known
	Waited         *float64 `json:"waited_seconds,omitempty"` // for the present or last attempt
	Ran            *float64 `json:"ran_seconds,omitempty"`    // the present or last attempt
	Cancelled      *string  `json:"cancelled_by,omitempty"`   // who cancelled the job, or, while it runs, who has asked for it
	// Of the last attempt of an ended job that failed or waited at least a second.
	Placement *Placement      `json:"placement,omitempty"`
	Payload   json.RawMessage `json:"payload,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Progress  json.RawMessage `json:"progress,omitempty"`
	Log       json.RawMessage `json:"log,omitempty"`    // a string: the end of the log of the last attempt that ended
	Errors    json.RawMessage `json:"errors,omitempty"` // the last ten failures, the latest one last
}

// Confidential is an answer with data of jobs, or with errors that may quote them.
type Confidential interface {
	// Conceal removes what only callers with the right to payloads may read.
	Conceal()
}

// Conceal implements Confidential.
func (j *Job) Conceal() { j.Payload, j.Result, j.Progress, j.Log, j.Errors = nil, nil, nil, nil, nil }

// BadEnd is the end of an attempt that failed.
type BadEnd struct {
	Attempt   int        `json:"attempt"`
	At        time.Time  `json:"at"`
	Outcome   string     `json:"outcome"`
	Error     string     `json:"error"`
	Placement *Placement `json:"placement"` // nil if the attempt did not start
}

// String says how the attempt ended, without repeating the outcome.
func (e *BadEnd) String() string {
	return e.Outcome + ": " + strings.TrimPrefix(e.Error, e.Outcome+": ")
}

// BadEnds returns the last failures, the latest one last. It leaves out what cannot be parsed, because the result is only displayed.
func (j *Job) BadEnds() (ends []BadEnd) {
	_ = json.Unmarshal(j.Errors, &ends)
	return ends
}

// LastError returns the message of the latest failure, "" if there is none.
func (j *Job) LastError() string {
	ends := j.BadEnds()
	if len(ends) == 0 {
		return ""
	}
	return ends[len(ends)-1].Error
}

// Dispatcher is one row of the table dispatchers as the API shows it.
type Dispatcher struct {
	ID          int       `json:"id"`
	Name        string    `json:"name"`
	Self        bool      `json:"self"` // it answers this call
	StartedAt   time.Time `json:"started_at"`
	HeartbeatAt time.Time `json:"heartbeat_at"` // the last one, by the database clock
	LeaseMS     int64     `json:"lease_ms"`     // without a heartbeat for so long, it is lost
	State       string    `json:"state" enum:"running,drained,leaving,lost"`
	Types       int       `json:"types"`   // that its slots support
	Running     int       `json:"running"` // queued jobs, exact up to 10,000, then 10,001
}
