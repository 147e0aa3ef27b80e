// Package backend implements httpapi.Backend: it connects the API to the loop, to the table and
// to the decision log.
//
// A request in memory exists only here and in the Core ([Requests]). A durable request is
// a row, which its callers watch ([Rows]). All statements use connections that are
// reserved for callers, so a caller never delays a claim.
package backend

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/decisionlog"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
	"github.com/dispatcherd/dispatcherd/internal/quota"
)

// Config is what a Backend uses. All fields but Decisions are required.
type Config struct {
	Loop      *actor.Actor
	Pool      *pgxpool.Pool // connections for callers only
	Requests  *Requests
	Rows      *Rows
	Pending   *Pending
	Decisions *decisionlog.Log // nil: off

	Controls   func() *contract.Controls                // that this dispatcher follows
	Name       string                                   // of this dispatcher
	Dispatcher func() int32                             // its id
	Connected  func() []contract.Worker                 // the connected workers by session, without their slots
	Ends       func() (perSecond float64, failures int) // attempts that ended here recently, see contract.Summary
	Window     time.Duration                            // the overtaking window; 0 = it has no bound
	// Aside returns why statements other than claims leave out a row; "" = they do not.
	Aside func(dispatcherd.JobID) string
	// Unread returns why Postgres cannot read a lane; "" = it can.
	Unread func(contract.Lane) string
	// Book calls f with the book of the permits, and reports whether this dispatcher is the controller.
	Book       func(ctx context.Context, f func(*permits.Book)) bool
	Settle     func(context.Context, dispatcherd.JobID) // see flowstore.API
	Subscribed func() bool                              // reports whether notifications arrive
	Outage     func() string                            // says why statements failed last
	CutOff     func() bool                              // reports whether a socket cannot be reached, because another process uses its path
	Stopping   context.Context                          // done when the daemon begins to stop
	Others     func() map[string]int                    // slots of other dispatchers by type, as the last heartbeat has read them

	ReconnectGrace time.Duration // how long a request waits without capacity
	UploadWait     time.Duration // how long an upload waits for a connection
	Uploads        int           // limit of concurrent uploads; each holds a connection. One user has all but one of them
	MaxPayload     int           // bytes of one line of an upload
}

// Backend implements httpapi.Backend. Its methods may be called from any goroutine.
type Backend struct {
	Config

	Cluster   *Cluster
	uploads   chan struct{} // one element for each running upload
	Uploaders *quota.Places // of each user, for uploads
}

// New returns a Backend.
func New(c Config) *Backend {
	b := &Backend{Config: c, uploads: make(chan struct{}, max(1, c.Uploads)), Uploaders: quota.NewPlaces(c.Uploads - 1)}
	b.Cluster = NewCluster(c.Dispatcher, b.Summary, b.jobs().Exchange)
	return b
}

// ActiveUploads returns the number of running uploads.
func (b *Backend) ActiveUploads() int { return len(b.uploads) }

func (b *Backend) jobs() claim.Jobs { return claim.Jobs{DB: b.Pool} }

// noCaller is recorded as the one who cancelled the row of a request without callers.
const noCaller = "api: no caller waits any more"

// within executes a statement for a caller, with a time limit. If the call has waited so long for its place that the limit passes
// before the lock timeout of the session, it is told to make fewer calls, because Postgres answers.
func within[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer cancel()
	var waited time.Duration
	result, err := do(context.WithValue(ctx, waitedKey{}, &waited))
	switch {
	case errors.Is(err, context.DeadlineExceeded) && waited >= claim.DefaultTimeout/5:
		err = httpapi.ErrTooManyCalls
	case err != nil:
		err = classify(err)
	}
	return result, err
}

// about is within for a statement with one argument.
func about[A, T any](ctx context.Context, do func(context.Context, A) (T, error), of A) (T, error) {
	return within(ctx, func(ctx context.Context) (T, error) { return do(ctx, of) })
}

// Submit implements httpapi.Backend.
func (b *Backend) Submit(ctx context.Context, r ondemand.Request, c ondemand.Caller) (dispatcherd.JobID, error) {
	switch {
	case !r.Durable && r.Elsewhere:
		return 0, b.onlyElsewhere(ctx, r.Type, `"durable": false keeps the request from the queue: leave it out, or send it there`)
	case !r.Durable:
		return b.Requests.Submit(r, c), nil
	}
	if b.stopping() { // no caller could wait for the row
		return 0, ondemand.ErrStopping
	}
	id, late, err := b.insertWhole(ctx, &r)
	if r.Elsewhere && rest.InvalidJob.Is(err) { // as a request in memory it may be valid
		return 0, b.onlyElsewhere(ctx, r.Type, "the request cannot be a job in the queue ("+ondemand.Explain(err).Detail+"): send it there")
	}
	if err != nil {
		return 0, err
	}
	if r.Elsewhere {
		b.Rows.Diverted.Add(1)
	}
	b.Rows.watch(id, c, true, late)
	b.Loop.Ask(func(core *actor.Core) { // the job may have been sent before its id was known here
		slot, attempt, worker := core.RunsOn(id)
		b.Rows.started(id, slot, attempt, worker)
	})
	b.Loop.Notify()
	return id, nil
}

