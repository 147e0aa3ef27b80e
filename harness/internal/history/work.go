package history

import (
	"fmt"
	"strings"
)

// Work is the payload of a job: what its worker shall do.
type Work struct {
	N    int64  `json:"n"`              // unique; given by the producer
	Ms   int    `json:"ms,omitempty"`   // how long it takes
	Fail int    `json:"fail,omitempty"` // attempts up to this one fail
	Do   string `json:"do,omitempty"`   // see below
	Type string `json:"-"`

	Dropped bool `json:"-"` // its caller has given it up: it may be cancelled
}

// What a job can do besides succeeding.
const (
	Succeed = ""
	Refuse  = "refuse" // fails for good
	Die     = "die"    // kills its worker
)

// Wanted is the status in which it shall end.
func (w *Work) Wanted() string {
	if w.Do == Succeed {
		return "done"
	}
	return "failed"
}

// plannedPrefix begins the error text of an attempt that fails on purpose.
const plannedPrefix = "planned failure of attempt "

// PlannedError is what an attempt says that fails on purpose.
func PlannedError(attempt int32) string { return fmt.Sprint(plannedPrefix, attempt) }

// PlannedAttempt returns the attempt that said so.
func PlannedAttempt(text string) (attempt int32, ok bool) {
	rest, ok := strings.CutPrefix(text, plannedPrefix)
	if !ok {
		return 0, false
	}
	_, err := fmt.Sscan(rest, &attempt)
	return attempt, err == nil
}
