package contract

// Topics is a set of reasons for which background services do their next step early; see package background.
type Topics uint32

// Topics of what happens in this process.
const (
	DispatcherLost Topics = 1 << iota // a lost dispatcher waits for a sweep
	RowWatched                        // the first caller watches a row
	ProgressMade                      // a job has reported progress
)
