package contract

// Topics is a set of reasons for which background services do their next step early; see package background.
type Topics uint32

// Topics of what happens in this process.
const (
	DispatcherLost Topics = 1 << iota // a lost dispatcher waits for a sweep
	RowWatched                        // the first caller watches a row
	ProgressMade                      // a job has reported progress
	PermitsUsed                       // jobs with keys were claimed here, or have ended here, and this dispatcher leads
	PermitsEnded                      // jobs with keys have ended here, and another dispatcher leads
	RunEnded                          // a job has ended here
	EndsRecorded                      // a job for whose end others wait has ended here
	DistantRun                        // a durable request was claimed or has ended here, or has a report, whose caller may wait elsewhere
)

// Topics of what happens in Postgres.
const (
	JobsArrived     Topics = 1 << (16 + iota) // jobs became pending
	RowsAdmitted                              // another dispatcher has admitted jobs with keys
	KeysChanged                               // jobs with keys were inserted or have ended, or limits were edited
	KeysWait                                  // a heartbeat has found jobs that wait for permits, or edited limits
	EndsWait                                  // batches and flows have messages
	OperationsAsked                           // operators want jobs to be cancelled or retried
	OperationsWait                            // a heartbeat has found such operations
	EditsMade                                 // schedules were edited
	ReportsMade                               // dispatchers have reports of durable requests for callers elsewhere
	EditsWait                                 // a heartbeat has found edits of schedules that the controller has not read
	ControlsChanged                           // operators have changed controls
	WatchAsked                                // a caller of some dispatcher looks at the cluster, so all write their summaries
)
