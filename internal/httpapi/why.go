package httpapi

import (
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Why explains why a job waits, runs or has ended.
type Why struct {
	Job       dispatcherd.JobID    `json:"job"`
	Type      string               `json:"type"`
	Mode      string               `json:"mode" enum:"queued,on_demand"`
	Priority  dispatcherd.Priority `json:"priority"`
	Status    dispatcherd.Status   `json:"status"`
	Reasons   []string             `json:"reasons"`            // why the job does not start, or where it is; empty: it starts next
	RunAt     *time.Time           `json:"run_at,omitempty"`   // when the job becomes due; absent if it is due
	ReadAt    time.Time            `json:"read_at,omitzero"`   // when the row was read, by the clock of Postgres
	Failures  int                  `json:"failures,omitempty"` // failed attempts of the row
	Attempts  int                  `json:"max_attempts,omitempty"`
	Cancelled *string              `json:"cancelled_by,omitempty"` // who cancelled the job, or, while it runs, who has asked for it
	Error     string               `json:"last_error,omitempty"`   // the latest one of the row
	// if no slot supports the type: types that slots support, similar names first, at most 16
	Offered  []string        `json:"offered,omitempty"`
	Similar  string          `json:"similar,omitempty"`  // the first of Offered, if its name may be the intended one
	Drained  string          `json:"drained,omitempty"`  // if no slot supports the type: a drained worker that does
	Locked   *RowLock        `json:"locked,omitempty"`   // with reason RowLocked: the session that has locked the row
	Stopping string          `json:"stopping,omitempty"` // why the job is being stopped
	Paused   string          `json:"paused,omitempty"`   // who has paused the type, until when and why
	Age      float64         `json:"age_seconds"`
	Score    *contract.Score `json:"score,omitempty"` // absent if the job is final or another dispatcher runs it

	contract.Standing

	Keys    string   `json:"keys,omitempty"`     // keys whose permits the job needs
	KeyWait *KeyWait `json:"key_wait,omitempty"` // why a job with keys waits for its permits

	Owner     *string    `json:"owner,omitempty"`            // of the unique key: a role of Postgres; absent: the dispatchers
	UniqueKey *string    `json:"unique_key,omitempty"`       // that no other pending or running job of the owner has
	KeyJob    *int64     `json:"unique_key_job,omitempty"`   // of a job that has ended: the pending or running job with its unique key
	KeyUntil  *time.Time `json:"unique_key_until,omitempty"` // the unique key stays taken so long, also after the end of the job

	WaitsFor *contract.Dependencies `json:"waits_for,omitempty"` // of a job with status waiting

	Expected   *Expected   `json:"expected,omitempty"`   // absent without --duration-window
	Overtaking *Overtaking `json:"overtaking,omitempty"` // absent if the weights set no bound, or if the job no longer waits
	Dispatcher int         `json:"dispatcher,omitempty"` // the dispatcher that runs the job; absent if it is this one
	// Its name; absent: it is gone.
	DispatcherName string `json:"dispatcher_name,omitempty"`

	Placement *Placement `json:"placement,omitempty"` // the latest decision that assigned a slot to the job
	End       *End       `json:"end,omitempty"`       // the latest end of an attempt of the job on this dispatcher
	// Why placement is absent although the job has started. overwritten: the decision log has replaced its entry. missing: another
	// dispatcher or an earlier process started it. never_placed: it ended before a placement. off: there is no decision log.
	DecisionLog string `json:"decision_log,omitempty" enum:"overwritten,missing,never_placed,off"`
}

// Conceal implements contract.Confidential. Postgres may quote a row when it refuses it.
func (w *Why) Conceal() {
	w.Error, w.SetAside, w.Held = "", "", ""
	if w.WaitsFor != nil {
		w.WaitsFor.Aside = ""
	}
}

// Reasons that do not come from the core.
const (
	ReasonFinal             = "Final"             // done, failed or cancelled
	ReasonOtherDispatcher   = "OtherDispatcher"   // another dispatcher runs it
	ReasonUnheld            = "Unheld"            // it runs, or ran last, under this dispatcher in the table only
	ReasonAdmittedElsewhere = "AdmittedElsewhere" // only another dispatcher may run it: its limit counts the jobs of each dispatcher
	ReasonRowLocked         = "RowLocked"         // another session has locked the row, so dispatchers skip it
	ReasonDependencies      = "Dependencies"      // it waits for other jobs; Why.WaitsFor names them
	ReasonUnsealed          = "Unsealed"          // it is the callback of a batch that is not sealed
	ReasonAside             = "FlowSetAside"      // its batch or flow is set aside; Why.WaitsFor says why
)

// Reasons of a job with keys that waits for its permits. The controller knows them; another dispatcher says KeyElsewhere.
const (
	ReasonKeyBusy      = "KeyBusy"      // a key has no room
	ReasonKeyOrder     = "KeyOrder"     // another job has precedence at a key
	ReasonKeyRate      = "KeyRate"      // the window of a key has no room
	ReasonKeyPaused    = "KeyPaused"    // the capacity of a key is 0
	ReasonKeyCost      = "KeyCost"      // the job costs more than the limit of a key
	ReasonKeyElsewhere = "KeyElsewhere" // another dispatcher is the controller
	ReasonHeld         = "Held"         // the controller has not admitted it; KeyWait.Detail says why
)

// KeyWait says for which key a job waits.
type KeyWait struct {
	Key      string  `json:"key,omitempty"`               // that the job waits for
	Held     int64   `json:"held"`                        // cost of the jobs that have permits
	Capacity *int64  `json:"capacity"`                    // nil = unlimited
	Holders  []int64 `json:"holders,omitempty"`           // ids of jobs that have permits, at most 10
	Alone    bool    `json:"alone,omitempty"`             // one of the holders runs alone on the key
	Scope    string  `json:"scope,omitempty"`             // dispatcher: each dispatcher has the capacity; else absent
	Parent   *int64  `json:"parent,omitempty"`            // the parent of the job, if it has permits of its keys: it may wait for this job
	Position int     `json:"position,omitempty"`          // among the waiting jobs of the key, 1 is the next
	AtLeast  bool    `json:"position_at_least,omitempty"` // others may be before the job that are not known or not counted
	First    int64   `json:"first,omitempty"`             // with KeyOrder: the job that has precedence
	// with KeyOrder: when First is retried, which the limit makes others wait for
	RetryAt    *time.Time           `json:"retry_at,omitempty"`
	At         *time.Time           `json:"at,omitempty"`         // with KeyRate: when the window may have room
	Detail     string               `json:"detail,omitempty"`     // with Held
	Controller *contract.Controller `json:"controller,omitempty"` // with KeyElsewhere: that admits jobs with keys; absent: there is none
}

// RowLock is a lock of another session of Postgres.
type RowLock struct {
	PID         int        `json:"pid"`             // of the session; 0 = several sessions
	Since       *time.Time `json:"since,omitempty"` // begin of its transaction; absent if the dispatcher's role may not see it
	Application string     `json:"application,omitempty"`
}

// Values of Why.DecisionLog.
const (
	DecisionLogOverwritten = "overwritten"
	DecisionLogMissing     = "missing"
	DecisionLogNeverPlaced = "never_placed"
	DecisionLogOff         = "off"
)

// Placement is the decision to run a job on a slot.
type Placement struct {
	At        time.Time          `json:"at"`
	Attempt   int                `json:"attempt"` // 0 for a queued job, because the claim that follows assigns its attempt
	Slot      int64              `json:"slot"`
	Worker    string             `json:"worker"`
	Score     contract.Score     `json:"score"`
	Capacity  int                `json:"capacity"`                  // slots of all dispatchers that supported the type, free or busy
	SlotTypes int                `json:"slot_types"`                // types that the slot supports
	RunnerUp  *contract.RunnerUp `json:"runner_up,omitempty"`       // nil: no other job was considered
	Waited    float64            `json:"waited_seconds"`            // from the arrival of the job to the placement
	Permits   float64            `json:"permits_seconds,omitempty"` // the first part of the wait of a job with keys, before it had its permits
	WaitedFor []string           `json:"waited_for,omitempty"`      // reasons why jobs of its type did not start in this time
}

// End is the end of an attempt, or of a request.
type End struct {
	At      time.Time `json:"at"`
	Attempt int       `json:"attempt"`
	Outcome string    `json:"outcome"`
	Waited  float64   `json:"waited_seconds"` // before the attempt started
	Ran     float64   `json:"ran_seconds"`
}

// Expected is how long the jobs of the type and duration class of a job take.
type Expected struct {
	Class    string  `json:"class,omitempty"`  // "0" to "7"; absent if the job has no expected duration
	Duration float64 `json:"duration_seconds"` // as this dispatcher expects it
	Learned  bool    `json:"learned"`          // false if no such job has been done yet
	// absent without an overtaking window; a job that arrives more than this later overtakes the job only if its duration is
	// expected to be longer meanwhile
	PassedBy *float64 `json:"passed_by_seconds,omitempty"`
}

// Overtaking is the time in which newer jobs can overtake a job.
type Overtaking struct {
	Window float64 `json:"window_seconds"`    // W: a job that arrives more than W later cannot overtake the job
	Closes float64 `json:"closes_in_seconds"` // time after which no new job can overtake the job; 0: this is so already
}
