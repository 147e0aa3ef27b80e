// Package scheduleapi contains the HTTP API of schedules. Package api mounts its routes.
package scheduleapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/problem"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rowapi"
	"github.com/dispatcherd/dispatcherd/internal/jsontext"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
)

// Table provides the operations on schedules. The errors are problems, or errors that the host
// turns into problems.
type Table interface { //nolint:interfacebloat // one method for each operation
	// List returns schedules without payloads, in the order of their names, after a name.
	List(ctx context.Context, after string, limit int) ([]contract.Schedule, error)
	// Get returns a schedule.
	Get(ctx context.Context, name string) (contract.Schedule, error)
	// Set creates or changes a schedule.
	Set(ctx context.Context, s contract.Schedule) (created bool, err error)
	// Remove deletes a schedule.
	Remove(ctx context.Context, name string) error
	// RemoveVersion deletes a schedule that has a version.
	RemoveVersion(ctx context.Context, name string, version int64) error
	// Pause pauses a schedule.
	Pause(ctx context.Context, name string) error
	// Resume ends a pause.
	Resume(ctx context.Context, name string) error
	// Run makes a tick now, one for each key. force ignores a pause and the overlap policy.
	Run(ctx context.Context, name, key string, force bool) (contract.MadeTick, error)
	// Backfill makes ticks for past occasions, both ends included, and counts the outcomes, also
	// if it returns an error.
	Backfill(ctx context.Context, name string, from, to time.Time, overlap string) (map[string]int, error)
	// CountBackfill counts the occasions that Backfill would make ticks for, and those that have one.
	CountBackfill(ctx context.Context, name string, from, to time.Time) (map[string]int, error)
	// Ticks returns ticks, the newest first, from the first one before a tick.
	Ticks(ctx context.Context, name string, before contract.Tick, limit int) ([]contract.Tick, error)
}

// Host is the API that mounts the routes.
type Host interface {
	rowapi.Host
	// Permit returns a problem if the caller may not use jobs of a type.
	Permit(r *http.Request, typ string) error
	// Permitted returns which types the caller may use; nil = all.
	Permitted(r *http.Request) func(typ string) bool
}

// handler serves the routes.
type handler struct {
	table Table
	host  Host
}

// Routes returns the routes of schedules.
func Routes(table Table, host Host) []rowapi.Route {
	h := handler{table, host}
	const get, put, post, del = http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete
	const one = "/v1/schedules/{name}"
	return []rowapi.Route{
		rowapi.On(get, "/v1/schedules", []string{"after", "limit"}, h.list),
		rowapi.On(get, one, nil, h.get),
		rowapi.On(put, one, nil, h.put),
		rowapi.On(del, one, []string{"version"}, h.remove),
		rowapi.On(post, one+"/pause", nil, h.change(table.Pause)),
		rowapi.On(post, one+"/resume", nil, h.change(table.Resume)),
		rowapi.On(post, one+"/run", []string{"key", "force"}, h.run),
		rowapi.On(post, one+"/backfill", []string{"from", "to", "overlap", "dry_run"}, h.backfill),
		rowapi.On(get, one+"/next", []string{"count"}, h.next),
		rowapi.On(get, one+"/ticks", []string{"before", "limit"}, h.ticks),
	}
}

// SchedulePage answers GET /v1/schedules.
type SchedulePage struct {
	Schedules []contract.Schedule `json:"schedules"`
	Next      string              `json:"next_after,omitempty"` // the next page begins after this name; empty = there is none
}

// list leaves out schedules of types that the caller may not use, so a page may be short.
func (h handler) list(w http.ResponseWriter, r *http.Request) error {
	after, limit, err := rowapi.Page(r)
	if err != nil {
		return err
	}
	all, err := h.table.List(r.Context(), after, limit)
	if err != nil {
		return err
	}
	page := SchedulePage{Schedules: append([]contract.Schedule{}, all...)}
	if len(all) == limit {
		page.Next = all[limit-1].Name
	}
	if permitted := h.host.Permitted(r); permitted != nil {
		page.Schedules = slices.DeleteFunc(page.Schedules, func(s contract.Schedule) bool { return !permitted(s.Type) })
	}
	h.host.Answer(w, http.StatusOK, page)
	return nil
}

