package api

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Why explains why a job waits, runs or has ended.
type Why struct {
	Job      dispatcherd.JobID    `json:"job"`
	Type     string               `json:"type"`
	Mode     string               `json:"mode"`
	Priority dispatcherd.Priority `json:"priority"`
	Status   dispatcherd.Status   `json:"status"`
	Reasons  []string             `json:"reasons"`          // all reasons why it does not start, or where it is. Empty: it starts next
	RunAt    *time.Time           `json:"run_at,omitempty"` // when it becomes due; absent if it is due
	Age      float64              `json:"age_seconds"`
	Score    *Score               `json:"score,omitempty"` // absent once it is final, or if another dispatcher runs it

	Rank       int  `json:"rank,omitempty"`    // place among the waiting jobs of its type; 1 goes next. Absent if it does not wait here
	Waiting    int  `json:"waiting,omitempty"` // waiting jobs of its type known here
	RankAll    int  `json:"rank_of_all,omitempty"`
	WaitingAll int  `json:"waiting_of_all,omitempty"`
	AtLeast    bool `json:"at_least,omitempty"`  // the ranks are lower bounds: Postgres may hold more jobs that go before
	Competing  int  `json:"competing,omitempty"` // jobs ahead that could take a slot it could take

	Capacity   int     `json:"capacity"` // slots of this dispatcher that support its type, free or busy
	Free       int     `json:"free"`
	OtherSlots int     `json:"other_slots,omitempty"` // slots of other dispatchers that support it
	Slot       int64   `json:"slot,omitempty"`        // the slot it runs on, or would get now
	Slots      []Slot  `json:"slots,omitempty"`       // compatible slots, at most 32
	Ahead      []Rival `json:"ahead,omitempty"`       // the first of the competing jobs, at most 16

	Overtaking *Overtaking `json:"overtaking,omitempty"` // absent if the weights set no bound, and when the job no longer waits
	Dispatcher int         `json:"dispatcher,omitempty"` // the dispatcher that runs it, if it is not this one

	Placement   *Placement `json:"placement,omitempty"`    // the latest decision that assigned a slot to it
	End         *End       `json:"end,omitempty"`          // the latest end of one of its attempts here
	DecisionLog string     `json:"decision_log,omitempty"` // why Placement is nil although the job has started
}

// Reasons that do not come from the core.
const (
	ReasonFinal           = "Final"           // done, failed or cancelled
	ReasonOtherDispatcher = "OtherDispatcher" // another dispatcher runs it
)

// Values of Why.DecisionLog.
const (
	DecisionLogOverwritten = "overwritten"
	DecisionLogMissing     = "missing"
	DecisionLogOff         = "off"
)

// Placement is the decision to run a job on a slot.
type Placement struct {
	At        time.Time `json:"at"`
	Attempt   int       `json:"attempt"` // 0 for a queued job, whose attempt is assigned by the claim that follows
	Slot      int64     `json:"slot"`
	Worker    string    `json:"worker"`
	Score     Score     `json:"score"`
	Capacity  int       `json:"capacity"`             // slots that supported the type, free or busy, at all dispatchers
	SlotTypes int       `json:"slot_types"`           // types that the slot supports
	RunnerUp  *RunnerUp `json:"runner_up,omitempty"`  // nil: no other job was considered
	Waited    float64   `json:"waited_seconds"`       // since it arrived
	WaitedFor []string  `json:"waited_for,omitempty"` // reasons why jobs of its type did not start since it arrived
}

// RunnerUp is the best job that was considered after the one that was placed, or
// the one that lost the slot to it.
type RunnerUp struct {
	Job   int64   `json:"job,omitempty"` // 0: a row that was not read yet; Score is its upper bound
	Type  string  `json:"type"`
	Score float64 `json:"score"`
}

// End is the end of an attempt, or of a request.
type End struct {
	At      time.Time `json:"at"`
	Attempt int       `json:"attempt"`
	Outcome string    `json:"outcome"`
	Waited  float64   `json:"waited_seconds"` // before the attempt started
	Ran     float64   `json:"ran_seconds"`
}

// Score is a score by term, in points.
type Score struct {
	Total    float64 `json:"total"`
	Base     float64 `json:"base"`
	Age      float64 `json:"age"`
	Rarity   float64 `json:"rarity"`
	OnDemand float64 `json:"on_demand"`
}

// Rival is a waiting job that starts earlier.
type Rival struct {
	Job      int64                `json:"job"`
	Mode     string               `json:"mode"`
	Type     string               `json:"type"`
	Priority dispatcherd.Priority `json:"priority"`
	Score    Score                `json:"score"`
	Passed   *float64             `json:"passed_in_seconds"` // when this job gets ahead of it if both go on waiting; null: never
}

// Overtaking is the time in which newer jobs can overtake a job.
type Overtaking struct {
	Window float64 `json:"window_seconds"`    // no job that arrives later than this after the job overtakes it
	Closes float64 `json:"closes_in_seconds"` // from then on no new job overtakes it; 0: already
}
