package contract

import "github.com/dispatcherd/dispatcherd"

// SpawnRequest asks to insert children of a running job. It is never sent again.
type SpawnRequest struct {
	Session  dispatcherd.SessionID // that runs the job
	User     string                // of the session; the Core sets it
	Parent   dispatcherd.JobID
	Attempt  dispatcherd.Attempt
	Number   int64  // chosen by the worker, for the answer
	Jobs     []byte // JSON array of jobs, checked by the statement
	Detached bool   // the children continue after the end of the parent
}

// SpawnResult is the answer to a SpawnRequest.
type SpawnResult struct {
	IDs    []dispatcherd.JobID // of the children, in the order of the jobs
	Rule   string              // "" = the children were inserted; otherwise a rule of package dispatcherd or the name of a constraint
	Reason string              // with Rule: a sentence
}
