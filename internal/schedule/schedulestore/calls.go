package schedulestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
)

// Calls returns the HTTP calls of schedules. warn says why jobs cannot run.
func (s Schedules) Calls(warn func(context.Context, ...contract.Needs) []string) []rest.Route {
	const one = "/v1/schedules/{name}"
	return []rest.Route{
		rest.On("list-schedules", "GET /v1/schedules", "List the schedules by name, without their payloads", s.page),
		rest.On("get-schedule", "GET "+one, "Read a schedule", s.get).Revealing(),
		rest.On("set-schedule", "PUT "+one, "Create a schedule, or replace its columns",
			func(r *rest.Request, n *Name) (contract.Schedule, error) {
				v, err := s.put(r, n)
				if err == nil {
					v.Warnings = warn(r.Context(), contract.Needs{Type: v.Type, Keys: v.Keys})
				}
				return v, err
			}).Takes(contract.Schedule{}).
			Answered(http.StatusOK, "It was changed.").Answered(http.StatusCreated, "It was created.").Fails(rest.Conflict),
		rest.On("remove-schedule", "DELETE "+one, "Delete a schedule; its runs end normally", s.delete).Fails(rest.Conflict),
		rest.On("pause-schedule", "POST "+one+"/pause", "Pause a schedule", s.operation(s.Pause)),
		rest.On("resume-schedule", "POST "+one+"/resume", "End a pause", s.operation(s.Resume)),
		rest.On("run-schedule", "POST "+one+"/run", "Make a tick now", s.run).Fails(rest.Conflict),
		rest.On("backfill-schedule", "POST "+one+"/backfill", "Make ticks for past occasions that have none", s.backfill).Fails(rest.Conflict),
		rest.On("list-occasions", "GET "+one+"/next", "List the next occasions of a cron schedule", s.next).Fails(rest.Conflict),
		rest.On("list-ticks", "GET "+one+"/ticks", "List the ticks of a schedule, the newest first", s.ticks),
	}
}

// Name is the name of a schedule.
type Name struct {
	Name string `param:"name" json:"name"` // Name of the schedule.
}

// permitted reads a schedule. It returns a problem if the caller may not use its type. It does not see a change of the type before
// the operation that follows.
func (s Schedules) permitted(r *rest.Request, n Name) (contract.Schedule, error) {
	v, err := s.Get(r.Context(), n.Name)
	if err == nil {
		err = r.Permit(v.Type)
	}
	return v, err
}

// page leaves out schedules of types that the caller may not use, so a page may be short.
func (s Schedules) page(r *rest.Request, q *rest.Names) (p contract.Page[contract.Schedule], err error) {
	all, err := s.List(r.Context(), q.Prefix, string(q.Cursor), q.Limit+1)
	p = rest.PageOf(all, q.Limit, func(v *contract.Schedule) any { return v.Name })
	if permitted := r.Permitted(); permitted != nil {
		p.Items = slices.DeleteFunc(p.Items, func(v contract.Schedule) bool { return !permitted(v.Type) })
	}
	return p, err
}

func (s Schedules) get(r *rest.Request, n *Name) (contract.Schedule, error) {
	return s.permitted(r, *n)
}

// put takes the default for an absent member. With a version, it replaces only the schedule that has this version.
func (s Schedules) put(r *rest.Request, n *Name) (v contract.Schedule, err error) {
	v = contract.NewSchedule()
	if err := r.Read(func(text []byte) error { return decode(text, &v) }); err != nil {
		return v, err
	}
	if err := rest.CheckRow("name", n.Name, &v.Name, v.Version); err != nil {
		return v, err
	}
	if err := r.Permit(v.Type); err != nil {
		return v, err
	}
	if _, err := s.permitted(r, *n); err != nil && !errors.Is(err, ErrNotFound) {
		return v, err
	}
	created, err := s.Set(r.Context(), v)
	if created {
		r.SetStatus(http.StatusCreated)
	}
	if err == nil {
		v, err = s.Get(r.Context(), v.Name)
	}
	return v, err
}

// decode reads a schedule. The errors of columns name the rule and an example.
func decode(text []byte, v *contract.Schedule) error {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(text, &members) // rest.Decode explains the error
	for _, column := range schedule.Columns() {
		if value, given := members[column]; given {
			if err := schedule.Assign(v, column, value); err != nil {
				return rest.InvalidRequest.Of(err.Error())
			}
		}
	}
	return rest.Decode(text, v)
}

