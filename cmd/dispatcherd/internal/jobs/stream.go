package jobs

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/cmd/dispatcherd/internal/console"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/joblines"
)

// maxComplaints bounds how many bad lines are reported individually.
const maxComplaints = 100

// jobStream parses JSON lines into jobs to insert.
type jobStream struct {
	lines    *joblines.Reader
	skipBad  bool
	complain func(format string, args ...any)
	progress *console.Progress

	count, badLines int64
	bad             error // the error that ended the stream early
	gaps            []int // the first lines that are blank or skipped, by number
}

// maxGaps bounds the memory for gaps.
const maxGaps = 100_000

// place returns the position of a job in the input. job is the number of the job as Postgres
// counts them.
func (s *jobStream) place(job int64) string {
	line := int(job)
	for _, gap := range s.gaps {
		if gap > line {
			return fmt.Sprintf("line %d", line)
		}
		line++
	}
	if len(s.gaps) == maxGaps {
		return fmt.Sprintf("job %d of the input, blank and skipped lines not counted", job)
	}
	return fmt.Sprintf("line %d", line)
}

// errBadLines ends a stream with bad lines, which were reported.
var errBadLines = errors.New("the stream has bad lines")

// jobs yields the jobs in the order of the lines, and at most one error, as the last value.
// After a bad line, unless such lines are skipped, it only looks for further bad lines.
func (s *jobStream) jobs(yield func(claim.New, error) bool) {
	for {
		err := s.lines.Next()
		var bad *joblines.Error
		switch {
		case err == nil:
			s.count++
			for line := int(s.count) + len(s.gaps); line < s.lines.Number && len(s.gaps) < maxGaps; line++ {
				s.gaps = append(s.gaps, line)
			}
			s.progress.Update(s.count, s.lines.Read)
			if (s.skipBad || s.badLines == 0) && !yield(s.lines.Job.Row(), nil) {
				return
			}
		case errors.As(err, &bad) && (s.skipBad || s.badLines < maxComplaints):
			s.report(bad)
		case errors.Is(err, io.EOF) && (s.skipBad || s.badLines == 0):
			return
		case errors.Is(err, io.EOF), errors.As(err, &bad):
			s.bad = errBadLines
			yield(claim.New{}, s.bad)
			return
		default:
			s.bad = err
			yield(claim.New{}, err)
			return
		}
	}
}

// report counts a bad line and reports the first ones.
func (s *jobStream) report(bad *joblines.Error) {
	if s.badLines++; s.badLines > maxComplaints {
		return
	}
	s.progress.Clear()
	if s.skipBad {
		s.complain("skipping %v", bad)
		return
	}
	s.complain("%v", bad)
}

// copyLine is how Postgres names a row of COPY that it refuses.
var copyLine = regexp.MustCompile(`^COPY \w+, line (\d+)`)

// explain converts the error of a failed insertion into an error for the user.
func (s *jobStream) explain(err error) error {
	if errors.Is(s.bad, errBadLines) {
		atLeast := ""
		if s.badLines == maxComplaints {
			atLeast = "at least "
		}
		return exit.Errorf(
			exit.Usage,
			"%s%s; nothing was inserted (--skip-bad skips bad lines)",
			atLeast,
			console.Counted(s.badLines, "bad line"),
		)
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
			return exit.Errorf(exit.Usage, "%s: %s; nothing was inserted", s.place(job), claim.Refusal(pg))
		}
	}
	return fmt.Errorf("inserting the jobs: %w", err)
}
