package httpapi

import (
	"context"
	"encoding/json"
	"io"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// Backend is the dispatcher behind the API. Its methods may be called from any
// goroutine at any time.
type Backend interface {
	ondemand.Backend
	Jobs
	Lists
	// Routes returns the calls of tables: schedules, limits, keys, batches and flows.
	Routes() []rest.Route
}

// Jobs inserts, reads and changes jobs of the table.
type Jobs interface {
	// Insert adds one job, described by a JSON object as in docs/reference/api.md, unless another job has its unique key.
	// It returns the error of permit for its type, or for that of the callback of the batch.
	Insert(ctx context.Context, object []byte, permit func(typ string) error) (Inserted, error)
	// InsertBatch adds a sealed batch of jobs, one for each payload, and returns its id. The timeout of f is the limit
	// of an attempt; nil = that of the type.
	InsertBatch(ctx context.Context, f *ondemand.FanOut, payloads []json.RawMessage) (dispatcherd.JobID, error)
	// InsertLines adds a stream of such objects, one per line, in one transaction. It calls
	// bad for every bad line. If strict, one bad line means that nothing is inserted and the
	// count is 0. ids asks for the ids of the jobs. It returns ErrTooManyUploads if too many streams are being inserted
	// already. If permit returns an error for a type, nothing is inserted and InsertLines
	// returns that error.
	InsertLines(
		ctx context.Context,
		lines io.Reader,
		permit func(typ string) error,
		strict, ids bool,
		bad func(line int, reason error),
	) (Uploaded, error)
	// Job reads one job. It returns ErrNotFound if there is none.
	Job(ctx context.Context, id dispatcherd.JobID) (contract.Job, error)
	// Cancel cancels a pending job and returns Cancelled, or asks the worker of a running
	// job to stop and returns Running. It returns ErrNotFound if there is no job, or a
	// problem of kind Conflict if the job has ended. The table records by as the one who
	// cancelled. The caller of a request in memory is answered at once, also if it runs.
	Cancel(ctx context.Context, id dispatcherd.JobID, by string) (dispatcherd.Status, error)
	// CancelledWith returns the types of the jobs that are cancelled with a job, or all: those of a batch or flow whose callback it is.
	CancelledWith(ctx context.Context, id dispatcherd.JobID) (types []string, all bool, err error)
	// Retry makes a failed or cancelled job pending again. Its errors are those of Cancel.
	Retry(ctx context.Context, id dispatcherd.JobID) error
	// List returns a page of jobs without payload, result and progress.
	List(ctx context.Context, f contract.Filter) (contract.JobPage, error)
	// Change cancels or retries the jobs that a filter selects, if count is their number. With
	// a negative count it only counts them. It returns a *contract.CountError for another count.
	// by is as for Cancel.
	Change(ctx context.Context, op contract.Operation, f contract.Filter, count int, by string) (contract.Bulk, error)
	// Watch calls c when a row may have changed. If the job runs on this dispatcher, it
	// calls Started and Reported. For all other changes it calls Answered with kind Changed.
	// stop ends Watch.
	Watch(id dispatcherd.JobID, c ondemand.Caller) (stop func())
	// Why explains the state of a job. It returns ErrNotFound if there is none.
	Why(ctx context.Context, id dispatcherd.JobID) (Why, error)
}

// Lists describes the state of the dispatcher.
type Lists interface {
	// Waiting lists the requests that wait in memory, by descending ids.
	Waiting() []contract.WaitingRequest
	// ClusterSlots returns the number of slots of all dispatchers that support a type, as
	// far as is known.
	ClusterSlots(typ string) int
	// Types lists the types that dispatchers know, and those of pending rows, or only those of this one.
	Types(local bool) contract.TypePage
	// Slots and Workers list those of all dispatchers, or of this one. The notes say which are old or missing.
	Slots(local bool) (slots []contract.Slot, notes []string)
	Workers(local bool) (workers []contract.Worker, notes []string)
	// Status says what all dispatchers do.
	Status() contract.Status
	// Dispatchers lists the dispatchers of the table, the newest first. It never returns nil.
	Dispatchers(ctx context.Context) ([]contract.Dispatcher, error)
	// Checks reports whether the dispatcher can work: first whether the loop runs, and if it does the states of everything else that the
	// dispatcher needs.
	Checks() []Check
}

// Check is the state of one thing that the dispatcher needs: one line of /readyz?verbose.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Info string `json:"info,omitempty"`
}

// Errors that a Backend returns. It also returns problems and errors of package ondemand.
var (
	ErrNotFound = rest.NotFound.Refuses(
		"no such job: it was never inserted, or it was removed (--keep-done and --keep-failed of serve)")
	ErrTooManyCalls = rest.Unavailable.Of("this user uses all connections to Postgres that it may use at the same time: " +
		"make fewer calls at once; if they wait for locks, 'dispatcherd job why' names the session that holds one").Retryable()
	ErrTooManyUploads = rest.QueueFull.Of("too many streams of jobs of this user, or of all users, are being inserted").Retryable()
)