// insertWhole adds the row of a request, unless ctx is done before the statement is sent.
// Afterwards ctx does not interrupt the statement: the row could exist, and a caller without
// its id could not cancel it. If a row has the key of the request, insertWhole returns this
// row. late says that its deadline has passed.
func (b *Backend) insertWhole(ctx context.Context, r *ondemand.Request) (id dispatcherd.JobID, late bool, err error) {
	if err := checkPayload(r.Payload); err != nil {
		return 0, false, rest.InvalidJob.Of(err.Error())
	}
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), claim.DefaultTimeout)
	defer cancel()
	ctx, leave := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer leave()
	conn, err := b.Pool.Acquire(ctx)
	if err != nil {
		return 0, false, classify(err)
	}
	defer conn.Release()
	if time.Until(r.Due) <= 0 {
		return 0, false, rest.DeadlinePassed.Of("the request was not done in time; its row was not written")
	}
	var key *claim.RequestKey
	if r.Key != "" {
		key = &claim.RequestKey{Key: sha256.Sum256([]byte(r.Key)), Request: r.Mark, Keep: r.Keep}
	}
	row := claim.New{Type: r.Type, Payload: r.Payload, Priority: r.Priority, Timeout: r.Timeout, Expected: r.Expected, Keys: r.Keys,
		Traceparent: r.Traceparent}
	if r.Elsewhere {
		row.MaxAttempts = 1 // its caller has not asked for a retry after a failure
	}
	id, late, err = claim.Jobs{DB: conn}.InsertRequest(whole, row, r.Due, key)
	if err != nil {
		err = classify(err)
	}
	if key != nil && errors.Is(err, ondemand.ErrUnavailable) {
		err = ondemand.Undecided(err)
	}
	return id, late, err
}

func (b *Backend) stopping() bool { return b.Stopping.Err() != nil }

// Abandon implements httpapi.Backend.
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
		b.cancelRow(id, c)
	}()
	select {
	case <-cancelled:
	case <-time.After(cancelPatience):
	}
}

// cancelPatience is how long a caller whose deadline has passed waits for the
// cancellation of the row. The caller gets its 504 within 50 ms of the deadline.
const cancelPatience = 25 * time.Millisecond

// cancelRow cancels the row of a request without callers.
func (b *Backend) cancelRow(id dispatcherd.JobID, c ondemand.Caller) {
	user := ""
	if r, ok := c.(*ondemand.Shared); ok {
		user = r.User()
	}
	if _, err := b.Cancel(quota.WithUser(context.Background(), user), id, noCaller); err != nil {
		// The row has ended, or Postgres does not answer. If the job runs here, the
		// Core cancels it and records the end later. If it runs on another
		// dispatcher, its result is not read.
		b.Loop.Order(actor.CancelRequested{Jobs: []dispatcherd.JobID{id}})
	}
}

// NoCapacity implements httpapi.Backend.
func (b *Backend) NoCapacity(id dispatcherd.JobID) (wait time.Duration, none bool) {
	b.Loop.Ask(func(c *actor.Core) { none = c.WaitsForCapacity(id) })
	return b.ReconnectGrace, none
}

// Offered implements httpapi.Backend.
func (b *Backend) Offered(kind string) bool {
	offered := true // the answer if the loop has ended
	b.Loop.Ask(func(c *actor.Core) {
		own, others := c.Capacity(kind)
		offered = own+others > 0
	})
	return offered
}

// Elsewhere implements httpapi.Backend. It asks the loop only if another dispatcher has slots for the type. Of a paused type no request
// becomes a row, which would wait.
func (b *Backend) Elsewhere(typ string) (elsewhere bool) {
	if others := b.Others()[typ]; others > 0 {
		b.Loop.Ask(func(c *actor.Core) {
			own, others := c.Capacity(typ)
			elsewhere = own == 0 && others > 0 && !c.Paused(typ)
		})
	}
	return elsewhere
}

