package backend

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/flow/flowstore"
	"github.com/dispatcherd/dispatcherd/internal/flow/joins"
	"github.com/dispatcherd/dispatcherd/internal/httpapi"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitstore"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
	"github.com/dispatcherd/dispatcherd/internal/operation"
	"github.com/dispatcherd/dispatcherd/internal/schedule/schedulestore"
)

// Routes implements httpapi.Backend: the calls of schedules, limits and flows.
func (b *Backend) Routes() []rest.Route {
	routes := slices.Concat(
		schedulestore.Schedules{DB: b.Pool}.Calls(b.warnings),
		limitstore.API{DB: b.Pool, Book: b.Book}.Calls(),
		operation.API{DB: b.Pool, Session: b.session, Workers: b.cluster, Doubts: b.doubts}.Calls(),
		flowstore.API{DB: b.Pool, Notify: b.Loop.Notify, Settle: b.Settle, Warn: b.warnings}.Calls(),
	)
	for i := range routes {
		handle := routes[i].Handle
		routes[i].Handle = func(w http.ResponseWriter, r *rest.Request) error { return refusal(handle(w, r)) }
	}
	return routes
}

// session returns the worker of a session and its process.
func (b *Backend) session(id int64) (worker, process string) {
	b.Loop.Ask(func(c *actor.Core) { worker, process = c.WorkerOf(dispatcherd.SessionID(id)) })
	return worker, process
}

// cluster returns the connected workers of all dispatchers that answer.
func (b *Backend) cluster() []contract.Worker {
	all, _ := b.Workers(false)
	return all
}

// doubts says of types that no slot supports them, and what can be done. There are at most mostWarnings, because the search for each
// similar name takes milliseconds.
func (b *Backend) doubts(types ...string) (list []string) {
	slices.Sort(types)
	for _, typ := range slices.Compact(types) {
		if len(list) == mostWarnings {
			break
		}
		if b.ClusterSlots(typ) > 0 {
			continue
		}
		hint := b.drained(typ)
		if _, similar := b.offered(typ); hint == "" && similar != "" {
			hint = fmt.Sprintf("did you mean %q?", similar)
		}
		hint = cmp.Or(hint, "its jobs wait until a worker supports it")
		list = append(list, fmt.Sprintf("no slot of any dispatcher supports type %q: %s", typ, hint))
	}
	return list
}

// drained says which drained worker supports a type; "" = there is none.
func (b *Backend) drained(typ string) string {
	if len(b.Controls().Drains) == 0 {
		return ""
	}
	slots, _ := b.Slots(false)
	return drainedOf(slots, typ)
}

// drainedOf returns the text of a drain that keeps jobs of a type from a slot; "" = there is none.
func drainedOf(slots []contract.Slot, typ string) string {
	for i := range slots {
		if d := slots[i].Drain; d != nil && (d.Types == nil && slices.Contains(slots[i].Types, typ) || slices.Contains(d.Types, typ)) {
			return d.Text()
		}
	}
	return ""
}

// refusal classifies an error of a table that contains no jobs.
func refusal(err error) error {
	if err == nil {
		return nil
	}
	if err = classify(err); rest.InvalidJob.Is(err) {
		return rest.InvalidRequest.Of(ondemand.Explain(err).Detail)
	}
	return err
}

// CancelledWith implements httpapi.Backend.
func (b *Backend) CancelledWith(ctx context.Context, job dispatcherd.JobID) (types []string, all bool, err error) {
	types, err = within(ctx, func(ctx context.Context) (types []string, err error) {
		types, all, err = joins.Joins{DB: b.Pool}.CancelledWith(ctx, job)
		return types, err
	})
	return types, all, err
}

// insertUnique inserts a job unless another one has its unique key. id is that of the job that has it.
func (b *Backend) insertUnique(ctx context.Context, job *contract.NewJob) (id dispatcherd.JobID, inserted bool, err error) {
	object, err := json.Marshal(job.JobColumns)
	if err != nil {
		return 0, false, err
	}
	id, err = within(ctx, func(ctx context.Context) (id dispatcherd.JobID, err error) {
		id, inserted, err = joins.Joins{DB: b.Pool}.InsertUnique(ctx, object, *job.UniqueKey, time.Duration(given(job.UniqueFor)))
		return id, err
	})
	return id, inserted, err
}

// permitParent returns the error of permit for the callback of a batch, whose run a member delays.
func (b *Backend) permitParent(ctx context.Context, id dispatcherd.JobID, permit func(string) error) error {
	types, err := about(ctx, joins.Joins{DB: b.Pool}.Types, []int64{int64(id)})
	if errors.Is(err, joins.ErrInvalid) {
		return rest.InvalidJob.Of("parent: " + err.Error())
	}
	for _, typ := range types {
		if err == nil {
			err = permit(typ)
		}
	}
	return err
}

// whyWaiting explains a job that waits for others.
func (b *Backend) whyWaiting(ctx context.Context, job *contract.Job) (httpapi.Why, error) {
	why := whyBecause(job, httpapi.ReasonDependencies)
	waits, err := about(ctx, joins.Joins{DB: b.Pool}.Waits, job.ID)
	switch why.WaitsFor = waits; {
	case waits == nil:
	case waits.Aside != "":
		why.Reasons[0] = httpapi.ReasonAside
	case waits.Batch && waits.Left == nil:
		why.Reasons[0] = httpapi.ReasonUnsealed
	}
	return why, err
}
