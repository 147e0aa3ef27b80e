package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// errBadLines rolls back a strict upload. Its bad lines have been reported.
var errBadLines = errors.New("bad lines")

// InsertLines implements httpapi.Backend.
func (b *Backend) InsertLines(
	ctx context.Context,
	body io.Reader,
	permit func(string) error,
	strict, ids bool,
	bad func(int, error),
) (done httpapi.Uploaded, err error) {
	leave, err := b.beginUpload(ctx)
	if err != nil {
		return done, err
	}
	defer leave()
	permitParent := func(id dispatcherd.JobID) error { return b.permitParent(ctx, id, permit) }
	lines := newLineReader(body, b.MaxPayload)
	lines.user, lines.trace = quota.UserOf(ctx), rest.TraceparentOf(ctx)
	upload := &upload{permit: permit, permitParent: permitParent, lines: lines, strict: strict, report: bad}
	err = pgx.BeginFunc(ctx, b.Pool, func(tx pgx.Tx) error {
		jobs, first := claim.Jobs{DB: tx}, dispatcherd.JobID(0)
		if ids {
			first, err = jobs.NextID(ctx)
		}
		if err == nil {
			done.Inserted, err = jobs.InsertMany(ctx, upload.jobs)
		}
		if err == nil && ids {
			done.IDs, err = jobs.InsertedAfter(ctx, first)
		}
		return err
	})
	switch {
	case upload.denied != nil:
		return httpapi.Uploaded{}, upload.denied
	case upload.bad:
		return httpapi.Uploaded{}, nil
	case upload.broken != nil:
		return httpapi.Uploaded{}, upload.broken
	case err != nil:
		return httpapi.Uploaded{}, upload.refused(err)
	}
	b.Loop.Notify()
	done.Warnings = b.warnings(ctx, slices.Collect(maps.Keys(upload.needs))...) // order-free: they are sorted
	return done, nil
}

// beginUpload waits until an upload may begin. Each upload holds a connection while its
// caller sends. Two connections remain for other statements.
func (b *Backend) beginUpload(ctx context.Context) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, b.UploadWait)
	defer cancel()
	mine, err := b.Uploaders.Enter(ctx, quota.UserOf(ctx))
	if err == nil {
		select {
		case b.uploads <- struct{}{}:
			return func() {
				<-b.uploads
				mine()
			}, nil
		case <-ctx.Done():
			mine()
			err = ctx.Err()
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, httpapi.ErrTooManyUploads
	}
	return nil, classify(err)
}

// upload converts JSON lines to rows. It reads to the last line even if nothing will be
// inserted, so that all bad lines are reported.
type upload struct {
	lines  *lineReader
	permit func(typ string) error
	strict bool
	report func(int, error)

	permitParent func(dispatcherd.JobID) error
	parent       dispatcherd.JobID // the latest one that was permitted

	bad    bool  // strict, and a line was bad
	denied error // of permit
	broken error // the stream could not be read

	needs map[contract.Needs]bool // of the jobs, the first ones

	count int   // jobs so far
	gaps  []int // the first lines that contain no job, by number
}

// mostNeeds bounds the different types and keys of a stream about which there may be warnings.
const mostNeeds = 1000

// maxGaps bounds the memory for gaps.
const maxGaps = 100_000

// counted remembers the lines before the latest job that contain no job.
func (u *upload) counted() {
	u.count++
	for line := u.count + len(u.gaps); line < u.lines.number && len(u.gaps) < maxGaps; line++ {
		u.gaps = append(u.gaps, line)
	}
}

// line is the number of the line of a job, 0 if it is not known. job is the number of the job as Postgres counts them.
func (u *upload) line(job int) int {
	for _, gap := range u.gaps {
		if gap > job {
			return job
		}
		job++
	}
	if len(u.gaps) == maxGaps {
		return 0
	}
	return job
}

// copyLine is how Postgres names a row of COPY that it refuses.
var copyLine = regexp.MustCompile(`^COPY \w+, line (\d+)`)

// refused adds the line to the refusal of a row.
func (u *upload) refused(err error) error {
	classified := classify(err)
	p := ondemand.Explain(classified)
	pg := dsn.ErrorOf(err)
	if pg.Code == "" || p.Name() != rest.InvalidJob.Name && p.Name() != rest.Conflict.Name {
		return classified
	}
	if m := copyLine.FindStringSubmatch(pg.Where); m != nil {
		job, _ := strconv.Atoi(m[1]) // the digits always parse
		if p.Line = u.line(job); p.Line > 0 {
			p.Detail = fmt.Sprintf("line %d: %s", p.Line, p.Detail)
		}
	}
	p.Detail += "; nothing was inserted"
	return p
}

func (u *upload) jobs(yield func(claim.New, error) bool) {
	u.needs = map[contract.Needs]bool{}
	job := &u.lines.job
	for {
		bad, err := u.lines.next()
		if bad == nil && err == nil {
			u.denied = u.permit(job.Type)
			if p := job.Parent; u.denied == nil && p != nil && *p != u.parent {
				u.parent, u.denied = *p, u.permitParent(*p)
			}
		}
		switch {
		case u.denied != nil:
			err = u.denied
		case bad != nil:
			u.bad = u.bad || u.strict
			u.report(u.lines.number, reasonOf(bad))
			continue
		case err == nil && u.bad:
			continue
		case err == nil:
			u.counted()
			if len(u.needs) < mostNeeds {
				u.needs[contract.Needs{Type: job.Type, Keys: given(job.Keys)}] = true
			}
			if !yield(rowOf(job), nil) {
				return
			}
			continue
		case !errors.Is(err, io.EOF):
			u.broken = err
		case u.bad:
			err = errBadLines
		default:
			return
		}
		yield(claim.New{}, err)
		return
	}
}

// reasonOf returns why a line is bad. For input without line ends it mentions curl -d,
// which removes them.
func reasonOf(bad error) error {
	if errors.Is(bad, rest.ErrMore) {
		return fmt.Errorf("%w: one line is one job (curl -d removes line ends, --data-binary keeps them)", bad)
	}
	return bad
}