// onlyElsewhere refuses a request whose type only slots of other dispatchers support. It names them if Postgres answers.
func (b *Backend) onlyElsewhere(ctx context.Context, typ, why string) error {
	where := "other dispatchers"
	if names, err := about(ctx, b.jobs().Supporting, typ); err == nil && len(names) > 0 {
		where = strings.Join(names, ", ")
	}
	return rest.NoSlot.Of(fmt.Sprintf("no slot of this dispatcher supports type %q, but slots of %s do; %s", typ, where, why))
}

// Rank implements httpapi.Backend.
func (b *Backend) Rank(id dispatcherd.JobID) (rank ondemand.Rank, ok bool) {
	if !id.OnDemand() {
		return rank, false
	}
	rank.OfType, rank.Waiting, ok = actor.RankOfRequest(id, b.Loop)
	return rank, ok
}

// Insert implements httpapi.Backend.
func (b *Backend) Insert(ctx context.Context, object []byte, permit func(string) error) (done httpapi.Inserted, err error) {
	var job contract.NewJob
	inserted := true
	quota.Parse(quota.UserOf(ctx), len(object), func() { job, err = parseJob(object) })
	if err != nil {
		return done, rest.InvalidJob.Of(err.Error())
	}
	if err := permit(job.Type); err != nil {
		return done, err
	}
	job.Traceparent = cmp.Or(job.Traceparent, rest.TraceparentOf(ctx))
	if job.RunIn != nil {
		now, err := within(ctx, b.jobs().Clock)
		if err != nil {
			return done, err
		}
		job.RunAt = new(now.Add(time.Duration(*job.RunIn)))
	}
	switch {
	case job.UniqueKey != nil && job.Parent == nil: // a member of a batch is refused instead if another job has its key
		done.ID, inserted, err = b.insertUnique(ctx, &job)
	case job.Parent != nil:
		if err := b.permitParent(ctx, *job.Parent, permit); err != nil {
			return done, err
		}
		fallthrough
	default:
		done.ID, err = about(ctx, b.jobs().Insert, rowOf(&job))
	}
	if err == nil {
		b.Loop.Notify()
		done.Existing = !inserted
		done.Warnings = b.warnings(ctx, contract.Needs{Type: job.Type, Keys: given(job.Keys)})
	}
	return done, err
}

// Job implements httpapi.Backend.
func (b *Backend) Job(ctx context.Context, id dispatcherd.JobID) (contract.Job, error) {
	job, err := about(ctx, b.jobs().Get, id)
	one := []contract.Job{job}
	b.locate(one, false)
	return one[0], err
}

// Cancel implements httpapi.Backend. The dispatcher that runs a job finds the request in the table.
func (b *Backend) Cancel(ctx context.Context, id dispatcherd.JobID, by string) (dispatcherd.Status, error) {
	if id.OnDemand() {
		if !b.Requests.Cancel(id, by) {
			return "", httpapi.ErrNotFound
		}
		return dispatcherd.Cancelled, nil
	}
	status, err := about(ctx, claim.Jobs{DB: b.Pool, By: by}.Cancel, id)
	b.Rows.wake(contract.OperationsAsked) // also without notifications
	return status, err
}

// Retry implements httpapi.Backend.
func (b *Backend) Retry(ctx context.Context, id dispatcherd.JobID) error {
	_, err := within(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, b.jobs().Retry(ctx, id) })
	if err == nil {
		b.Loop.Notify()
	}
	return err
}

// List implements httpapi.Backend.
func (b *Backend) List(ctx context.Context, f contract.Filter) (contract.JobPage, error) {
	f, notes := b.running(f)
	page, err := about(ctx, b.jobs().List, f)
	page.Notes = append(notes, page.Notes...)
	b.locate(page.Items, true)
	return page, err
}

// Change implements httpapi.Backend.
func (b *Backend) Change(ctx context.Context, op contract.Operation, f contract.Filter, count int, by string) (contract.Bulk, error) {
	f, notes := b.running(f)
	bulk, err := within(ctx, func(ctx context.Context) (contract.Bulk, error) {
		return claim.Jobs{DB: b.Pool, By: by}.Change(ctx, op, f, count)
	})
	bulk.Notes = notes
	if op == contract.RetryJobs {
		b.Loop.Notify()
	}
	b.Rows.wake(contract.OperationsAsked)
	return bulk, err
}

// Dispatchers implements httpapi.Backend.
func (b *Backend) Dispatchers(ctx context.Context) ([]contract.Dispatcher, error) {
	all, err := within(ctx, b.jobs().Dispatchers)
	me := int(b.Dispatcher())
	for i := range all {
		all[i].Self = all[i].ID == me
	}
	return all, err
}

// Watch implements httpapi.Backend.
func (b *Backend) Watch(id dispatcherd.JobID, c ondemand.Caller) (stop func()) {
	return b.Rows.watch(id, c, false, false)
}
