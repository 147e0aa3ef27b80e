package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow/joins"
)

// Types of batches and flows. docs/how-to/flows.md explains them.
type (
	// BatchState is a row of the table batches.
	BatchState = contract.Batch
	// Sealed is the state of a batch after its seal.
	Sealed = contract.Sealed
	// CancelledTree is what a cancellation changed.
	CancelledTree = contract.CancelledTree
	// RetriedTree is what a retry changed.
	RetriedTree = contract.RetriedTree
)

// Values of RunWhen: when a callback or a node of a flow runs. Otherwise it is cancelled.
const (
	RunWhenDone   = contract.RunWhenDone   // all members or dependencies are done; the default
	RunWhenEnded  = contract.RunWhenEnded  // always
	RunWhenFailed = contract.RunWhenFailed // one of them has failed or was cancelled
)

// BatchOptions describe a batch to open.
type BatchOptions struct {
	Name string // at most 128 bytes; need not be unique
	// Runs once, after all members have ended; its payload must be an object, which gets "batch" with their
	// numbers; it has no Parent, UniqueKey and UniqueFor; nil = none.
	Callback *Job
	RunWhen  string            // of the callback
	Parent   dispatcherd.JobID // an open batch whose member the callback is; 0 = none
}

// Batch is a set of jobs, its members. They run like other jobs as soon as they are committed. When the batch is sealed
// and all of them have ended, its callback runs, exactly once.
//
// A Batch is a durable barrier (article 4, "Barrier"): the members may run on all hosts. A program may use a batch by its id if its role
// belongs to the owner of the batch: the role that has opened it, or a group in the setting dispatcherd.owner. Each method may be called
// inside a transaction. Seal needs the isolation level read committed.
type Batch struct{ ID dispatcherd.JobID }

// OpenBatch opens a batch. The id of its callback is that of the batch.
func OpenBatch(ctx context.Context, db Querier, o BatchOptions) (Batch, error) {
	b := contract.NewBatch{RunWhen: o.RunWhen, Name: o.Name, Parent: o.Parent}
	if o.Callback != nil {
		callback, err := o.Callback.member("the callback of a batch", "")
		if err == nil {
			b.Callback, err = json.Marshal(callback)
		}
		if err != nil {
			return Batch{}, err
		}
	}
	id, err := joins.Joins{DB: db}.Open(ctx, b)
	return Batch{id}, about("opening a batch", err)
}

// about adds what was attempted to an error.
func about(attempt string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", attempt, err)
	}
	return err
}

func (b Batch) about(attempt string, err error) error {
	return about(fmt.Sprintf("%s batch %d", attempt, b.ID), err)
}

// Add inserts one member.
func (b Batch) Add(ctx context.Context, db Querier, j Job) (dispatcherd.JobID, error) {
	j.Parent = b.ID
	return Insert(ctx, db, j)
}

// AddMany inserts all members or none with COPY, as [InsertMany] does, and returns their number. It may be called any number
// of times, in any transactions, before the seal.
func (b Batch) AddMany(ctx context.Context, db Copier, members iter.Seq[Job]) (int64, error) {
	return InsertMany(ctx, db, func(yield func(Job) bool) {
		for j := range members {
			j.Parent = b.ID
			if !yield(j) {
				return
			}
		}
	})
}

// Seal says that the batch has all of its members. It waits for other transactions that insert members, and may be repeated. The
// callback of a batch without members runs at once.
func (b Batch) Seal(ctx context.Context, db Querier) (Sealed, error) {
	s, err := joins.Joins{DB: db}.Seal(ctx, b.ID)
	return s, b.about("sealing", err)
}

// Cancel has a dispatcher cancel the members, their children and the callback. It needs the role dispatcherd_operator.
func (b Batch) Cancel(ctx context.Context, db Querier) error {
	return b.operate(ctx, db, "cancel_tree")
}

// Retry has a dispatcher run the failed and cancelled members again, and the callback after them. It needs the role dispatcherd_operator.
// The log of the dispatcher says if it is refused; [Flows.Retry] returns the reason.
func (b Batch) Retry(ctx context.Context, db Querier) error { return b.operate(ctx, db, "retry_tree") }

func (b Batch) operate(ctx context.Context, db Querier, kind string) error {
	const sql = `INSERT INTO dispatcherd.operations (kind, target) VALUES ($1, $2) RETURNING true`
	return b.about(kind, db.QueryRow(ctx, sql, kind, int64(b.ID)).Scan(nil))
}

// Status reads the state of the batch. It needs the role dispatcherd_operator.
func (b Batch) Status(ctx context.Context, db Querier) (BatchState, error) {
	state, err := joins.Joins{DB: db}.Get(ctx, b.ID)
	return state, b.about("reading", err)
}
