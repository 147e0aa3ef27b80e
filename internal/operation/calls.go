package operation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

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
	Workers func() []string // names of the workers that are known to be connected
	// Doubt says that a type is unknown, and which known one is similar; "" = it is known.
	Doubt func(typ string) string
}

// Calls returns the calls.
func (a API) Calls() []rest.Route {
	const typ, worker = "/v1/types/{type}", "/v1/workers/{worker}"
	return []rest.Route{
		rest.On("pause-type", "POST "+typ+"/pause", "Pause a type: none of its jobs starts until it is resumed, or until the pause ends", a.pause).
			Takes(contract.PauseOrder{}).Fails(rest.Conflict),
		rest.On("resume-type", "POST "+typ+"/resume", "End the pause of a type", a.resume),
		rest.On("drain-worker", "POST "+worker+"/drain", "Drain a worker: it gets no jobs until it is resumed, or has no process left", a.drain).
			Takes(contract.DrainOrder{}).Fails(rest.Conflict),
		rest.On("resume-worker", "POST "+worker+"/resume", "Let a drained worker get jobs again", a.undrain),
		rest.On("list-drains", "GET /v1/drains", "List the drained workers by name", a.drains),
	}
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
	var order contract.PauseOrder
	if err = r.Permit(n.Type); err == nil {
		err = r.Decode(&order)
	}
	if err != nil {
		return answer, err
	}
	answer.Pause = contract.Pause{Type: n.Type, What: order.What, Reason: order.Reason}
	var version int64
	answer.Former, version, err = a.controls(r).Pause(r.Context(), &answer.Pause, order.For)
	if err == nil {
		answer.Warning = a.Doubt(n.Type)
		answer.Unconfirmed, err = a.confirm(r.Context(), version)
	}
	return answer, err
}

func (a API) resume(r *rest.Request, n *TypeName) (answer contract.Resumed, err error) {
	if err = r.Permit(n.Type); err != nil {
		return answer, err
	}
	version, err := a.controls(r).Resume(r.Context(), n.Type)
	answer.Name = n.Type
	if err == nil {
		answer.Unconfirmed, err = a.confirm(r.Context(), version)
	}
	return answer, err
}

// find returns what a call means: the worker with a name, or a session of this dispatcher.
func (a API) find(name string) contract.Drain {
	id, err := strconv.ParseInt(name, 10, 64)
	if err == nil && !slices.Contains(a.Workers(), name) {
		if worker, process := a.Session(id); worker != "" {
			return contract.Drain{Worker: worker, Process: process}
		}
	}
	return contract.Drain{Worker: name}
}

// drain refuses a worker that no dispatcher has, after all have said so.
func (a API) drain(r *rest.Request, n *WorkerName) (answer contract.DrainState, err error) {
	var order contract.DrainOrder
	if err = r.Decode(&order); err == nil {
		err = rest.PermitTypes(r, order.Types, len(order.Types) == 0)
	}
	if err != nil {
		return answer, err
	}
	d := a.find(n.Worker)
	d.Types, d.Reason = order.Types, order.Reason
	former, version, err := a.controls(r).Drain(r.Context(), &d)
	if err != nil {
		return answer, err
	}
	missing, err := a.confirm(r.Context(), version)
	if err != nil {
		return answer, err
	}
	all, err := a.states(r.Context(), d.Worker)
	if err != nil {
		return answer, err
	}
	answer.Drain = d
	if at := slices.IndexFunc(all, func(s contract.DrainState) bool { return s.Process == d.Process }); at >= 0 {
		answer = all[at]
	}
	answer.Former, answer.Unconfirmed = former, missing
	if answer.Sessions == 0 && len(missing) == 0 && former == nil {
		if _, err = a.controls(r).Undrain(r.Context(), d.Worker, d.Process); err == nil {
			err = rest.NotFound.Of(fmt.Sprintf("no worker %q is connected; connected are: %s", n.Worker, a.names()))
		}
	}
	return answer, err
}

// mostNames bounds the names in an error.
const mostNames = 20

