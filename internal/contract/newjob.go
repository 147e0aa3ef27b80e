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
	// 1 to 4 words KEY, KEY*COST or KEY*all: the job runs only while it has a permit of each key.
	Keys *string `json:"keys,omitempty"`
}
