package api

import "github.com/dispatcherd/dispatcherd"

// Why says where a job stands and what keeps it there.
type Why struct {
	Job      dispatcherd.JobID    `json:"job"`
	Type     string               `json:"type"`
	Mode     string               `json:"mode"`
	Priority dispatcherd.Priority `json:"priority"`
	Status   dispatcherd.Status   `json:"status"`
	Reasons  []string             `json:"reasons"` // everything that keeps it from starting, or where it is. Empty: it starts next
	Age      float64              `json:"age_seconds"`
	Score    *Score               `json:"score,omitempty"` // absent once it is final, or runs elsewhere

	Rank       int  `json:"rank,omitempty"`    // place among the waiting jobs of its type; 1 goes next. Absent if it does not wait here
	Waiting    int  `json:"waiting,omitempty"` // waiting jobs of its type known here
	RankAll    int  `json:"rank_of_all,omitempty"`
	WaitingAll int  `json:"waiting_of_all,omitempty"`
	AtLeast    bool `json:"at_least,omitempty"`  // the ranks are lower bounds: Postgres may hold more jobs that go before
	Competing  int  `json:"competing,omitempty"` // jobs ahead that could take a slot it could take

	Capacity  int     `json:"capacity"` // slots of this dispatcher that support its type, free or busy
	Free      int     `json:"free"`
	Elsewhere int     `json:"elsewhere,omitempty"` // slots of other dispatchers that support it
	Slot      int64   `json:"slot,omitempty"`      // the slot it runs on, or would get now
	Slots     []Slot  `json:"slots,omitempty"`     // compatible slots, at most 32
	Ahead     []Rival `json:"ahead,omitempty"`     // the first of the competing jobs, at most 16

	Overtaking *Overtaking `json:"overtaking,omitempty"` // absent if the weights set no bound, and once the job waits no more
	Dispatcher int         `json:"dispatcher,omitempty"` // who runs it, if it is not this one
}

// Reasons of rows that the dispatcher which was asked has nothing to say about. The
// others are those of its core.
const (
	ReasonFinal     = "Final"     // done, failed or cancelled
	ReasonElsewhere = "Elsewhere" // another dispatcher runs it
)

// Score is a score by term, in points.
type Score struct {
	Total    float64 `json:"total"`
	Base     float64 `json:"base"`
	Age      float64 `json:"age"`
	Rarity   float64 `json:"rarity"`
	OnDemand float64 `json:"on_demand"`
}

// Rival is a waiting job that goes first.
type Rival struct {
	Job      int64                `json:"job"`
	Mode     string               `json:"mode"`
	Type     string               `json:"type"`
	Priority dispatcherd.Priority `json:"priority"`
	Score    Score                `json:"score"`
	Passed   *float64             `json:"passed_in_seconds"` // when this job gets ahead of it if both go on waiting; null: never
}

// Overtaking is the bound on how long newcomers can pass a job.
type Overtaking struct {
	Window float64 `json:"window_seconds"`    // nothing that arrives later than this after the job goes before it
	Closes float64 `json:"closes_in_seconds"` // from then on no newcomer goes before it; 0: already
}
