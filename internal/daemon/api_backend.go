package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/api"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/exit"
	"github.com/dispatcherd/dispatcherd/internal/joblines"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// backend is the daemon as the API sees it. It implements api.Backend.
type backend Daemon

func (b *backend) jobs() claim.Jobs { return claim.Jobs{DB: b.pool} }

// Submit implements api.Backend.
func (b *backend) Submit(ctx context.Context, r ondemand.Request, c ondemand.Caller) (dispatcherd.JobID, error) {
	if !r.Durable { // handed on as it is
		return b.callers.submit(r, c), nil
	}
	if b.stopping() { // keeps rows out that nobody could wait for
		return 0, ondemand.ErrStopping
	}
	if r.Payload != nil {
		if err := jsontext.CheckPayload(r.Payload); err != nil {
			return 0, &ondemand.InvalidError{Reason: fmt.Errorf("the payload cannot be sent to a worker: %w", err)}
		}
	}

	defer b.rows.expect()()
	row := claim.New{Type: r.Type, Payload: r.Payload, Priority: r.Priority, Timeout: r.Deadline}
	id, err := b.insertWhole(ctx, row, r.Once, r.Row)
	if err != nil {
		return 0, undecided(id, backendError(err))
	}
	b.rows.watch(id, c, true)
	b.loop.Notify()
	return id, nil
}

// undecided is an error after which the row with that id may be there; 0 = there is
// none.
func undecided(id dispatcherd.JobID, err error) error {
	if _, invalid := errors.AsType[*ondemand.InvalidError](err); id == 0 || invalid {
		return err
	}
	return &ondemand.UndecidedError{Job: id, Err: err}
}

// insertWhole adds a row, unless ctx is done before the statement is sent. From
// then on ctx does not interrupt it: the row could be there all the same, and
// nobody would know the id by which to give it up. With once the id is known before;
// earlier is that of a row which may be there already. An error comes with the id of
// the row that may be there.
func (b *backend) insertWhole(ctx context.Context, row claim.New, once bool, earlier dispatcherd.JobID) (id dispatcherd.JobID, err error) {
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), claim.DefaultTimeout)
	defer cancel()
	ctx, leave := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer leave()
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return earlier, err
	}
	defer conn.Release()
	jobs := claim.Jobs{DB: conn}
	if !once {
		return jobs.Insert(whole, row)
	}
	if id = earlier; id == 0 {
		if id, err = jobs.Draw(whole); err != nil {
			return 0, err
		}
	}
	return id, jobs.InsertAs(whole, id, row)
}

func (b *backend) stopping() bool {
	select {
	case <-b.ended:
		return true
	default:
		return false
	}
}

// Abandon implements api.Backend.
func (b *backend) Abandon(id dispatcherd.JobID, c ondemand.Caller) {
	if id.OnDemand() {
		b.callers.abandon(id)
		return
	}
	b.rows.leave(id, c)
	if b.stopping() {
		return // nobody can tell who hung up, the caller or we: the row goes on, as whoever waits is told
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		b.cancelRow(id)
	}()
	patience := time.NewTimer(cancelPatience)
	defer patience.Stop()
	select {
	case <-told:
	case <-patience.C:
	}
}

// cancelPatience is how long a caller whose deadline has passed waits for Postgres
// to hear of it. His 504 is due within 50 ms.
const cancelPatience = 25 * time.Millisecond

// cancelRow cancels the row of a request that nobody waits for any more.
func (b *backend) cancelRow(id dispatcherd.JobID) {
	ctx, cancel := context.WithTimeout(context.Background(), claim.DefaultTimeout)
	defer cancel()
	if _, err := b.Cancel(ctx, id); err != nil {
		// It ended just now, or Postgres is away: then what is known of it here is
		// stopped all the same, and the end is recorded later. Elsewhere it runs,
		// and nobody reads the result.
		b.loop.Order(actor.CancelRequested{Jobs: []dispatcherd.JobID{id}})
	}
}

// NoCapacity implements api.Backend.
func (b *backend) NoCapacity(id dispatcherd.JobID) (wait time.Duration, none bool) {
	b.loop.Ask(func(c *actor.Core) { none = c.WaitsForCapacity(id) })
	return b.cfg.Core.ReconnectGrace, none
}

