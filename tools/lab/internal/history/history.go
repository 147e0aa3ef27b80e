package history

import "time"

// Slack is the largest error of the time of a Change.
const Slack = 20 * time.Millisecond

// History is everything that is known about an experiment.
type History struct {
	Batches   []Batch
	Processes []Process
	Changes   []Change // in the order of Postgres, which for each job is the order of commits
	Rows      []Row    // when no job waited or ran any more
	Calls     []Call
	Troubles  []Trouble
	Over      int64 // when the last process was told to end
	// Capacity is that of the keys with a limit. Any other key admits one job at a time.
	Capacity map[string]int
}

// Trouble is a period in which a dispatcher or a worker could not work.
type Trouble struct {
	From, To int64
	Who      string // name of a dispatcher or worker; "" = all of them
}

// Fate is what a producer knows about its transaction.
type Fate int

// The fates.
const (
	Committed  Fate = iota
	RolledBack      // certainly not in the table
	Unknown         // COMMIT was not answered: either all rows are in the table or none
)

// Batch is one transaction of a producer.
type Batch struct {
	Jobs         []Work
	Begun, Ended int64 // Ended is when the producer knew the fate of the transaction
	Fate         Fate
}

// Change is a transition of a row in Postgres.
type Change struct {
	At         int64
	Due        int64 // earliest time of a claim, if the row is pending
	Job        int64
	Kind       ChangeKind
	Attempt    int32  // after the change
	Dispatcher int32  // the dispatcher before or after the change; 0 = none
	Type       string // type of the row after the change; only of Inserted and Updated
	Fence      int64  // of a job with keys; only of Claimed
}

// ChangeKind is the kind of a transition.
type ChangeKind int16

// The kinds, numbered as in the triggers.
const (
	Inserted ChangeKind = 1 // → pending
	Claimed  ChangeKind = 2 // pending → running with the next attempt
	Back     ChangeKind = 3 // running → pending
	Ended    ChangeKind = 4 // running → a final table
	Illegal  ChangeKind = 5 // any other change of status or attempt
	Adopted  ChangeKind = 6 // running → running under another dispatcher, the same attempt
	Lost     ChangeKind = 7 // a dispatcher was declared lost; Job is 0
	Updated  ChangeKind = 8 // an operator changed type or run_at; status and attempt are the same
)

// Row is the final state of a job.
type Row struct {
	Job      int64
	N        int64 // the number that the producer gave the job in the payload
	Type     string
	Priority int16
	Keys     string
	Status   string
	Attempt  int32
	Failures int32
	Crashes  int32
	Result   *Result
	Errors   []BadEnd
	// Damaged says that the trial has made the payload unreadable.
	Damaged bool
}

// Result is what a worker returns. It contains the producer's number and the
// attempt, so that no other result can be mistaken for it.
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