// names lists workers for an error.
func (a API) names() string {
	names := slices.Compact(slices.Sorted(slices.Values(a.Workers())))
	if len(names) == 0 {
		return "none"
	}
	text := strings.Join(names[:min(len(names), mostNames)], ", ")
	if more := len(names) - mostNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (a API) undrain(r *rest.Request, n *WorkerName) (answer contract.Resumed, err error) {
	if err = r.PermitAll(); err != nil {
		return answer, err
	}
	d := a.find(n.Worker)
	version, err := a.controls(r).Undrain(r.Context(), d.Worker, d.Process)
	answer.Name = d.Worker
	if err == nil {
		answer.Unconfirmed, err = a.confirm(r.Context(), version)
	}
	return answer, err
}

func (a API) drains(r *rest.Request, q *rest.Query) (p contract.Page[contract.DrainState], err error) {
	all, err := a.states(r.Context(), "")
	if err != nil {
		return p, err
	}
	return rest.Cut(all, *q, func(d *contract.DrainState) string { return d.Worker + " " + d.Process })
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
		rows, _ := a.DB.Query(ctx, `SELECT DISTINCT name FROM dispatcherd.dispatchers d WHERE `+alive+` AND controls < $1 ORDER BY 1`, version)
		missing, err = pgx.CollectRows(rows, pgx.RowTo[string])
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

// statesSQL reads the drains of worker $1, or of all workers, with what dispatchers say about them. A type is uncovered if no dispatcher
// has slots for it, or only says so because its last heartbeat counted the slots of the worker.
const statesSQL = `
WITH said AS MATERIALIZED (
	SELECT d.id, r.* FROM dispatcherd.dispatchers d, jsonb_to_recordset(d.drained)
		AS r (worker text, process text, sessions int, running int, bare jsonb)
	WHERE ` + alive + ` AND ($1::text = '' OR r.worker = $1::text)
)
SELECT ` + drainColumns + `, coalesce(s.sessions, 0)::int, coalesce(s.running, 0)::int, ARRAY (
	SELECT DISTINCT t FROM said u, jsonb_array_elements_text(u.bare) t WHERE u.worker = w.worker AND coalesce(u.process, '') = w.process
		AND NOT EXISTS (SELECT FROM dispatcherd.dispatchers d WHERE ` + alive + ` AND (d.capacity ->> t)::bigint > 0
			AND NOT EXISTS (SELECT FROM said b WHERE b.id = d.id AND b.worker = w.worker AND b.bare ? t)) ORDER BY t)
FROM (SELECT * FROM dispatcherd.drains WHERE $1::text = '' OR worker = $1::text) w LEFT JOIN LATERAL (
	SELECT sum(sessions) AS sessions, sum(running) AS running FROM said u WHERE u.worker = w.worker AND coalesce(u.process, '') = w.process
) s ON true ORDER BY worker, process`

// states reads the drains of a worker, or of all.
func (a API) states(ctx context.Context, worker string) ([]contract.DrainState, error) {
	rows, _ := a.DB.Query(ctx, statesSQL, worker)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s contract.DrainState, err error) {
		d := &s.Drain
		err = row.Scan(&d.Worker, &d.Process, &d.Types, &d.By, &d.At, &d.Reason, &s.Sessions, &s.Running, &s.Uncovered)
		return s, err
	})
}

// goneTime is how long no dispatcher must have had a drained worker until the drain ends. A worker that lives connects again before.
const goneTime = 5 * time.Minute

// goneSQL reads the drained workers that no dispatcher has.
const goneSQL = `
SELECT w.worker, w.process, w.drained_at FROM dispatcherd.drains w WHERE NOT EXISTS (
	SELECT FROM dispatcherd.dispatchers d WHERE d.lost_at IS NULL AND d.drained
		@> jsonb_build_array(jsonb_strip_nulls(jsonb_build_object('worker', w.worker, 'process', nullif(w.process, '')))))`

// goneWorker is a drained worker that no dispatcher has.
type goneWorker struct {
	Worker, Process string
	At              time.Time
}

// Forgetting returns the service of the controller that ends the drains of workers without a process. It measures the time for which a
// worker is gone by its own clock, and starts again after a failure, so an outage of Postgres ends no drain.
func Forgetting(db claim.DB) background.Service {
	since := map[goneWorker]time.Time{}
	reset := func() { clear(since) }
	return background.Service{
		Name: "drains", Controller: true, Topics: contract.ControlsChanged, Rest: restTime, Reset: reset,
		Step: func(ctx context.Context, now background.Now) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
			defer cancel()
			rows, _ := db.Query(ctx, goneSQL)
			gone, err := pgx.CollectRows(rows, pgx.RowToStructByPos[goneWorker])
			if err != nil {
				reset()
				return 0, err
			}
			maps.DeleteFunc(since, func(w goneWorker, _ time.Time) bool { return !slices.Contains(gone, w) })
			for _, w := range gone {
				if since[w].IsZero() {
					since[w] = now.At
				}
				if now.At.Sub(since[w]) < goneTime {
					continue
				}
				if _, err := (Controls{DB: db}).Undrain(ctx, w.Worker, w.Process); err != nil && !errors.Is(err, ErrNoControl) {
					return 0, err
				}
			}
			return goneTime / 10, nil
		},
	}
}