// Offered implements api.Backend.
func (b *backend) Offered(kind string) bool {
	offered := true // for all that is known when the loop has ended
	b.loop.Ask(func(c *actor.Core) { offered = c.Offered(kind) })
	return offered
}

// Rank implements api.Backend.
func (b *backend) Rank(id dispatcherd.JobID) (rank ondemand.Rank, ok bool) {
	if !id.OnDemand() {
		return rank, false
	}
	b.loop.Ask(func(c *actor.Core) { rank.OfType, rank.Waiting, ok = c.RankOfRequest(id) })
	return rank, ok
}

// Insert implements api.Backend.
func (b *backend) Insert(ctx context.Context, object []byte) (dispatcherd.JobID, error) {
	job, err := joblines.Parse(object)
	if err != nil {
		return 0, &ondemand.InvalidError{Reason: err}
	}
	ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer cancel()
	id, err := b.jobs().Insert(ctx, job.Row())
	if err != nil {
		return 0, backendError(err)
	}
	b.loop.Notify()
	return id, nil
}

// errBadLines rolls a strict upload back; its lines have been told.
var errBadLines = errors.New("bad lines")

// InsertLines implements api.Backend.
func (b *backend) InsertLines(ctx context.Context, body io.Reader, strict bool, bad func(int, error)) (count int64, err error) {
	leave, err := b.uploadPlace(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	upload := &upload{lines: joblines.NewReader(body, b.cfg.API.MaxPayload), strict: strict, tell: bad}
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { // one now() for the whole stream
		count, err = claim.Jobs{DB: tx}.InsertMany(ctx, upload.jobs)
		return err
	})
	switch {
	case upload.bad:
		return 0, nil
	case upload.broken != nil:
		return 0, brokenUpload(upload.broken)
	case err != nil:
		return 0, backendError(err)
	}
	b.loop.Notify()
	return count, nil
}

// uploadPlace waits for a place among the uploads, each of which holds a
// connection for as long as its caller goes on sending. They never hold all.
func (b *backend) uploadPlace(ctx context.Context) (leave func(), err error) {
	patience := time.NewTimer(b.cfg.API.BodyTimeout)
	defer patience.Stop()
	select {
	case b.uploads <- struct{}{}:
		return func() { <-b.uploads }, nil
	case <-ctx.Done():
		return nil, backendError(ctx.Err())
	case <-patience.C:
		return nil, api.ErrCrowded
	}
}

func brokenUpload(err error) error {
	if long, ok := errors.AsType[*joblines.TooLongError](err); ok {
		return &api.LongLineError{Line: long.Line, Limit: long.Longest}
	}
	return &ondemand.InvalidError{Reason: err}
}

// upload turns JSON lines into rows, and goes on to the last line even when
// nothing will be inserted any more: all bad lines are to be told.
type upload struct {
	lines  *joblines.Reader
	strict bool
	tell   func(int, error)

	bad    bool  // strict, and a line was bad
	broken error // the stream itself broke
}

func (u *upload) jobs(yield func(claim.New, error) bool) {
	for {
		err := u.lines.Next()
		var line *joblines.Error
		switch {
		case err == nil && u.bad:
		case err == nil:
			if !yield(u.lines.Job.Row(), nil) {
				return
			}
		case errors.As(err, &line):
			u.bad = u.bad || u.strict
			u.tell(line.Line, reasonOf(line))
		case errors.Is(err, io.EOF):
			if u.bad {
				yield(claim.New{}, errBadLines)
			}
			return
		default:
			u.broken = err
			yield(claim.New{}, err)
			return
		}
	}
}

// reasonOf tells more of what curl does with lines when it is not told otherwise.
func reasonOf(line *joblines.Error) error {
	if errors.Is(line, joblines.ErrMore) {
		return fmt.Errorf("%w (curl -d takes line ends away, --data-binary keeps them)", line.Reason)
	}
	return line.Reason
}

