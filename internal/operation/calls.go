package operation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// API provides the HTTP calls of controls.
type API struct {
	DB claim.DB
	// Session returns the worker and the process of a session of this dispatcher.
	Session func(id int64) (worker, process string)
	Workers func() []contract.Worker // of the cluster
	// Doubts says which types are unknown, and which known ones are similar.
	Doubts func(types ...string) []string
}

// Calls returns the calls.
func (a API) Calls() []rest.Route {
	const typ, worker = "/v1/types/{type}", "/v1/workers/{worker}"
	return append(a.awayCalls(),
		rest.On("pause-type", "POST "+typ+"/pause", "Pause a type: none of its jobs starts until it is resumed or the pause ends", a.pause).
			Takes(contract.PauseOrder{}).Fails(rest.Conflict),
		rest.On("set-retries", "PUT "+typ+"/retries", "Set how often, and after which waits, failed jobs of a type are retried", a.retries).
			Takes(contract.RetryPolicy{}).Fails(rest.Conflict),
		rest.On("resume-type", "POST "+typ+"/resume", "End the pause of a type", a.resume),
		rest.On("drain-worker", "POST "+worker+"/drain", "Drain a worker: it gets no jobs until it is resumed, or has no process left", a.drain).
			Takes(contract.DrainOrder{}).Fails(rest.Conflict),
		rest.On("resume-worker", "POST "+worker+"/resume", "Let a drained worker get jobs again", a.undrain),
		rest.On("list-drains", "GET /v1/drains", "List the drained workers by name", a.drains),
	)
}

// TypeName names a type.
type TypeName struct {
	Type string `param:"type" json:"type"` // Name of the type.
}

// WorkerName names a worker.
type WorkerName struct {
	Worker string `param:"worker" json:"worker"` // Name of the worker, or number of a session at this dispatcher.
}

// change makes a change for a caller that is permitted to, and waits until all dispatchers follow it.
func (a API) change(r *rest.Request, permitted error, do func(Controls) (int64, error)) (c contract.Confirmation, err error) {
	version, err := int64(0), permitted
	if err == nil {
		version, err = do(Controls{DB: a.DB, By: r.Name()})
	}
	if err == nil {
		c.Unconfirmed, err = a.confirm(r.Context(), version)
	}
	return c, err
}

func (a API) pause(r *rest.Request, n *TypeName) (answer contract.PauseState, err error) {
	var order contract.PauseOrder
	confirmed, err := a.change(r, cmp.Or(r.Permit(n.Type), r.Decode(&order)), func(c Controls) (version int64, err error) {
		p := contract.Pause{Type: n.Type, What: cmp.Or(order.What, contract.PauseAll), Reason: order.Reason}
		answer, version, err = c.Pause(r.Context(), p, order.For)
		return version, err
	})
	answer.Confirmation, answer.Warning = confirmed, strings.Join(a.Doubts(n.Type), "")
	return answer, err
}

func (a API) retries(r *rest.Request, n *TypeName) (answer contract.RetryState, err error) {
	var p contract.RetryPolicy
	confirmed, err := a.change(r, cmp.Or(r.Permit(n.Type), r.Decode(&p)), func(c Controls) (version int64, err error) {
		answer, version, err = c.SetRetries(r.Context(), n.Type, p)
		return version, err
	})
	answer.Confirmation, answer.Warning = confirmed, strings.Join(a.Doubts(n.Type), "")
	return answer, err
}

func (a API) resume(r *rest.Request, n *TypeName) (contract.Confirmation, error) {
	return a.change(r, r.Permit(n.Type), func(c Controls) (int64, error) { return c.Resume(r.Context(), n.Type) })
}

