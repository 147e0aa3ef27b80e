package contract

import "github.com/dispatcherd/dispatcherd"

// Report is progress, partial output or a message of the log of a running attempt.
type Report struct {
	Job     dispatcherd.JobID
	Attempt dispatcherd.Attempt
	Partial bool   // JSON is a part of the output; otherwise JSON is progress
	JSON    []byte // passed on unchanged
	Log     string // level and text of a message of the log, with a final line break; "" = it is another report
}
