package jobs

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/joblines"
)

// maxComplaints bounds how many skipped lines are reported individually.
const maxComplaints = 20

// jobStream parses JSON lines into jobs to insert.
type jobStream struct {
	lines    *joblines.Reader
	skipBad  bool
	complain func(format string, args ...any)
	progress *console.Progress

	count, skipped int64
	bad            error // what ended the stream early
	leaps          []leap
}

// leap records that from a job on, line numbers and job numbers differ by more than before,
// because lines in between were blank or skipped.
type leap struct {
	job  int64 // counted from 1
	line int   // its line
}

// maxLeaps bounds the memory for the positions of blank and skipped lines.
const maxLeaps = 100_000

// passed records the line of the latest job, if it is not the line after the previous job.
func (s *jobStream) passed() {
	var last leap
	if n := len(s.leaps); n > 0 {
		last = s.leaps[n-1]
	}
	if int64(s.lines.Number-last.line) != s.count-last.job && len(s.leaps) <= maxLeaps {
		s.leaps = append(s.leaps, leap{job: s.count, line: s.lines.Number})
	}
}

// place returns the position of a job in the input, for the job number that Postgres counts.
func (s *jobStream) place(job int64) string {
	if len(s.leaps) > maxLeaps && job > s.leaps[maxLeaps].job {
		return fmt.Sprintf("job %d of the input, blank and skipped lines not counted", job)
	}
	var last leap
	for _, l := range s.leaps {
		if l.job > job {
			break
		}
		last = l
	}
	return fmt.Sprintf("line %d", int64(last.line)+job-last.job)
}

// jobs yields the jobs in the order of the lines, and at most one error, as the last value.
func (s *jobStream) jobs(yield func(claim.New, error) bool) {
	for {
		err := s.lines.Next()
		var bad *joblines.Error
		switch {
		case err == nil:
			s.count++
			s.passed()
			s.progress.Update(s.count, s.lines.Read)
			if !yield(s.lines.Job.Row(), nil) {
				return
			}
		case errors.Is(err, io.EOF):
			return
		case errors.As(err, &bad) && s.skipBad:
			if s.skipped++; s.skipped <= maxComplaints {
				s.progress.Clear()
				s.complain("skipping %v", bad)
			}
		default:
			s.bad = err
			yield(claim.New{}, err)
			return
		}
	}
}

// copyLine is how Postgres names a row of COPY that it refuses.
var copyLine = regexp.MustCompile(`^COPY \w+, line (\d+)`)

// explain converts the error of a failed insertion into an error for the user.
func (s *jobStream) explain(err error) error {
	if bad, ok := errors.AsType[*joblines.Error](s.bad); ok {
		return exit.Errorf(exit.Usage, "%w; nothing was inserted (--skip-bad skips bad lines)", bad)
	}
	if long, ok := errors.AsType[*joblines.TooLongError](s.bad); ok {
		return exit.Errorf(exit.Usage, "%w", long)
	}
	if s.bad != nil {
		return s.bad
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		if m := copyLine.FindStringSubmatch(pg.Where); m != nil {
			job, _ := strconv.ParseInt(m[1], 10, 64) // the digits always parse
			return exit.Errorf(exit.Usage, "%s: %s; nothing was inserted", s.place(job), refusal(pg))
		}
	}
	return fmt.Errorf("inserting the jobs: %w", err)
}

// refusal returns why Postgres refuses a job.
func refusal(pg *pgconn.PgError) string {
	if strings.HasPrefix(pg.ConstraintName, "payload_is_at_most") {
		return "the payload has more than a megabyte as Postgres stores it: store large data outside the job and refer to it"
	}
	return "Postgres does not take the job: " + pg.Message
}
