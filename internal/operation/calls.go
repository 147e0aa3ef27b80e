package operation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// API provides the HTTP calls of controls.
type API struct {
	DB claim.DB
	// Session returns the worker and the process of a session of this dispatcher.
	Session func(id int64) (worker, process string)
	Workers func() []string // names of the workers that are known to be connected
	// Doubt says that a type is unknown, and which known one is similar; "" = it is known.
	Doubt func(typ string) string
}

// Calls returns the calls.
func (a API) Calls() []rest.Route {
	const typ, worker = "/v1/types/{type}", "/v1/workers/{worker}"
	return append(a.awayCalls(),
		rest.On("pause-type", "POST "+typ+"/pause", "Pause a type: none of its jobs starts until it is resumed or the pause ends", a.pause).
			Takes(contract.PauseOrder{}).Fails(rest.Conflict),
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

func (a API) controls(r *rest.Request) Controls { return Controls{DB: a.DB, By: r.Name()} }

func (a API) pause(r *rest.Request, n *TypeName) (answer contract.PauseState, err error) {
	order, version := contract.PauseOrder{What: contract.PauseAll}, int64(0)
	if err = cmp.Or(r.Permit(n.Type), r.Decode(&order)); err == nil {
		answer, version, err = a.controls(r).Pause(r.Context(), contract.Pause{Type: n.Type, What: order.What, Reason: order.Reason}, order.For)
	}
	if err == nil {
		answer.Warning = a.Doubt(n.Type)
		answer.Unconfirmed, err = a.confirm(r.Context(), version)
	}
	return answer, err
}

func (a API) resume(r *rest.Request, n *TypeName) (answer contract.Confirmation, err error) {
	version := int64(0)
	if err = r.Permit(n.Type); err == nil {
		version, err = a.controls(r).Resume(r.Context(), n.Type)
	}
	if err == nil {
		answer.Unconfirmed, err = a.confirm(r.Context(), version)
	}
	return answer, err
}

// find returns what a call means: the worker with a name, or a session of this dispatcher.
func (a API) find(name string) contract.Drain {
	id, err := strconv.ParseInt(name, 10, 64)
	if worker, process := a.Session(id); err == nil && worker != "" && !slices.Contains(a.Workers(), name) {
		return contract.Drain{Worker: worker, Process: process}
	}
	return contract.Drain{Worker: name}
}

// drain refuses a worker that no dispatcher has, after all have said so.
func (a API) drain(r *rest.Request, n *WorkerName) (answer contract.DrainState, err error) {
	var order contract.DrainOrder
	if err = cmp.Or(r.Decode(&order), rest.PermitTypes(r, order.Types, len(order.Types) == 0)); err != nil {
		return answer, err
	}
	d := a.find(n.Worker)
	d.Types, d.Reason = order.Types, order.Reason
	offered, err := a.offered(r.Context())
	if err != nil {
		return answer, err
	}
	drained, version, err := a.controls(r).Drain(r.Context(), d)
	if err == nil {
		drained.Unconfirmed, err = a.confirm(r.Context(), version)
	}
	var left []string
	if err == nil {
		left, err = a.offered(r.Context())
	}
	var states []contract.DrainState
	if err == nil {
		states, err = a.states(r.Context(), d.Worker)
	}
	if err != nil {
		return answer, err
	}
	for _, s := range states {
		if s.Worker == d.Worker && s.Process == d.Process {
			drained.Dispatchers, drained.Running = s.Dispatchers, s.Running
		}
	}
	drained.Uncovered = slices.DeleteFunc(offered, func(typ string) bool { return slices.Contains(left, typ) })
	if drained.Dispatchers+len(drained.Unconfirmed) == 0 && drained.Former == "" {
		names := slices.Compact(slices.Sorted(slices.Values(a.Workers())))
		_, err = a.controls(r).Undrain(r.Context(), d.Worker, d.Process)
		err = cmp.Or(err, error(rest.NotFound.Of(fmt.Sprintf("no worker %q is connected; connected are: %s", n.Worker,
			cmp.Or(strings.Join(names[:min(len(names), mostNames)], ", "), "none")))))
	}
	return drained, err
}

// mostNames bounds the names in an error.
const mostNames = 20

func (a API) undrain(r *rest.Request, n *WorkerName) (answer contract.Confirmation, err error) {
	d, version := a.find(n.Worker), int64(0)
	if err = r.PermitAll(); err == nil {
		version, err = a.controls(r).Undrain(r.Context(), d.Worker, d.Process)
	}
	if err == nil {
		answer.Unconfirmed, err = a.confirm(r.Context(), version)
	}
	return answer, err
}

func (a API) drains(r *rest.Request, q *rest.Names) (p contract.Page[contract.DrainState], err error) {
	all, err := a.states(r.Context(), q.Prefix)
	if err != nil {
		return p, err
	}
	return rest.Cut(all, q.Query, func(d *contract.DrainState) string { return d.Worker + "/" + d.Process })
}

// Times of a confirmation.
const (
	confirmTime  = 2 * time.Second // a dispatcher that follows a change says so at once
	confirmPause = 20 * time.Millisecond
)

// confirm waits until all dispatchers have said that they follow a version. It returns the names of those that have not.
func (a API) confirm(ctx context.Context, version int64) (missing []string, err error) {
	look := time.NewTicker(confirmPause)
	defer look.Stop()
	for end := time.Now().Add(confirmTime); ; {
		missing, err = a.texts(ctx, `SELECT DISTINCT name FROM dispatcherd.dispatchers d WHERE `+alive+` AND controls < $1 ORDER BY 1`, version)
		if err != nil || len(missing) == 0 || time.Now().After(end) {
			return missing, err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return missing, ctx.Err()
		}
	}
}

// alive is true for dispatcher d unless it was declared lost or has left.
const alive = `d.lost_at IS NULL AND NOT d.leaving AND d.incarnation IS NOT NULL`

// texts reads texts.
func (a API) texts(ctx context.Context, sql string, args ...any) ([]string, error) {
	rows, _ := a.DB.Query(ctx, sql, args...) // the next line returns its error
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// offered reads the types for which dispatchers have slots.
func (a API) offered(ctx context.Context) ([]string, error) {
	return a.texts(ctx, `SELECT DISTINCT t.key FROM dispatcherd.dispatchers d, jsonb_each_text(d.capacity) t
		WHERE `+alive+` AND t.value::bigint > 0 ORDER BY 1`)
}

// states reads the drains of workers whose names begin with a prefix, with what dispatchers say about them.
func (a API) states(ctx context.Context, prefix string) ([]contract.DrainState, error) {
	return list[contract.DrainState](ctx, a.DB, `SELECT `+drainColumns+`, count(d.id)::int,
			coalesce(sum((d.drained ->> (w.worker || '/' || w.process))::int), 0)::int, ''
		FROM dispatcherd.drains w LEFT JOIN dispatcherd.dispatchers d ON `+alive+` AND d.drained ? (w.worker || '/' || w.process)
		WHERE starts_with(w.worker, $1) GROUP BY w.worker, w.process ORDER BY w.worker || '/' || w.process COLLATE "C"`, prefix)
}
