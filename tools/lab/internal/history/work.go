package history

import (
	"fmt"
	"strings"
)

// Work is the payload of a job. It says what the worker does.
type Work struct {
	N    int64  `json:"n"`              // unique number, given by the producer
	Ms   int    `json:"ms,omitempty"`   // duration of the execution
	Fail int    `json:"fail,omitempty"` // attempts up to this one fail
	Do   string `json:"do,omitempty"`   // see below
	// Fill makes the payload long. The worker ignores it.
	Fill string `json:"fill,omitempty"`
	Type string `json:"-"`
	Keys string `json:"-"`
	// File contains the number to which it adds 1, Times times; see Count.
	File  string `json:"file,omitempty"`
	Times int    `json:"times,omitempty"`
	// Children is how many jobs with the payload Child it inserts; see Spawn.
	Children int   `json:"children,omitempty"`
	Child    *Work `json:"child,omitempty"`

	Dropped bool `json:"-"` // its caller has disconnected, so the job may be cancelled
}

// Values of Do other than success.
const (
	Succeed = ""
	Refuse  = "refuse" // fails permanently
	Die     = "die"    // kills its worker
	Count   = "count"  // adds to the number in File
	Spawn   = "spawn"  // inserts children at first, and then succeeds
)

// Wanted returns the status in which the job must end.
func (w *Work) Wanted() string {
	if w.Do == Succeed || w.Do == Count || w.Do == Spawn {
		return "done"
	}
	return "failed"
}

// plannedPrefix begins the error text of a planned failure.
const plannedPrefix = "planned failure of attempt "

// PlannedError is the error text of an attempt that fails as planned.
func PlannedError(attempt int32) string { return fmt.Sprint(plannedPrefix, attempt) }

// PlannedAttempt returns the attempt in the text of a planned error.
func PlannedAttempt(text string) (attempt int32, ok bool) {
	rest, ok := strings.CutPrefix(text, plannedPrefix)
	if !ok {
		return 0, false
	}
	_, err := fmt.Sscan(rest, &attempt)
	return attempt, err == nil
}
