package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dispatcherd/dispatcherd/claim"
)

// maxComplaints bounds how many skipped lines are named one by one.
const maxComplaints = 20

// jobStream turns JSON lines into jobs to insert.
type jobStream struct {
	lines    *jobLines
	skipBad  bool
	complain func(format string, args ...any)
	progress *progress

	count, skipped int64
	bad            error // what ended the stream early
}

// jobs yields the jobs in the order of the lines, and at most one error, the
// last thing it yields.
func (s *jobStream) jobs(yield func(claim.New, error) bool) {
	for {
		err := s.lines.next()
		var bad *lineError
		switch {
		case err == nil:
			s.count++
			s.progress.update(s.count, s.lines.read)
			if !yield(s.lines.job.row(), nil) {
				return
			}
		case errors.Is(err, io.EOF):
			return
		case errors.As(err, &bad) && s.skipBad:
			if s.skipped++; s.skipped <= maxComplaints {
				s.progress.clear()
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

// explain turns the end of a failed insertion into an error for the user.
func (s *jobStream) explain(err error) error {
	if bad, ok := errors.AsType[*lineError](s.bad); ok {
		return failure(exitNegative, "%w; nothing was inserted (--skip-bad leaves bad lines out)", bad)
	}
	if long, ok := errors.AsType[*longLineError](s.bad); ok {
		return failure(exitUsage, "%w", long)
	}
	if s.bad != nil {
		return s.bad
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		if m := copyLine.FindStringSubmatch(pg.Where); m != nil {
			return failure(exitNegative, "job %s of the input, blank and skipped lines not counted: %s; nothing was inserted", m[1], pg.Message)
		}
	}
	return fmt.Errorf("inserting the jobs: %w", err)
}
