// Package joblines reads jobs that will be inserted, one JSON object per line. For a bad
// line it reports the number and the reason, without quoting the line.
package joblines

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow/joins"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// The table takes no run_at outside [earliestRun, latestRun).
var (
	earliestRun = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	latestRun   = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Job is a job that will be inserted, as one line of JSON describes it. An absent member gets the default of the table.
type Job struct {
	contract.JobColumns

	Parent *dispatcherd.JobID `json:"parent,omitempty" minimum:"1"` // the open batch whose member the job is
	// No other pending or running job has it. A member of a batch whose key is taken is refused.
	UniqueKey *string `json:"unique_key,omitempty" minLength:"1" maxLength:"512"`
	// Of a single job: how long the unique key stays taken, also after the end of the job.
	UniqueFor *contract.Duration `json:"unique_for,omitempty"`
}

// Parse reads one line and applies the checks of the table, so that an error
// is reported with the line number.
func Parse(line []byte) (job Job, err error) {
	if err = rest.Read(line, &job); err == nil {
		err = job.Check()
	}
	return job, err
}

// Check checks a job against the constraints of the table.
func (j *Job) Check() error {
	if err := dispatcherd.CheckType(j.Type); err != nil {
		return err
	}
	switch {
	case !j.Priority.Valid():
		return fmt.Errorf("priority %d is outside %d..%d", j.Priority, dispatcherd.MinPriority, dispatcherd.MaxPriority)
	case j.MaxAttempts != nil && *j.MaxAttempts < 1:
		return fmt.Errorf("max_attempts %d is less than 1", *j.MaxAttempts)
	case j.TimeoutMS != nil && *j.TimeoutMS < 1:
		return fmt.Errorf("timeout_ms %d is less than 1", *j.TimeoutMS)
	case j.ExpectedMS != nil && *j.ExpectedMS < 1:
		return fmt.Errorf("expected_ms %d is less than 1", *j.ExpectedMS)
	case j.RunAt != nil && (j.RunAt.Before(earliestRun) || !j.RunAt.Before(latestRun)):
		return fmt.Errorf("run_at lies outside the years %d to %d", earliestRun.Year(), latestRun.Year()-1)
	}
	if j.Keys != nil {
		if _, err := permits.Parse(*j.Keys); err != nil {
			return err
		}
	}
	if err := j.checkMembership(); err != nil {
		return err
	}
	return checkPayload(j.Payload)
}

// checkMembership checks parent and unique key. An empty unique key is invalid, as in the table.
func (j *Job) checkMembership() error {
	switch {
	case j.Parent != nil && *j.Parent < 1:
		return fmt.Errorf("parent %d is not the id of a batch", *j.Parent)
	case j.UniqueKey != nil && *j.UniqueKey == "":
		return errors.New("unique_key must have 1 to 512 bytes")
	case j.UniqueFor != nil && (*j.UniqueFor <= 0 || j.UniqueKey == nil || j.Parent != nil):
		return fmt.Errorf("unique_for %v must be more than 0, and needs a unique_key and no parent", time.Duration(*j.UniqueFor))
	case j.UniqueKey != nil:
		return contract.CheckUniqueKey(*j.UniqueKey)
	}
	return nil
}

// Unique reports whether [Job.InsertUnique] inserts the job. A member of a batch is refused instead if another job has its key.
func (j *Job) Unique() bool { return j.UniqueKey != nil && j.Parent == nil }

// InsertUnique inserts the job unless another one has its unique key. id is that of the job that has it.
func (j *Job) InsertUnique(ctx context.Context, db joins.DB) (id dispatcherd.JobID, inserted bool, err error) {
	plain := *j
	plain.UniqueKey, plain.UniqueFor = nil, nil
	object, err := json.Marshal(plain)
	if err != nil {
		return 0, false, err
	}
	return joins.Joins{DB: db}.InsertUnique(ctx, object, *j.UniqueKey, time.Duration(given(j.UniqueFor)))
}

// Row is the job as it is inserted.
func (j *Job) Row() claim.New {
	return claim.New{
		Type: j.Type, Payload: j.Payload, Priority: j.Priority, RunAt: given(j.RunAt), MaxAttempts: int(given(j.MaxAttempts)),
		Timeout: time.Duration(given(j.TimeoutMS)) * time.Millisecond, Expected: time.Duration(given(j.ExpectedMS)) * time.Millisecond,
		Keys: given(j.Keys), Parent: given(j.Parent), UniqueKey: given(j.UniqueKey),
	}
}

// given returns the value of a member, or zero if it is absent.
func given[T any](member *T) (value T) {
	if member != nil {
		value = *member
	}
	return value
}

// checkPayload checks that Postgres can store the payload and that a worker can
// be sent it afterwards.
func checkPayload(payload []byte) error {
	if len(payload) == 0 {
		return nil
	}
	if err := jsontext.CheckPayload(payload); err != nil {
		return fmt.Errorf("payload cannot be sent to a worker: %w", err)
	}
	return nil
}

// Reader reads a stream of JSON lines.
type Reader struct {
	scanner *bufio.Scanner
	Read    int64 // bytes of input consumed
	Number  int   // number of the current line, from 1
	longest int   // bytes that a line may have
	Job     Job
}

// TooLongError ends a stream, because the beginning of the next line is unknown.
type TooLongError struct{ Line, Longest int }

// Error names the line and says what to do.
func (e *TooLongError) Error() string {
	return fmt.Sprintf(
		"line %d is longer than %d bytes: split the input, or store large data outside the job and refer to it",
		e.Line,
		e.Longest,
	)
}

// NewReader reads lines of at most longest bytes from r.
func NewReader(r io.Reader, longest int) *Reader {
	l := &Reader{scanner: bufio.NewScanner(r), longest: longest}
	l.scanner.Buffer(make([]byte, 0, min(longest+1, 64<<10)), longest+1) // with the line's end
	return l
}

// Error says which line of the input is bad, and why.
type Error struct {
	Line   int
	Reason error
}

// Error names the line and the reason.
func (e *Error) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Reason) }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Reason }

// Next reads the next job and skips empty lines. It returns io.EOF at the end,
// and an *Error for a line that is no job. After an *Error it may be called
// again. Any other error is final.
func (l *Reader) Next() error {
	for l.scanner.Scan() && l.scanner.Err() == nil { // a line that a failed read has cut is no line
		l.Number++
		line := l.scanner.Bytes()
		l.Read += int64(len(line)) + 1
		if l.Number == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var err error
		if l.Job, err = Parse(line); err != nil {
			return &Error{Line: l.Number, Reason: err}
		}
		if l.Job.UniqueFor != nil {
			return &Error{Line: l.Number, Reason: errors.New("unique_for is for a single job only")}
		}
		return nil
	}
	switch err := l.scanner.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return &TooLongError{Line: l.Number + 1, Longest: l.longest}
	case err != nil:
		return fmt.Errorf("reading line %d: %w", l.Number+1, err)
	}
	return io.EOF
}