// Job implements api.Backend.
func (b *backend) Job(ctx context.Context, id dispatcherd.JobID) (contract.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer cancel()
	job, err := b.jobs().Get(ctx, id)
	if err != nil {
		return contract.Job{}, backendError(err)
	}
	return job, nil
}

// Cancel implements api.Backend. What runs here is told without the detour.
func (b *backend) Cancel(ctx context.Context, id dispatcherd.JobID) (dispatcherd.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer cancel()
	status, err := b.jobs().Cancel(ctx, id)
	if err != nil {
		return "", backendError(err)
	}
	if status == dispatcherd.Running {
		b.loop.Order(actor.CancelRequested{Jobs: []dispatcherd.JobID{id}})
	}
	return status, nil
}

// Watch implements api.Backend.
func (b *backend) Watch(id dispatcherd.JobID, c ondemand.Caller) (stop func()) {
	return b.rows.watch(id, c, false)
}

// Slots implements api.Backend.
func (b *backend) Slots() []api.Slot {
	var slots []actor.SlotInfo
	b.loop.Ask(func(c *actor.Core) { slots = c.Slots() })
	return slotViews(slots)
}

func slotViews(slots []actor.SlotInfo) []api.Slot {
	views := make([]api.Slot, len(slots))
	for i, s := range slots {
		views[i] = api.Slot{
			Slot: int64(s.ID), Worker: s.Worker, Session: int64(s.Session), Number: s.Number, Types: s.Types,
			State: s.State, Draining: s.Draining, Job: int64(s.Job), JobType: s.JobType, Attempt: int32(s.Attempt),
		}
	}
	return views
}

// Types implements api.Backend.
func (b *backend) Types() []api.Type {
	var types []actor.TypeInfo
	b.loop.Ask(func(c *actor.Core) { types = c.Types() })
	views := make([]api.Type, len(types))
	for i, t := range types {
		views[i] = api.Type{
			Type: t.Name, Capacity: t.Capacity, Free: t.Free, Cached: t.Cached, Requests: t.Requests, Oldest: t.Oldest.Seconds(),
		}
	}
	return views
}

// probePatience is how long the loop may take to answer a probe.
const probePatience = time.Second

// Checks implements api.Backend.
func (b *backend) Checks() (alive bool, checks []api.Check) {
	asked := make(chan actor.Gauges, 1)
	go func() {
		var g actor.Gauges
		if b.loop.Ask(func(c *actor.Core) { g = c.Gauges() }) {
			asked <- g
		}
	}()
	patience := time.NewTimer(probePatience)
	defer patience.Stop()
	select {
	case g := <-asked:
		notify := api.Check{Name: "notify", OK: true, Info: "notifications arrive"}
		if !b.listener.up.Load() {
			notify.Info = "new jobs are found by polling alone"
		}
		return true, []api.Check{
			{Name: "postgres", OK: !g.Outage, Info: choose(g.Outage, "does not answer", "answers")},
			notify,
			{Name: "serving", OK: !b.stopping(), Info: choose(b.stopping(), "about to stop", "takes work")},
		}
	case <-patience.C:
		return false, nil
	}
}

func choose(cond bool, yes, no string) string {
	if cond {
		return yes
	}
	return no
}

// hungUp reports whether Postgres ended the connection without a word, before
// or while it was used.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err)
}

// lockNotAvailable is what Postgres says to who has waited for a row for too long.
const lockNotAvailable = "55P03"

// backendError translates what claim and pgx say.
func backendError(err error) error {
	var status *claim.StatusError
	var refused *pgconn.PgError
	switch {
	case errors.Is(err, claim.ErrNotFound):
		return api.ErrNotFound
	case errors.As(err, &status):
		return &api.ConflictError{Status: status.Status, Want: status.Want}
	case exit.Unreachable(err), hungUp(err), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.As(err, &refused) && refused.Code == lockNotAvailable:
		return fmt.Errorf("%w: %w", ondemand.ErrUnavailable, err)
	case errors.As(err, &refused) && len(refused.Code) == 5 && (refused.Code[:2] == "22" || refused.Code[:2] == "23"):
		return &ondemand.InvalidError{Reason: errors.New(refused.Message)}
	}
	return err
}
