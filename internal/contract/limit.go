package contract

import "time"

// Values of Limit.Scope.
const (
	ClusterScope    = "cluster"
	DispatcherScope = "dispatcher" // each dispatcher has the capacity and the rate
)

// Values of Limit.OnRetry.
const (
	PassOnRetry = "pass"
	WaitOnRetry = "wait" // while a job waits for its retry, no other job of the key starts
)

// Limit is a row of the table limits.
type Limit struct {
	Key      string   `json:"key"`            // a key, or a prefix and *: each key with the prefix has a limit of its own
	Capacity *int     `json:"capacity"`       // cost of the jobs that run at once; 0 = paused, nil = unlimited
	Rate     int      `json:"rate,omitempty"` // cost of the jobs that start within any window of length Per; 0 = unlimited
	Per      Duration `json:"per,omitempty"`
	Scope    string   `json:"scope"`
	OnRetry  string   `json:"on_retry"`
	// Version differs for limits of a key with other columns, at least 1. In an edit it is that of the limit to be edited; 0 =
	// any limit or none, NoVersion = none.
	Version int64 `json:"version,omitempty"`
}

// NewLimit returns the limit of a key without a row.
func NewLimit(key string) Limit {
	return Limit{Key: key, Capacity: new(1), Scope: ClusterScope, OnRetry: PassOnRetry}
}

// KeySummary is a key in a list.
type KeySummary struct {
	Key     string `json:"key"`
	Limit   Limit  `json:"limit"`   // that applies; without a row, its key is that of the summary
	Default bool   `json:"default"` // no row applies, so the key admits one job at a time
	Held    int64  `json:"held"`    // cost of the jobs that have permits, without those of KEY*all
	Alone   bool   `json:"alone"`   // a job that needs all of the key has its permit
	Holders int    `json:"holders"` // jobs that have permits
	Classes int    `json:"classes"` // of waiting jobs: equal keys, type and priority
}

// KeyPage is a page of keys, by name.
type KeyPage struct {
	Keys       []KeySummary `json:"keys"`
	Next       string       `json:"next_after,omitempty"` // the next page begins after this key; empty = there is none
	Incomplete bool         `json:"incomplete,omitempty"` // there are more classes or permits than were read
	Controller *Controller  `json:"controller,omitempty"` // absent: no dispatcher is the controller
}

// Controller is the dispatcher that admits jobs with keys.
type Controller struct {
	Dispatcher int    `json:"dispatcher"`
	Name       string `json:"name"`
}

// WaitingLimit bounds the count of the jobs that wait for a key.
const WaitingLimit = 10_000

// KeyState is a key with its jobs.
type KeyState struct {
	KeySummary

	Jobs    []KeyHolder `json:"jobs"`    // that have permits, the first 100 by fence
	Waiting int         `json:"waiting"` // jobs, counted to at most WaitingLimit
	Oldest  *time.Time  `json:"oldest,omitempty"`
	// The job that runs next; absent if none is due or known, or another program than the controller answers.
	Next       *KeyWaiter  `json:"next,omitempty"`
	Decided    bool        `json:"decided"` // the controller answers
	Started    *int64      `json:"started,omitempty"`
	Incomplete bool        `json:"incomplete,omitempty"` // there are more classes or permits than were read
	Controller *Controller `json:"controller,omitempty"` // absent: no dispatcher is the controller
}

// KeyHolder is a job that has a permit of a key.
type KeyHolder struct {
	ID         int64      `json:"id"`
	Type       string     `json:"type"`
	Cost       int64      `json:"cost"` // -1 = all
	Fence      int64      `json:"fence"`
	Dispatcher *int       `json:"dispatcher,omitempty"` // that runs it, or the only one that may; absent: any may
	StartedAt  *time.Time `json:"started_at,omitempty"` // absent: it waits for a slot
}

// KeyWaiter is a job that waits for a permit of a key.
type KeyWaiter struct {
	ID       int64     `json:"id"`
	Type     string    `json:"type"`
	Priority int16     `json:"priority"`
	Keys     string    `json:"keys"`
	RunAt    time.Time `json:"run_at"`
}