// operation returns the handler of an operation. The answer is the name.
func (s Schedules) operation(do func(context.Context, string) error) func(*rest.Request, *Name) (Name, error) {
	return func(r *rest.Request, n *Name) (Name, error) {
		_, err := s.permitted(r, *n)
		if err == nil {
			err = do(r.Context(), n.Name)
		}
		return *n, err
	}
}

// removal selects the schedule to be deleted.
type removal struct {
	Name

	Version int64 `param:"version" minimum:"1"` // Delete the schedule only if it has this version, as it was read.
}

func (s Schedules) delete(r *rest.Request, q *removal) (Name, error) {
	return s.operation(func(ctx context.Context, name string) error {
		if q.Version > 0 {
			return s.RemoveVersion(ctx, name, q.Version)
		}
		return s.Remove(ctx, name)
	})(r, &q.Name)
}

// tickNow describes a tick on request.
type tickNow struct {
	Name

	Key   string `param:"key"`   // A second call with this key makes no tick.
	Force bool   `param:"force"` // Ignore a pause and the overlap policy.
}

func (s Schedules) run(r *rest.Request, q *tickNow) (made contract.MadeTick, err error) {
	if _, err = s.permitted(r, q.Name); err != nil {
		return made, err
	}
	return s.Run(r.Context(), q.Name.Name, q.Key, q.Force)
}

// past selects the occasions of a backfill.
type past struct {
	Name

	From    time.Time `param:"from"`    // First instant.
	To      time.Time `param:"to"`      // Last instant.
	Overlap string    `param:"overlap"` // Overlap policy; absent: queue_all.
	DryRun  bool      `param:"dry_run"` // Make no ticks, and only count the occasions without one (new) and with one (exists).
}

// Backfilled answers a backfill.
type Backfilled struct {
	Counts map[string]int `json:"counts"` // Number of occasions of each outcome.
}

func (s Schedules) backfill(r *rest.Request, q *past) (b Backfilled, err error) {
	if _, err := s.permitted(r, q.Name); err != nil {
		return b, err
	}
	if q.From.IsZero() || q.To.IsZero() {
		return b, rest.InvalidRequest.Of("from and to are needed, for example from=2026-01-31T08:00:00Z")
	}
	if q.DryRun {
		b.Counts, err = s.CountBackfill(r.Context(), q.Name.Name, q.From, q.To)
		return b, err
	}
	b.Counts, err = s.Backfill(r.Context(), q.Name.Name, q.From, q.To, q.Overlap)
	if err != nil && len(b.Counts) > 0 {
		err = fmt.Errorf("%w; before, %v", err, b.Counts)
	}
	return b, err
}

// future selects occasions of a schedule.
type future struct {
	Name

	Limit int `param:"limit" default:"10" minimum:"1" maximum:"1000"` // Number of occasions.
}

func (s Schedules) next(r *rest.Request, q *future) (p contract.Page[contract.Occasion], err error) {
	v, err := s.permitted(r, q.Name)
	if err != nil {
		return p, err
	}
	list, err := schedule.Upcoming(&v.SchedulePlan, v.After(), q.Limit)
	if err != nil {
		return p, rest.Conflict.Of(err.Error())
	}
	return rest.PageOf(list, q.Limit, nil), nil
}

// history selects ticks of a schedule.
type history struct {
	Name
	rest.Query
}

func (s Schedules) ticks(r *rest.Request, q *history) (p contract.Page[contract.Tick], err error) {
	var before contract.Tick
	at, occasion, _ := strings.Cut(string(q.Cursor), "/")
	if before.Occasion = occasion; at != "" {
		if before.MadeAt, err = time.Parse(time.RFC3339Nano, at); err != nil {
			return p, rest.ErrCursor
		}
	}
	if _, err = s.permitted(r, q.Name); err != nil {
		return p, err
	}
	list, err := s.Ticks(r.Context(), q.Name.Name, before, q.Limit+1)
	return rest.PageOf(list, q.Limit, func(t *contract.Tick) any {
		return t.MadeAt.UTC().Format(time.RFC3339Nano) + "/" + t.Occasion
	}), err
}
