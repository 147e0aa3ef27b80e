package contract

import (
	"encoding/json"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// JobColumns are the columns that a producer sets of any job, as JSON. A nil or empty field gets the default of the table.
type JobColumns struct {
	Type        string               `json:"type" required:"true" minLength:"1" maxLength:"128"` // what the job needs a slot to support
	Priority    dispatcherd.Priority `json:"priority"`
	Payload     json.RawMessage      `json:"payload,omitempty"` // any JSON; absent: {}
	RunAt       *time.Time           `json:"run_at,omitempty"`  // no attempt starts before; absent: now
	MaxAttempts *int16               `json:"max_attempts,omitempty" minimum:"1"`
	TimeoutMS   *int32               `json:"timeout_ms,omitempty" minimum:"1"`  // limit of one attempt
	ExpectedMS  *int32               `json:"expected_ms,omitempty" minimum:"1"` // how long an attempt probably takes
	// How long it waits after a failure, such as exponential:1s,2,1h,0.2 or fixed:30s or list:1s,10s,5m; absent: as its type says.
	Backoff *string `json:"backoff,omitempty"`
	// 1 to 4 words KEY, KEY*COST or KEY*all: the job runs only while it has a permit of each key.
	Keys *string `json:"keys,omitempty"`
	// W3C trace context, for the worker; absent: that of the header Traceparent.
	Traceparent *string `json:"traceparent,omitempty"`
}

// Needs is what a job needs to run.
type Needs struct{ Type, Keys string }

// NewJob is a job that will be inserted, as one line of JSON describes it. An absent member gets the default of the table.
type NewJob struct {
	JobColumns

	Parent *dispatcherd.JobID `json:"parent,omitempty" minimum:"1"` // the open batch whose member the job is
	// No other pending or running job has it. A member of a batch whose key is taken is refused.
	UniqueKey *string `json:"unique_key,omitempty" minLength:"1" maxLength:"512"`
	// Of a single job: how long the unique key stays taken, also after the end of the job.
	UniqueFor *Duration `json:"unique_for,omitempty"`
	// Of a single job, instead of run_at: no attempt starts earlier than this time from now, by the clock of Postgres.
	RunIn *Duration `json:"run_in,omitempty"`
}
