package contract

import (
	"math"
	"time"
)

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
	// a key, or a prefix and *: each key with the prefix has a limit of its own
	Key string `json:"key"`
	// cost of the jobs that run at once; 0 = paused, null = unlimited; absent in a body: 1
	Capacity *int `json:"capacity" minimum:"0" maximum:"1000000000"`
	// cost of the jobs that start within any window of length per; absent = unlimited
	Rate  int      `json:"rate,omitempty" minimum:"1" maximum:"1000000000"`
	Per   Duration `json:"per,omitempty"`                   // from 10 ms to 366 days
	Scope string   `json:"scope" enum:"cluster,dispatcher"` // dispatcher: each dispatcher has the capacity and the rate
	// wait: while a job waits for its retry, no other job of the key starts
	OnRetry string `json:"on_retry" enum:"pass,wait"`
	// Follows from the other columns. In a body: replace the limit only if it has this version; absent: any or none; -1: only a new limit.
	Version int64 `json:"version,omitempty"`
}

// NewLimit returns the limit of a key without a row.
func NewLimit(key string) Limit {
	return Limit{Key: key, Capacity: new(1), Scope: ClusterScope, OnRetry: PassOnRetry}
}

// Most is the largest cost that the limit ever admits.
func (l *Limit) Most() int64 {
	most := int64(math.MaxInt64)
	if l.Capacity != nil {
		most = int64(*l.Capacity)
	}
	if l.Rate > 0 {
		most = min(most, int64(l.Rate))
	}
	return most
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
	Page[KeySummary]

	Incomplete bool        `json:"incomplete,omitempty"` // there are more classes or permits than were read
	Controller *Controller `json:"controller,omitempty"` // that admits jobs with keys; absent: there is none
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

	Jobs    []KeyHolder `json:"jobs"`             // that have permits, the first 100 by fence
	Waiting int         `json:"waiting"`          // jobs, counted to at most WaitingLimit
	Oldest  *time.Time  `json:"oldest,omitempty"` // since when the oldest due job waits
	ReadAt  time.Time   `json:"read_at,omitzero"` // when they were read, by the clock of Postgres
	// The job that runs next; absent if none is due or known, or another program than the controller answers.
	Next       *KeyWaiter  `json:"next,omitempty"`
	Decided    bool        `json:"decided"`              // the controller answers
	Started    *int64      `json:"started,omitempty"`    // cost that started within the window, if the controller answers
	Incomplete bool        `json:"incomplete,omitempty"` // there are more classes or permits than were read
	Controller *Controller `json:"controller,omitempty"` // absent: no dispatcher is the controller
}

// KeyHolder is a job that has a permit of a key.
type KeyHolder struct {
	ID         int64  `json:"id"`
	Type       string `json:"type"`
	Cost       int64  `json:"cost"` // -1 = all
	Fence      int64  `json:"fence"`
	Dispatcher *int   `json:"dispatcher,omitempty"` // that runs it, or the only one that may; absent: any may
	// Its name; absent: it is gone.
	DispatcherName string     `json:"dispatcher_name,omitempty"`
	StartedAt      *time.Time `json:"started_at,omitempty"` // absent: it waits for a slot
}

// KeyWaiter is a job that waits for a permit of a key.
type KeyWaiter struct {
	ID       int64     `json:"id"`
	Type     string    `json:"type"`
	Priority int16     `json:"priority"`
	Keys     string    `json:"keys"`
	RunAt    time.Time `json:"run_at"`
}