// permitted reads the schedule of the path. It returns a problem if the caller may not use its
// type. It does not see a change of the type before the operation that follows.
func (h handler) permitted(r *http.Request) (contract.Schedule, error) {
	s, err := h.table.Get(r.Context(), r.PathValue("name"))
	if err == nil {
		err = h.host.Permit(r, s.Type)
	}
	return s, err
}

func (h handler) get(w http.ResponseWriter, r *http.Request) error {
	s, err := h.permitted(r)
	if err != nil {
		return err
	}
	h.host.Answer(w, http.StatusOK, s)
	return nil
}

// rows are the rows of the table.
var rows = rowapi.Table{Row: "a schedule", Example: `{"spec": "30 2 * * *", "type": "pdf"}`, Name: "name",
	ReadOnly: []string{"id", "error", "since", "created_at", "handled"}}

// put creates the schedule of the path, or replaces its columns. An absent member means the default. With a
// version, it replaces only the schedule that has this version.
func (h handler) put(w http.ResponseWriter, r *http.Request) error {
	body, release, err := h.host.Body(w, r)
	if err != nil {
		return err
	}
	defer release()
	s, err := parse(body, r.PathValue("name"))
	if err != nil {
		return problem.InvalidRequest.Of(err.Error())
	}
	if err := h.host.Permit(r, s.Type); err != nil {
		return err
	}
	if _, err := h.permitted(r); err != nil && !isMissing(err) {
		return err
	}
	created, err := h.table.Set(r.Context(), s)
	if err == nil {
		s, err = h.table.Get(r.Context(), s.Name)
	}
	if err == nil {
		rowapi.Replaced(w, h.host, created, s)
	}
	return err
}

// isMissing reports whether there is no such schedule.
func isMissing(err error) bool {
	p, ok := errors.AsType[*problem.Problem](err)
	return ok && p.Status == http.StatusNotFound
}