// find returns what a call means: the workers with a name, or a session of this dispatcher.
func (a API) find(name string) (contract.Drain, error) {
	var names []string
	for _, w := range a.Workers() {
		names = append(names, w.Worker)
	}
	slices.Sort(names)
	id, _ := strconv.ParseInt(name, 10, 64)
	worker, process := a.Session(id)
	switch {
	case slices.Contains(names, name):
		return contract.Drain{Worker: name}, nil
	case worker != "":
		return contract.Drain{Worker: worker, Process: process}, nil
	}
	names = slices.Compact(names)
	return contract.Drain{Worker: name}, rest.NotFound.Of(fmt.Sprintf("no worker %q is connected; connected are: %s", name,
		cmp.Or(strings.Join(names[:min(len(names), mostNames)], ", "), "none")))
}

// mostNames bounds the names in an error.
const mostNames = 20

func (a API) drain(r *rest.Request, n *WorkerName) (answer contract.DrainState, err error) {
	var order contract.DrainOrder
	d, missing := a.find(n.Worker)
	offered, failed := a.offered(r.Context())
	permitted := cmp.Or(r.Decode(&order), rest.PermitTypes(r, order.Types, len(order.Types) == 0), failed, missing)
	unknown := slices.DeleteFunc(slices.Clone(order.Types), func(typ string) bool { return slices.Contains(offered, typ) })
	doubts := a.Doubts(unknown...)
	confirmed, err := a.change(r, permitted, func(c Controls) (version int64, err error) {
		d.Types, d.Reason = order.Types, order.Reason
		answer, version, err = c.Drain(r.Context(), d)
		return version, err
	})
	if err != nil {
		return answer, err
	}
	left, err := a.offered(r.Context())
	answer.Confirmation, answer.Warning = confirmed, strings.Join(doubts, "; ")
	answer.Uncovered = slices.DeleteFunc(offered, func(typ string) bool { return slices.Contains(left, typ) })
	return answer, err
}

func (a API) undrain(r *rest.Request, n *WorkerName) (contract.Confirmation, error) {
	d, _ := a.find(n.Worker) // it may have disconnected
	return a.change(r, r.PermitAll(), func(c Controls) (int64, error) { return c.Undrain(r.Context(), d.Worker, d.Process) })
}

// drains lists the drains with what dispatchers say about them.
func (a API) drains(r *rest.Request, q *rest.Names) (p contract.Page[contract.DrainState], err error) {
	all, err := list[contract.DrainState](r.Context(), a.DB, `SELECT `+drainColumns+`, count(d.id)::int,
			coalesce(sum((d.drained ->> (w.worker || '/' || w.process))::int), 0)::int, ''
		FROM dispatcherd.drains w LEFT JOIN dispatcherd.dispatchers d ON `+claim.Alive+` AND d.drained ? (w.worker || '/' || w.process)
		WHERE starts_with(w.worker, $1) GROUP BY w.worker, w.process ORDER BY w.worker || '/' || w.process COLLATE "C"`, q.Prefix)
	if err != nil {
		return p, err
	}
	return rest.Cut(all, q.Query, func(d *contract.DrainState) string { return d.Key() })
}

// Times of a confirmation.
const (
	confirmTime  = 2 * time.Second // a dispatcher that follows a change says so at once
	confirmPause = 20 * time.Millisecond
)

// confirm waits until all dispatchers have said that they follow a version. It returns the names of those that have not.
func (a API) confirm(ctx context.Context, version int64) (missing []string, err error) {
	for end := time.Now().Add(confirmTime); ; {
		missing, err = claim.Column[string](ctx, a.DB,
			`SELECT DISTINCT name FROM dispatcherd.dispatchers d WHERE `+claim.Alive+` AND controls < $1 ORDER BY 1`, version)
		if err != nil || len(missing) == 0 || time.Now().After(end) {
			return missing, err
		}
		if !background.Pause(ctx, confirmPause) {
			return missing, ctx.Err()
		}
	}
}

// offered reads the types for which dispatchers have slots.
func (a API) offered(ctx context.Context) ([]string, error) {
	return claim.Column[string](ctx, a.DB, `SELECT DISTINCT t.key FROM dispatcherd.dispatchers d, jsonb_each_text(d.capacity) t
		WHERE `+claim.Alive+` AND t.value::bigint > 0 ORDER BY 1`)
}
