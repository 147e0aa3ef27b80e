package contract

import (
	"fmt"
	"time"
)

// Values of Pause.What.
const (
	PauseAll      = "all"
	PauseQueued   = "queued"   // rows wait, and requests run
	PauseRequests = "requests" // requests wait or are refused, and rows run
)

// Controls are what operators have set for types and workers. All dispatchers follow them.
type Controls struct {
	Version int64                  // grows with each change
	Clock   time.Time              // of Postgres, when they were read
	Pauses  []Pause                // that have not expired, by type
	Drains  []Drain                // by worker
	Away    []int32                // dispatchers that accept no new workers and send theirs to others
	Retries map[string]RetryPolicy // by type
}

// RetryPolicy is the policy of a type for its jobs that have none. A zero value means that of the dispatcher.
type RetryPolicy struct {
	MaxAttempts int `json:"max_attempts,omitempty" minimum:"1" maximum:"32767"` // failures after which a job fails for good; absent: 5
	// How long a job waits after a failure, such as exponential:1s,2,1h,0.2 or fixed:30s or list:1s,10s,5m; absent: as the dispatcher says.
	Backoff string `json:"backoff,omitempty"`
}

// RetryState is the policy of a type.
type RetryState struct {
	RetryPolicy

	Type    string `json:"type"`
	Warning string `json:"warning,omitempty" db:"-"` // the type is not known

	Confirmation
}

// Pause says that no attempt of a type starts.
type Pause struct {
	Type   string     `json:"type"`
	What   string     `json:"what" enum:"all,queued,requests"` // queued: rows wait, and requests run; requests: the reverse
	By     string     `json:"by"`                              // who has paused the type
	At     time.Time  `json:"at"`
	Until  *time.Time `json:"until,omitempty"` // by the clock of Postgres; absent: until it is resumed
	Reason string     `json:"reason,omitempty"`
}

// Queued reports whether rows wait.
func (p *Pause) Queued() bool { return p.What != PauseRequests }

// Requests reports whether requests wait.
func (p *Pause) Requests() bool { return p.What != PauseQueued }

// Text says who has paused the type, until when, and why.
func (p *Pause) Text() string {
	text := "Paused by " + p.By
	if p.Until != nil {
		text += " until " + p.Until.UTC().Format(time.RFC3339)
	}
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

// Drain says that a worker gets no jobs.
type Drain struct {
	Worker string `json:"worker"`
	// Which of the processes with this name is meant, as its hello says or a dispatcher has found out; absent: all of them.
	Process string    `json:"process,omitempty"`
	Types   []string  `json:"types,omitempty"` // of which it gets no jobs; absent: all
	By      string    `json:"by"`              // who drains the worker
	At      time.Time `json:"at"`
	Reason  string    `json:"reason,omitempty"`
}

// Text says who has drained the worker, and why, to those who look for its slots.
func (d *Drain) Text() string {
	by := d.By
	if d.Reason != "" {
		by += " (" + d.Reason + ")"
	}
	return fmt.Sprintf("worker %s supports it, but was drained by %s: 'dispatcherd worker resume %[1]s'", d.Worker, by)
}

// Key names a drain in the heartbeats of dispatchers.
func (d *Drain) Key() string { return d.Worker + "/" + d.Process }

// PauseOrder says how to pause a type.
type PauseOrder struct {
	What string `json:"what,omitempty" enum:"all,queued,requests"` // queued: rows wait, and requests run; requests: the reverse; absent: all
	// How long the pause lasts, such as 90s, 1h or 7d; absent: until the type is resumed.
	For    *Duration `json:"for,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// PauseState is a pause that has begun.
type PauseState struct {
	Pause

	Former  string `json:"former_by,omitempty"`      // who has made the pause that it replaces
	Warning string `json:"warning,omitempty" db:"-"` // the type is not known

	Confirmation
}

// Confirmation says whether all dispatchers follow a change.
type Confirmation struct {
	Unconfirmed []string `json:"unconfirmed,omitempty" db:"-"` // names of dispatchers that have not said yet that they follow it
}

// DrainOrder says how to drain a worker.
type DrainOrder struct {
	Types  []string `json:"types,omitempty"` // only these types; absent: all
	Reason string   `json:"reason,omitempty"`
}

// DrainState is a drained worker.
type DrainState struct {
	Drain

	Dispatchers int      `json:"dispatchers"`                // to which the worker is connected
	Running     int      `json:"running"`                    // jobs of the drained types that have not ended there
	Former      string   `json:"former_by,omitempty"`        // who has made the drain that it replaces
	Uncovered   []string `json:"uncovered,omitempty" db:"-"` // types that no slot of the cluster supports any more
	Warning     string   `json:"warning,omitempty" db:"-"`   // a type is not known

	Confirmation
}

// The bounds of controls.
const (
	MaxControls     = 10_000 // rows of each kind
	MaxDrainedTypes = 1000   // of one drain
)
