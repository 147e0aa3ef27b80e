package contract

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd"
)

// Filter selects jobs. The zero value selects all. The fields with a tag are parameters of calls.
type Filter struct {
	Type   string `param:"type"`   // Only jobs of this type.
	Key    string `param:"key"`    // Only jobs with this key.
	Worker string `param:"worker"` // Only jobs that a worker with this name runs, or whose last attempt it ran, if the row contains it.
	Error  string `param:"error"`  // Only jobs whose last error contains this text, in upper or lower case.
	// Only jobs with one of these statuses, separated by commas.
	Statuses []dispatcherd.Status `param:"status" enum:"waiting,pending,running,done,failed,cancelled"`
	Newer    Moment               `param:"newer_than"`  // Only jobs that were created at this time or later.
	Older    Moment               `param:"older_than"`  // Only jobs that were created before this time.
	Ended    Moment               `param:"ended_since"` // Only jobs that ended at this time or later.
	// Only jobs that have waited longer than so many milliseconds for their present or last attempt.
	WaitedMS int64 `param:"waited_ms" minimum:"0"`

	At     []dispatcherd.JobID   // with Worker: the jobs that it runs now, which only dispatchers know
	Before dispatcherd.JobID     // only smaller ids; 0 = from the newest
	Most   int                   // at most this many; 0 = the default of the method
	Permit func(typ string) bool // reports whether jobs of a type may be selected; nil = all
}

// Selective reports whether the filter has more than statuses and a page.
func (f *Filter) Selective() bool {
	g := *f
	g.Statuses, g.Before, g.Most, g.Permit = nil, 0, 0, nil
	return !reflect.ValueOf(g).IsZero()
}

// Moment is a time, or an age: the time so long before the statement that uses it, by the clock of Postgres. Clocks of other hosts differ.
type Moment struct {
	At  time.Time
	Age time.Duration // 0 = At
}

// UnmarshalText reads a time in RFC 3339, or an age such as 90m.
func (m *Moment) UnmarshalText(text []byte) (err error) {
	if age, err := time.ParseDuration(string(text)); err == nil && age >= 0 {
		m.Age = max(age, 1) // Postgres rounds it to microseconds
		return nil
	}
	if m.At, err = time.Parse(time.RFC3339Nano, string(text)); m.At.IsZero() {
		err = strconv.ErrRange // the zero time would stand for an absent parameter
	}
	return err
}

// MarshalText returns what UnmarshalText reads.
func (m Moment) MarshalText() ([]byte, error) {
	if m.Age > 0 {
		return []byte(m.Age.String()), nil
	}
	return m.At.MarshalText()
}

// Fixed returns the time that an age means at an instant. If the instant is not known, the age remains.
func (m Moment) Fixed(now time.Time) Moment {
	if m.Age > 0 && !now.IsZero() {
		return Moment{At: now.Add(-m.Age)}
	}
	return m
}

// JobPage is a page of the jobs that a filter selects, the newest id first.
type JobPage struct {
	Page[Job]

	// Rows that were read. It may be larger than the number of jobs, because no index serves all filters. A page with a next page and
	// fewer jobs than its limit says that the bound of rows or time was reached.
	Read int `json:"rows_read"`
}

// Bulk says how many jobs a filter selects, and how many of them were changed.
type Bulk struct {
	Matching int      `json:"matching"`              // jobs that the filter selects
	Changed  int      `json:"changed"`               // 0 in a dry run
	Refused  []string `json:"refused,omitempty"`     // why jobs are not retried, for the first ten of them
	Next     Cursor   `json:"next_cursor,omitempty"` // there are more jobs: the cursor for the next call
	// The clock of Postgres when the search began. Ages in the filter count from then.
	ReadAt time.Time `json:"read_at,omitzero"`
	// With a worker in the filter: which dispatchers may run further jobs there, because they did not say all that they run.
	Notes []string `json:"notes,omitempty"`
}

// Operation is a change of all jobs that a filter selects.
type Operation string

// The operations.
const (
	CancelJobs Operation = "cancel"
	RetryJobs  Operation = "retry"
)

// statuses are those of the jobs that an operation changes.
var statuses = map[Operation][]dispatcherd.Status{
	CancelJobs: {dispatcherd.Waiting, dispatcherd.Pending, dispatcherd.Running},
	RetryJobs:  {dispatcherd.Failed, dispatcherd.Cancelled},
}

// Statuses returns those of the jobs that the operation changes.
func (o Operation) Statuses() []dispatcherd.Status { return statuses[o] }

// Narrow completes the filter of an operation: without statuses it selects the jobs that the
// operation can change. The error says why the operation does not apply to the filter.
func (o Operation) Narrow(f *Filter) error {
	allowed := statuses[o]
	switch {
	case len(f.Statuses) == 0 && !f.Selective():
		return fmt.Errorf("no filter is given: name one, such as a type, a status or a time, so that %s does not apply to all jobs", o)
	case len(f.Statuses) == 0:
		f.Statuses = allowed
	}
	for _, s := range f.Statuses {
		if !slices.Contains(allowed, s) {
			last := len(allowed) - 1
			others := strings.Trim(fmt.Sprint(allowed[:last]), "[]")
			return fmt.Errorf("%s does not apply to %s jobs, only to %s and %s ones", o, s, strings.ReplaceAll(others, " ", ", "), allowed[last])
		}
	}
	return nil
}

// CountError says that a filter selects another number of jobs than the caller expects.
type CountError struct{ Have, Want int }

// Error contains both numbers.
func (e *CountError) Error() string {
	return fmt.Sprintf("the filter selects %d jobs, but %d are expected: nothing was changed; look at the jobs again", e.Have, e.Want)
}
