package contract

import "github.com/dispatcherd/dispatcherd"

// Slot is one slot of a worker.
type Slot struct {
	Origin

	Slot     dispatcherd.SlotID    `json:"slot"`
	Worker   string                `json:"worker"`
	Session  dispatcherd.SessionID `json:"session"`
	Number   int32                 `json:"number"` // the worker's own number of the slot
	Types    []string              `json:"types"`
	State    string                `json:"state" enum:"free,reserved,busy,drained"`
	Draining bool                  `json:"draining,omitempty"` // it takes no more jobs
	Drain    *Drain                `json:"drain,omitempty"`    // what an operator has drained; absent: nothing
	Job      dispatcherd.JobID     `json:"job,omitempty"`      // negative for an on-demand request without a row
	JobType  string                `json:"job_type,omitempty"`
	Attempt  dispatcherd.Attempt   `json:"attempt,omitempty"`      // absent while the slot is free or reserved
	Busy     float64               `json:"busy_seconds,omitempty"` // how long the attempt has run
	// time until its timeout, or until the worker must have stopped it; absent: without a bound
	Left     float64 `json:"left_seconds,omitempty"`
	Stopping string  `json:"stopping,omitempty"` // why the job is being stopped
}

// WaitingRequest is a request that waits in memory, as the API shows it.
type WaitingRequest struct {
	ID       dispatcherd.JobID    `json:"id"` // negative
	Type     string               `json:"type"`
	Priority dispatcherd.Priority `json:"priority"`
	Age      float64              `json:"age_seconds"`
}

// Ranks are the places of a job in the order of decisions among the waiting jobs that this dispatcher knows.
type Ranks struct {
	Rank       int     `json:"rank,omitempty"`    // place among the waiting jobs of its type, 1 is the next; absent if it does not wait here
	Waiting    int     `json:"waiting,omitempty"` // known waiting jobs of its type
	RankAll    int     `json:"rank_of_all,omitempty"`
	WaitingAll int     `json:"waiting_of_all,omitempty"`
	AtLeast    bool    `json:"at_least,omitempty"`  // the ranks are lower bounds: Postgres may hold more jobs that go before
	Competing  int     `json:"competing,omitempty"` // jobs that go before this job and can use one of its compatible slots
	Ahead      []Rival `json:"ahead,omitempty"`     // the first jobs of Competing, at most 16
}

// Rival is a waiting job that goes before the explained job.
type Rival struct {
	Job      dispatcherd.JobID    `json:"job"`
	Mode     string               `json:"mode"`
	Type     string               `json:"type"`
	Priority dispatcherd.Priority `json:"priority"`
	Score    Score                `json:"score"`
	// when the explained job overtakes the rival if both continue to wait; null: never
	Passed *float64 `json:"passed_in_seconds"`
}

// RunnerUp is the best job that was considered after the placed job. If the placed job
// preempted another job, RunnerUp is the preempted job.
type RunnerUp struct {
	Job   int64   `json:"job,omitempty"` // 0: a row that was not yet read; Score is the upper bound of its lane
	Type  string  `json:"type"`
	Score float64 `json:"score"`
}

// Score is a score by term, in points.
type Score struct {
	ScoreTerms

	Total    float64 `json:"total"`
	OnDemand float64 `json:"on_demand"`
}

// Standing is where a job stands among the jobs and slots that this dispatcher knows.
type Standing struct {
	Ranks

	Capacity   int                `json:"capacity"` // slots of this dispatcher that support the type, free or busy
	Free       int                `json:"free"`
	OtherSlots int                `json:"other_slots,omitempty"` // slots of other dispatchers that support the type
	Slot       dispatcherd.SlotID `json:"slot,omitempty"`        // the slot on which the job runs, or which it would get now
	Slots      []Slot             `json:"slots,omitempty"`       // compatible slots, at most 32

	// why Postgres refused to claim, release or cancel the job, or cannot read its lane
	SetAside string `json:"set_aside,omitempty"`
	Held     string `json:"held,omitempty"` // with reason Unrecordable: why Postgres did not record the end
}
