package api

import "github.com/dispatcherd/dispatcherd"

// Why says where a job stands and what keeps it there.
type Why struct {
	Job      dispatcherd.JobID    `json:"job"`
	Type     string               `json:"type"`
	Mode     string               `enum:"queued,on_demand"                                                              json:"mode"`
	Priority dispatcherd.Priority `json:"priority"`
	Status   dispatcherd.Status   `json:"status"`
	Reasons  []string             `doc:"Everything that keeps it from starting, or where it is. Empty: it starts next." json:"reasons"         nullable:"false"`
	Age      float64              `json:"age_seconds"`
	Score    *Score               `doc:"Absent once it is final, or runs elsewhere."                                    json:"score,omitempty"`

	Rank       int  `doc:"Place among the waiting jobs of its type; 1 goes next. Absent if it does not wait here." json:"rank,omitempty"`
	Waiting    int  `doc:"Waiting jobs of its type known here."                                                    json:"waiting,omitempty"`
	RankAll    int  `json:"rank_of_all,omitempty"`
	WaitingAll int  `json:"waiting_of_all,omitempty"`
	AtLeast    bool `doc:"The ranks are lower bounds: Postgres may hold more jobs that go before."                 json:"at_least,omitempty"`
	Competing  int  `doc:"Jobs ahead that could take a slot it could take."                                        json:"competing,omitempty"`

	Capacity  int     `doc:"Slots of this dispatcher that support its type, free or busy." json:"capacity"`
	Free      int     `json:"free"`
	Elsewhere int     `doc:"Slots of other dispatchers that support it."                   json:"elsewhere,omitempty"`
	Slot      int64   `doc:"The slot it runs on, or would get now."                        json:"slot,omitempty"`
	Slots     []Slot  `doc:"Compatible slots, at most 32."                                 json:"slots,omitempty"`
	Ahead     []Rival `doc:"The first of the competing jobs, at most 16."                  json:"ahead,omitempty"`

	Overtaking *Overtaking `doc:"Absent if the weights set no bound, and once the job waits no more." json:"overtaking,omitempty"`
	Dispatcher int         `doc:"Who runs it, if it is not this one."                                 json:"dispatcher,omitempty"`
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
	Passed   *float64             `doc:"When this job gets ahead of it if both go on waiting; null: never." json:"passed_in_seconds"`
}

// Overtaking is the bound on how long newcomers can pass a job.
type Overtaking struct {
	Window float64 `doc:"Nothing that arrives later than this after the job goes before it." json:"window_seconds"`
	Closes float64 `doc:"From then on no newcomer goes before it; 0: already."               json:"closes_in_seconds"`
}
