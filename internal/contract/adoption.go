package contract

import (
	"slices"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// ResumeOffer is an execution that a worker began in an earlier session and
// offers to continue.
type ResumeOffer struct {
	ID      dispatcherd.JobID
	Attempt dispatcherd.Attempt
	From    Fingerprint // of the session in which the execution began
	// To is the fingerprint to be recorded, in general From.WithGeneration. If a job
	// was claimed for one session and sent to another, To is the fingerprint of the
	// other.
	To      Fingerprint
	Renewal bool // the job already runs under this dispatcher; only the recorded fingerprint changes
}

// AdoptRequest asks to take over rows that still run under the offered attempts.
// Their dispatcher may be lost, disconnected or alive. If it is alive, its later
// reports about the rows are stale. The same request may be sent again. Rows that
// an earlier copy took then count as taken.
type AdoptRequest struct {
	Token Token
	Jobs  []ResumeOffer // ascending by ID, no duplicates, all positive
}

// Adopted is a row that was taken over.
type Adopted struct {
	Won                             // without payload
	RunAt int64                     // microseconds since the Unix epoch, database clock
	Ran   time.Duration             // time since the attempt was claimed, ≥ 0
	Class dispatcherd.DurationClass // of its expected duration
}

// AdoptResult answers an AdoptRequest. With Verdict OK, an offered job that is in
// neither list cannot be adopted: the attempt has ended, the job was never sent to
// this session, or a later offer superseded this one. The rows of the jobs in Busy
// are locked; another request may ask for them. With another Verdict the request
// must be sent again.
type AdoptResult struct {
	Verdict Verdict
	Jobs    []Adopted           // ascending by ID
	Busy    []dispatcherd.JobID // ascending
}

// StartupType begins the type of the runs of startup-worker schedules in the table. No slot
// supports it. So if such a row becomes pending again, because its worker is gone, no other
// worker runs it, and it can be cancelled.
const StartupType = "startup-worker:"

// MayResume reports whether an execution of a type may continue on a slot that supports types.
func MayResume(types []string, name string) bool {
	return slices.Contains(types, name) || strings.HasPrefix(name, StartupType)
}
