// Package backend implements api.Backend: it connects the API to the loop, to the table and
// to the decision log.
//
// A request in memory exists only here and in the Core ([Requests]). A durable request is a
// row; its callers watch the row ([Rows]). All statements use connections that are reserved
// for callers, so that a caller never delays a claim.
package backend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/decisionlog"
	"github.com/dispatcherd/dispatcherd/internal/joblines"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// Config is what a Backend uses. All fields but Decisions are required.
type Config struct {
	Loop      *actor.Actor
	Pool      *pgxpool.Pool // connections for callers only
	Requests  *Requests
	Rows      *Rows
	Decisions *decisionlog.Log // nil: off

	Dispatcher func() int32    // the id of this dispatcher
	Subscribed func() bool     // reports whether notifications arrive
	Stopping   <-chan struct{} // closed when the daemon begins to stop

	ReconnectGrace time.Duration // how long a request waits without capacity
	UploadWait     time.Duration // how long an upload waits for a connection
	Uploads        int           // limit of concurrent uploads; each holds a connection
	MaxPayload     int           // bytes of one line of an upload
}

// Backend implements api.Backend. Its methods may be called from any goroutine.
type Backend struct {
	Config

	uploads chan struct{} // one element for each running upload
}

// New returns a Backend.
func New(c Config) *Backend {
	return &Backend{Config: c, uploads: make(chan struct{}, max(1, c.Uploads))}
}

// ActiveUploads returns the number of running uploads.
func (b *Backend) ActiveUploads() int { return len(b.uploads) }

func (b *Backend) jobs() claim.Jobs { return claim.Jobs{DB: b.Pool} }

// within executes a statement for a caller, with a time limit.
func within[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer cancel()
	result, err := do(ctx)
	if err != nil {
		err = classify(err)
	}
	return result, err
}

// Submit implements api.Backend.
func (b *Backend) Submit(ctx context.Context, r ondemand.Request, c ondemand.Caller) (dispatcherd.JobID, error) {
	if !r.Durable {
		return b.Requests.Submit(r, c), nil
	}
	if b.stopping() { // no caller could wait for the row
		return 0, ondemand.ErrStopping
	}
	if r.Payload != nil {
		if err := jsontext.CheckPayload(r.Payload); err != nil {
			return 0, &ondemand.InvalidError{Reason: fmt.Errorf("the payload cannot be sent to a worker: %w", err)}
		}
	}

	defer b.Rows.expect()()
	row := claim.New{Type: r.Type, Payload: r.Payload, Priority: r.Priority, Timeout: r.Deadline}
	id, err := b.insertWhole(ctx, row, r.Once, r.Row)
	if err != nil {
		return 0, undecided(id, classify(err))
	}
	b.Rows.watch(id, c, true)
	b.Loop.Notify()
	return id, nil
}

// undecided returns the error of an insertion after which the row with the id may
// exist. The id 0 means that no row exists.
func undecided(id dispatcherd.JobID, err error) error {
	if _, invalid := errors.AsType[*ondemand.InvalidError](err); id == 0 || invalid {
		return err
	}
	return &ondemand.UndecidedError{Job: id, Err: err}
}

// insertWhole adds a row, unless ctx is done before the statement is sent. Afterwards ctx
// does not interrupt the statement: the row could exist, and a caller without its id
// could not cancel it. If once is true, insertWhole draws the id before the insertion.
// earlier is the id of an earlier insertion with an unknown outcome, or 0. If insertWhole
// returns an error, the row with the returned id may exist.
func (b *Backend) insertWhole(ctx context.Context, row claim.New, once bool, earlier dispatcherd.JobID) (id dispatcherd.JobID, err error) {
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), claim.DefaultTimeout)
	defer cancel()
	ctx, leave := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer leave()
	conn, err := b.Pool.Acquire(ctx)
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

func (b *Backend) stopping() bool {
	select {
	case <-b.Stopping:
		return true
	default:
		return false
	}
}

// Abandon implements api.Backend.
func (b *Backend) Abandon(id dispatcherd.JobID, c ondemand.Caller) {
	if id.OnDemand() {
		b.Requests.Abandon(id)
		return
	}
	b.Rows.leave(id, c)
	if b.stopping() {
		return // a stop also disconnects callers, and tells them that the row stays
	}
	cancelled := make(chan struct{})
	go func() {
		defer close(cancelled)
		b.cancelRow(id)
	}()
	patience := time.NewTimer(cancelPatience)
	defer patience.Stop()
	select {
	case <-cancelled:
	case <-patience.C:
	}
}

// cancelPatience is how long a caller whose deadline has passed waits for the
// cancellation of the row. The caller gets its 504 within 50 ms of the deadline.
const cancelPatience = 25 * time.Millisecond

// cancelRow cancels the row of a request without callers.
func (b *Backend) cancelRow(id dispatcherd.JobID) {
	if _, err := b.Cancel(context.Background(), id); err != nil {
		// The row has ended, or Postgres does not answer. If the job runs here, the
		// Core cancels it and records the end later. If it runs on another
		// dispatcher, its result is not read.
		b.Loop.Order(event.CancelRequested{Jobs: []dispatcherd.JobID{id}})
	}
}

// NoCapacity implements api.Backend.
func (b *Backend) NoCapacity(id dispatcherd.JobID) (wait time.Duration, none bool) {
	b.Loop.Ask(func(c *actor.Core) { none = c.WaitsForCapacity(id) })
	return b.ReconnectGrace, none
}

// Offered implements api.Backend.
func (b *Backend) Offered(kind string) bool {
	offered := true // the answer if the loop has ended
	b.Loop.Ask(func(c *actor.Core) { offered = c.Offered(kind) })
	return offered
}

// Rank implements api.Backend.
func (b *Backend) Rank(id dispatcherd.JobID) (rank ondemand.Rank, ok bool) {
	if !id.OnDemand() {
		return rank, false
	}
	b.Loop.Ask(func(c *actor.Core) { rank.OfType, rank.Waiting, ok = c.RankOfRequest(id) })
	return rank, ok
}

// Insert implements api.Backend.
func (b *Backend) Insert(ctx context.Context, object []byte) (dispatcherd.JobID, error) {
	job, err := joblines.Parse(object)
	if err != nil {
		return 0, &ondemand.InvalidError{Reason: err}
	}
	id, err := within(ctx, func(ctx context.Context) (dispatcherd.JobID, error) { return b.jobs().Insert(ctx, job.Row()) })
	if err == nil {
		b.Loop.Notify()
	}
	return id, err
}

// Job implements api.Backend.
func (b *Backend) Job(ctx context.Context, id dispatcherd.JobID) (contract.Job, error) {
	return within(ctx, func(ctx context.Context) (contract.Job, error) { return b.jobs().Get(ctx, id) })
}

// Cancel implements api.Backend. A job that runs here is cancelled without a
// notification.
func (b *Backend) Cancel(ctx context.Context, id dispatcherd.JobID) (dispatcherd.Status, error) {
	status, err := within(ctx, func(ctx context.Context) (dispatcherd.Status, error) { return b.jobs().Cancel(ctx, id) })
	if err == nil && status == dispatcherd.Running {
		b.Loop.Order(event.CancelRequested{Jobs: []dispatcherd.JobID{id}})
	}
	return status, err
}

// Watch implements api.Backend.
func (b *Backend) Watch(id dispatcherd.JobID, c ondemand.Caller) (stop func()) {
	return b.Rows.watch(id, c, false)
}
