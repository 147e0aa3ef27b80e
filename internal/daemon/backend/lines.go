package backend

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
	"github.com/dispatcherd/dispatcherd/internal/quota"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// The table takes no run_at outside [earliestRun, latestRun).
var (
	earliestRun = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	latestRun   = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

// parseJob reads one line and applies the checks of the table, so that an error
// is reported with the line number. The error does not quote the line.
func parseJob(line []byte) (job contract.NewJob, err error) {
	if err = rest.Read(line, &job); err == nil {
		err = checkJob(&job)
	}
	return job, err
}

// checkJob checks a job against the constraints of the table.
func checkJob(j *contract.NewJob) error {
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
	case j.RunIn != nil && *j.RunIn < 0:
		return fmt.Errorf("run_in %v is negative: give 0s or more", time.Duration(*j.RunIn))
	case j.RunIn != nil && j.RunAt != nil:
		return fmt.Errorf("run_in %v and run_at are both given: leave one out", time.Duration(*j.RunIn))
	case j.RunAt != nil && (j.RunAt.Before(earliestRun) || !j.RunAt.Before(latestRun)):
		return fmt.Errorf("run_at lies outside the years %d to %d", earliestRun.Year(), latestRun.Year()-1)
	}
	if j.Backoff != nil {
		if _, err := timing.ParsePolicy(*j.Backoff); err != nil {
			return err
		}
	}
	if j.Traceparent != nil {
		if err := dispatcherd.CheckTraceparent(*j.Traceparent); err != nil {
			return err
		}
	}
	if j.Keys != nil {
		if _, err := permits.Parse(*j.Keys); err != nil {
			return err
		}
	}
	if err := checkMembership(j); err != nil {
		return err
	}
	return checkPayload(j.Payload)
}

// checkMembership checks parent and unique key. An empty unique key is invalid, as in the table.
func checkMembership(j *contract.NewJob) error {
	switch {
	case j.Parent != nil && *j.Parent < 1:
		return fmt.Errorf("parent %d is not the id of a batch", *j.Parent)
	case j.UniqueKey != nil && *j.UniqueKey == "":
		return errors.New("unique_key must have 1 to 512 bytes")
	case j.UniqueFor != nil && *j.UniqueFor <= 0:
		return fmt.Errorf("unique_for %v must be more than 0: give a time, for example 1h, or leave it out", time.Duration(*j.UniqueFor))
	case j.UniqueFor != nil && j.UniqueKey == nil:
		return fmt.Errorf("unique_for %v needs a unique_key: give both or neither", time.Duration(*j.UniqueFor))
	case j.UniqueFor != nil && j.Parent != nil:
		return fmt.Errorf("unique_for %v is not possible for a member of a batch (parent %d): leave one out",
			time.Duration(*j.UniqueFor), *j.Parent)
	case j.UniqueKey != nil:
		return contract.CheckUniqueKey(*j.UniqueKey)
	}
	return nil
}

// rowOf returns the job as it is inserted.
func rowOf(j *contract.NewJob) claim.New {
	return claim.New{
		Type: j.Type, Payload: j.Payload, Priority: j.Priority, RunAt: given(j.RunAt), MaxAttempts: int(given(j.MaxAttempts)),
		Timeout: time.Duration(given(j.TimeoutMS)) * time.Millisecond, Expected: time.Duration(given(j.ExpectedMS)) * time.Millisecond,
		Keys: given(j.Keys), Parent: given(j.Parent), UniqueKey: given(j.UniqueKey), Traceparent: given(j.Traceparent), Backoff: given(j.Backoff),
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

// lineReader reads a stream of jobs, one JSON object per line.
type lineReader struct {
	scanner *bufio.Scanner
	number  int // of the current line, from 1
	longest int // bytes that a line may have
	user    string
	trace   *string // of jobs without a trace context; nil = none
	job     contract.NewJob
}

// newLineReader reads lines of at most longest bytes from r.
func newLineReader(r io.Reader, longest int) *lineReader {
	l := &lineReader{scanner: bufio.NewScanner(r), longest: longest}
	l.scanner.Buffer(make([]byte, 0, min(longest+1, 64<<10)), longest+1) // with the line's end
	return l
}

// next reads the next job and skips empty lines. If the line is no job, bad says why, and next may be called again. Any err is final;
// at the end it is io.EOF.
func (l *lineReader) next() (bad, err error) {
	for l.scanner.Scan() && l.scanner.Err() == nil { // a line that a failed read has cut is no line
		l.number++
		line := l.scanner.Bytes()
		if l.number == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		quota.Parse(l.user, len(line), func() { l.job, bad = parseJob(line) })
		l.job.Traceparent = cmp.Or(l.job.Traceparent, l.trace)
		switch {
		case bad != nil:
		case l.job.UniqueFor != nil:
			bad = fmt.Errorf("unique_for %v is not possible in a stream of jobs: insert the job alone", time.Duration(*l.job.UniqueFor))
		case l.job.RunIn != nil:
			bad = fmt.Errorf("run_in %v is not possible in a stream of jobs: write run_at, or insert the job alone", time.Duration(*l.job.RunIn))
		}
		return bad, nil
	}
	switch err := l.scanner.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		// The beginning of the next line is unknown.
		p := rest.TooLarge.Of(fmt.Sprintf("line %d has more than %d bytes; nothing was inserted", l.number+1, l.longest))
		p.Line = l.number + 1
		return nil, p
	case err != nil:
		return nil, rest.InvalidJob.Of(fmt.Sprintf("reading line %d: %v", l.number+1, err))
	}
	return nil, io.EOF
}