// parse reads the columns of a schedule from a JSON object.
func parse(body []byte, name string) (contract.Schedule, error) {
	s := contract.NewSchedule()
	s.Name = name
	members, version, err := rows.Members(body, name, schedule.Columns())
	if err != nil {
		return s, err
	}
	s.Version = version
	for _, column := range schedule.Columns() {
		if value, given := members[column]; given {
			if err := schedule.Assign(&s, column, value); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// change returns the handler of an operation without parameters. The answer is the name.
func (h handler) change(do func(context.Context, string) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		s, err := h.permitted(r)
		if err == nil {
			err = do(r.Context(), s.Name)
		}
		if err != nil {
			return err
		}
		h.host.Answer(w, http.StatusOK, map[string]string{"name": s.Name})
		return nil
	}
}

// remove deletes a schedule, with a version only the one that has it.
func (h handler) remove(w http.ResponseWriter, r *http.Request) error {
	text := r.URL.Query().Get("version")
	if text == "" {
		return h.change(h.table.Remove)(w, r)
	}
	version, err := strconv.ParseInt(text, 10, 64)
	if err != nil || version < 1 {
		return problem.InvalidRequest.Of(
			fmt.Sprintf("version %q: must be the version that was read, for example 3, or absent for any", jsontext.Excerpt(text)),
		)
	}
	return h.change(func(ctx context.Context, name string) error { return h.table.RemoveVersion(ctx, name, version) })(w, r)
}

func (h handler) run(w http.ResponseWriter, r *http.Request) error {
	s, err := h.permitted(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	force, err := choiceIn(r, "force")
	if err != nil {
		return err
	}
	made, err := h.table.Run(r.Context(), s.Name, q.Get("key"), force)
	if err != nil {
		return err
	}
	h.host.Answer(w, http.StatusOK, made)
	return nil
}

// BackfillCounts answers a backfill: the number of occasions of each outcome.
type BackfillCounts struct {
	Counts map[string]int `json:"counts"`
}

func (h handler) backfill(w http.ResponseWriter, r *http.Request) error {
	s, err := h.permitted(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	var ends [2]time.Time
	for i, name := range []string{"from", "to"} {
		if ends[i], err = time.Parse(time.RFC3339Nano, q.Get(name)); err != nil {
			return problem.InvalidRequest.Of(
				fmt.Sprintf(
					"%s %q: must be a time in RFC 3339, for example 2026-01-31T08:00:00Z (%%2B for + in a URL)",
					name,
					jsontext.Excerpt(q.Get(name)),
				),
			)
		}
	}
	dryRun, err := choiceIn(r, "dry_run")
	if err != nil {
		return err
	}
	var counts map[string]int
	if dryRun {
		counts, err = h.table.CountBackfill(r.Context(), s.Name, ends[0], ends[1])
	} else {
		counts, err = h.table.Backfill(r.Context(), s.Name, ends[0], ends[1], q.Get("overlap"))
	}
	if p, ok := errors.AsType[*problem.Problem](err); ok && len(counts) > 0 {
		p.Detail += fmt.Sprintf("; before, %v", counts)
	}
	if err != nil {
		return err
	}
	h.host.Answer(w, http.StatusOK, BackfillCounts{counts})
	return nil
}

// OccasionList answers GET /v1/schedules/{name}/next.
type OccasionList struct {
	Next []contract.Occasion `json:"next"`
}

func (h handler) next(w http.ResponseWriter, r *http.Request) error {
	n, err := rowapi.Number(r, "count", 10)
	if err != nil {
		return err
	}
	s, err := h.permitted(r)
	if err != nil {
		return err
	}
	list, err := schedule.Upcoming(&s.SchedulePlan, s.After(time.Now()), n)
	if err != nil {
		return problem.Conflict.Of(err.Error())
	}
	h.host.Answer(w, http.StatusOK, OccasionList{append([]contract.Occasion{}, list...)})
	return nil
}

// TickPage answers GET /v1/schedules/{name}/ticks.
type TickPage struct {
	Ticks []contract.Tick `json:"ticks"`                 // the newest first
	Next  string          `json:"next_before,omitempty"` // the next page begins before this tick; empty = there is none
}

func (h handler) ticks(w http.ResponseWriter, r *http.Request) error {
	limit, err := rowapi.Number(r, "limit", rowapi.DefaultPage)
	if err != nil {
		return err
	}
	before, err := cursorIn(r.URL.Query().Get("before"))
	if err != nil {
		return err
	}
	s, err := h.permitted(r)
	if err != nil {
		return err
	}
	ticks, err := h.table.Ticks(r.Context(), s.Name, before, limit)
	if err != nil {
		return err
	}
	page := TickPage{Ticks: append([]contract.Tick{}, ticks...)}
	if len(ticks) == limit {
		page.Next = ticks[limit-1].Cursor()
	}
	h.host.Answer(w, http.StatusOK, page)
	return nil
}

// cursorIn reads the cursor of a tick.
func cursorIn(text string) (before contract.Tick, err error) {
	if text == "" {
		return before, nil
	}
	at, occasion, _ := strings.Cut(text, "/")
	before.Occasion = occasion
	if before.MadeAt, err = time.Parse(time.RFC3339Nano, at); err != nil {
		return before, problem.InvalidRequest.Of(
			fmt.Sprintf(
				"before %q: must be next_before of the previous page, for example 2026-01-31T08:00:00Z/2026-01-31T08:00:00Z",
				jsontext.Excerpt(text),
			),
		)
	}
	return before, nil
}

// choiceIn reads true or false from the query. Absent means false.
func choiceIn(r *http.Request, name string) (bool, error) {
	text := r.URL.Query().Get(name)
	choice, err := strconv.ParseBool(cmp.Or(text, "false"))
	if err != nil {
		return false, problem.InvalidRequest.Of(
			fmt.Sprintf("%s %q: must be true or false, for example %s=true", name, jsontext.Excerpt(text), name),
		)
	}
	return choice, nil
}
