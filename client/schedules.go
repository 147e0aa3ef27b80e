package client

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// Types of schedules. docs/how-to/schedules.md explains them. [Schedules.Set] has an example.
type (
	// Schedule is a row of the table schedules. Its fields are the columns: Name, Kind, Spec, Every, TimeZone, Jitter, StartsAt,
	// EndsAt, Once, CatchUp, CatchUpMost, Paused, Type, Payload, Priority, MaxAttempts, TimeoutMS, ExpectedMS, Keys, Overlap; read only:
	// ID, Error, Version, Since, CreatedAt, Handled.
	Schedule = contract.Schedule
	// Tick is what became of an occasion of a schedule: Occasion, Outcome, MadeAt, PlannedAt, RunAt, Job, Missed, Reason;
	// of its job: Status, StartedAt, FinishedAt.
	Tick = contract.Tick
	// MadeTick is the outcome of a tick on request: Outcome, Job, Earlier.
	MadeTick = contract.MadeTick
	// Occasion is a future occasion of a cron schedule: At, Local, RunAt, Note.
	Occasion = contract.Occasion
	// Duration is a time.Duration that JSON writes as text.
	Duration = contract.Duration
)

// NewSchedule returns a schedule with the defaults of the table.
func NewSchedule() Schedule { return contract.NewSchedule() }

// Schedules provides the operations on schedules, over HTTP. The error is a *Problem, of type
// TypeNotFound if there is no such schedule, and TypeConflict if its state forbids the operation.
type Schedules struct{ c *Client }

// Schedules returns the operations on schedules.
func (c *Client) Schedules() Schedules { return Schedules{c} }

// one returns the path of a schedule.
func one(name, rest string) string { return "/v1/schedules/" + segment(name) + rest }

// List returns schedules without their payloads, in the order of their names. A page leaves out schedules of types that the caller
// may not use, so it may be short.
func (s Schedules) List(ctx context.Context, q Names) (Page[Schedule], error) {
	return page[Page[Schedule]](ctx, s.c, "/v1/schedules", q)
}

// Get returns a schedule.
func (s Schedules) Get(ctx context.Context, name string) (Schedule, error) {
	return Call[Schedule](ctx, s.c, http.MethodGet, one(name, ""), nil)
}

// Set creates the schedule, or replaces the schedule of that name. Begin with [NewSchedule] or with the
// result of Get. With the version of a result of Get, Set fails with TypeConflict if the schedule was edited or deleted
// after it was read. The other read-only values are not used.
func (s Schedules) Set(ctx context.Context, v Schedule) (created bool, err error) {
	v.Name = cmp.Or(v.Name, " ") // as in the path
	status, err := s.c.exchange(ctx, http.MethodPut, one(v.Name, ""), v, &v)
	return status == http.StatusCreated, err
}

// change sends a request without parameters.
func (s Schedules) change(ctx context.Context, method, name, rest string) error {
	_, err := Call[struct{}](ctx, s.c, method, one(name, rest), nil)
	return err
}

// Remove deletes a schedule. Its runs end normally.
func (s Schedules) Remove(ctx context.Context, name string) error {
	return s.change(ctx, http.MethodDelete, name, "")
}

// RemoveVersion is Remove for a result of Get with this version. It fails with TypeConflict if the schedule was edited or
// deleted after it was read.
func (s Schedules) RemoveVersion(ctx context.Context, name string, version int64) error {
	return s.change(ctx, http.MethodDelete, name, fmt.Sprintf("?version=%d", version))
}

// Pause pauses a schedule. No occasion is missed meanwhile.
func (s Schedules) Pause(ctx context.Context, name string) error {
	return s.change(ctx, http.MethodPost, name, "/pause")
}

// Resume ends a pause.
func (s Schedules) Resume(ctx context.Context, name string) error {
	return s.change(ctx, http.MethodPost, name, "/resume")
}

// Run makes a tick now. A second call with the same key makes none: the outcome is exists, with the outcome of the
// earlier tick. force ignores a pause and the overlap policy.
func (s Schedules) Run(ctx context.Context, name, key string, force bool) (MadeTick, error) {
	query := url.Values{"key": {key}, "force": {strconv.FormatBool(force)}}
	return Call[MadeTick](ctx, s.c, http.MethodPost, one(name, "/run?"+query.Encode()), nil)
}

// Backfill makes ticks for the past occasions of a cron schedule that have none, from an instant
// to another one, both inclusive, and counts the outcomes. It may be repeated after an error. The
// default of overlap is queue_all.
func (s Schedules) Backfill(ctx context.Context, name string, from, to time.Time, overlap string) (map[string]int, error) {
	return s.backfill(ctx, name, from, to, "overlap", overlap)
}

// CountBackfill counts the occasions that Backfill would make ticks for (new), and those that have one (exists).
func (s Schedules) CountBackfill(ctx context.Context, name string, from, to time.Time) (map[string]int, error) {
	return s.backfill(ctx, name, from, to, "dry_run", "true")
}

func (s Schedules) backfill(ctx context.Context, name string, from, to time.Time, option, value string) (map[string]int, error) {
	query := url.Values{"from": {from.Format(time.RFC3339Nano)}, "to": {to.Format(time.RFC3339Nano)}, option: {value}}
	answer, err := Call[struct{ Counts map[string]int }](ctx, s.c, http.MethodPost, one(name, "/backfill?"+query.Encode()), nil)
	return answer.Counts, err
}

// Next returns the next occasions of a cron schedule, at most 1,000.
func (s Schedules) Next(ctx context.Context, name string, n int) ([]Occasion, error) {
	p, err := page[Page[Occasion]](ctx, s.c, one(name, "/next"), Query{Limit: n})
	return p.Items, err
}

// Ticks returns ticks of a schedule, the newest first.
func (s Schedules) Ticks(ctx context.Context, name string, q Query) (Page[Tick], error) {
	return page[Page[Tick]](ctx, s.c, one(name, "/ticks"), q)
}
