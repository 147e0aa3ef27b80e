package history

import "time"

// Slack is how far the time of a Change may be off.
const Slack = 20 * time.Millisecond

// History is everything that is known of an experiment.
type History struct {
	Batches   []Batch
	Processes []Process
	Changes   []Change // in the order of Postgres, which is the order of commits for each job
	Rows      []Row    // when all was quiet
	Calls     []Call
	Troubles  []Trouble
	Over      int64 // when the last process was told to end
}

// Trouble is a period in which a dispatcher or a worker could not work.
type Trouble struct {
	From, To int64
	Who      string // a dispatcher or a worker; "" = all of them
}

// Fate is what a producer knows about its transaction.
type Fate int

// The fates.
const (
	Committed  Fate = iota
	RolledBack      // certainly not there
	Unknown         // the answer to COMMIT never came: there as a whole, or not at all
)

// Batch is one transaction of a producer.
type Batch struct {
	Jobs         []Work
	Begun, Ended int64 // Ended is when the producer knew its fate
	Fate         Fate
}

// Change is a transition of a row in Postgres.
type Change struct {
	At         int64
	Due        int64 // from when the row may be claimed, if it waits
	Job        int64
	Kind       ChangeKind
	Attempt    int32 // after the change
	Dispatcher int32 // the owner before or after; 0 = none
}

// ChangeKind says what kind of transition it was.
type ChangeKind int16

// Transitions, as the triggers number them.
const (
	Inserted ChangeKind = 1 // → pending
	Claimed  ChangeKind = 2 // pending → running, one attempt more
	Back     ChangeKind = 3 // running → pending
	Ended    ChangeKind = 4 // running → a final table
	Illegal  ChangeKind = 5 // any other change of status or attempt
	Adopted  ChangeKind = 6 // running → running under another dispatcher, the same attempt
	Lost     ChangeKind = 7 // of a dispatcher: declared lost; it has no job
)

// Row is a job as it is in the end.
type Row struct {
	Job      int64
	N        int64 // the producer's own number, from the payload
	Type     string
	Status   string
	Attempt  int32
	Failures int32
	Crashes  int32
	Result   *Result
	Errors   []BadEnd
}

// Result is what a worker returns. It names the job by the producer's number
// and the attempt that made it, so that nothing else can pass for it.
type Result struct {
	N       int64 `json:"n"`
	Attempt int32 `json:"attempt"`
}

// BadEnd is an entry of the row's errors.
type BadEnd struct {
	Attempt int32  `json:"attempt"`
	Outcome string `json:"outcome"`
	Error   string `json:"error"`
}
