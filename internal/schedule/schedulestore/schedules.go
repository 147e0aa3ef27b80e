package schedulestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
	"github.com/jackc/pgx/v5"
)

// ErrNotFound says that no schedule has that name.
var ErrNotFound = rest.NotFound.Refuses("no such schedule: 'dispatcherd schedule list' shows all schedules")

// ErrEdited says that a schedule was created, edited or deleted after it was read.
var ErrEdited = rest.Conflict.Refuses("it was created, edited or deleted after it was read: read it again and repeat the change")

// ErrFull says that the plan would not contain a further schedule.
var ErrFull = rest.Conflict.Refuses(fmt.Sprintf(
	"there are %d schedules, and no more can run: remove one first, for example with 'dispatcherd schedule rm old'",
	schedule.MaxSchedules,
))

// ErrInvalid wraps the errors of values that no schedule can have.
var ErrInvalid = rest.InvalidRequest.Refuses("invalid schedule")

// Schedules provides the operations of users and operators on the table schedules.
type Schedules struct {
	DB   claim.DB
	Most int // schedules that Set creates; 0 = schedule.MaxSchedules
}

// columns are the columns of contract.Schedule, by name, of schedule s.
const columns = planColumns + `, s.payload::text AS payload, ` + jobColumns

// jobColumns are those of them that are not in planColumns, without the payload.
const jobColumns = `s.type, s.priority, s.max_attempts, s.timeout_ms, s.expected_ms, coalesce(s.keys, '') AS keys, s.overlap, s.created_at,
	clock_timestamp() AS read_at, CASE WHEN s.kind = 'cron' THEN ` + handled + ` END AS handled`

// List returns schedules whose names begin with a prefix, in the order of their names, from the first one after a name, without
// their payloads, because a page of payloads would not be bounded.
func (s Schedules) List(ctx context.Context, prefix, after string, limit int) ([]contract.Schedule, error) {
	return claim.List[contract.Schedule](ctx, s.DB, `SELECT `+planColumns+`, NULL::text AS payload, `+jobColumns+` FROM dispatcherd.schedules s
		WHERE s.name > $1 AND starts_with(s.name, $2) ORDER BY s.name LIMIT $3`, after, prefix, limit)
}

// Get returns a schedule.
func (s Schedules) Get(ctx context.Context, name string) (contract.Schedule, error) {
	rows, _ := s.DB.Query(ctx, `SELECT `+columns+` FROM dispatcherd.schedules s WHERE s.name = $1`, name)
	found, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[contract.Schedule])
	return found, named(name, err)
}

// named adds the name of the schedule to an error.
func named(name string, err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		err = fmt.Errorf("schedule %q: %w", name, err)
	}
	return err
}

// settable are the columns that Set writes besides the name, and their values.
const (
	settable = `kind, spec, every, time_zone, jitter, starts_at, ends_at, once, type, payload, priority, max_attempts, timeout_ms, overlap,
	catch_up, catch_up_most, paused, keys, expected_ms`
	setValues = `$2, nullif($3, ''), nullif($4::bigint, 0) * interval '1 microsecond', $5, $6::bigint * interval '1 microsecond', $7, $8,
	nullif($9, ''), $10, $11::text::jsonb, $12, $13, $14, $15, $16::bigint * interval '1 microsecond', $17, $18, nullif($20, ''), $21`
)

// setSQL inserts a schedule, or changes the one with its name unless $19 forbids it. editSQL changes the schedule if it
// has version $19. It never inserts: the schedule may be deleted while the statement waits for its lock. The results
// say whether the schedule was created. There is none if nothing was changed.
const (
	setSQL = `INSERT INTO dispatcherd.schedules (name, ` + settable + `) VALUES ($1, ` + setValues + `)
	ON CONFLICT (name) DO UPDATE SET (` + settable + `) = ROW (` + setValues + `) WHERE $19::bigint = 0 RETURNING xmax = 0`
	editSQL = `UPDATE dispatcherd.schedules SET (` + settable + `) = ROW (` + setValues + `) WHERE name = $1 AND version = $19 RETURNING false`
)

// Set creates the schedule, or changes the schedule of that name, and reports whether it was
// created. It rejects what the plan would reject. It changes nothing and returns ErrEdited unless the
// schedule has the version of v: 0 stands for any version or none, contract.NoVersion for none. The other
// read-only values are not used.
func (s Schedules) Set(ctx context.Context, v contract.Schedule) (created bool, err error) {
	v = v.WithDefaults()
	if err := schedule.Check(&v); err != nil {
		return false, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	micros := func(d contract.Duration) int64 { return time.Duration(d).Microseconds() }
	sql := setSQL
	if v.Version > 0 {
		sql = editSQL
	} else if err := s.checkRoom(ctx, v.Name); err != nil {
		return false, named(v.Name, err)
	}
	err = s.DB.QueryRow(
		ctx,
		sql,
		v.Name,
		v.Kind,
		v.Spec,
		micros(v.Every),
		v.TimeZone,
		micros(v.Jitter),
		v.StartsAt,
		v.EndsAt,
		v.Once,
		v.Type,
		string(v.Payload),
		v.Priority,
		v.MaxAttempts,
		v.TimeoutMS,
		v.Overlap,
		micros(v.CatchUp),
		v.CatchUpMost,
		v.Paused,
		v.Version,
		v.Keys,
		v.ExpectedMS,
	).Scan(&created)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrEdited
	}
	return created, named(v.Name, refused(&v, err))
}

// refused explains an error of Postgres about a value that passed the check: the names of time zones are those of another
// database, and only Postgres knows the size of a payload as it stores it.
func refused(v *contract.Schedule, err error) error {
	pg := dsn.ErrorOf(err)
	switch {
	case !strings.HasPrefix(pg.Code, "22") && pg.Code != "23514":
		return err
	case pg.Code == "22023":
		return fmt.Errorf(
			"%w: time_zone %q: Postgres does not know it: must be a name of its time zone database, for example %q",
			ErrInvalid,
			v.TimeZone,
			"Europe/Berlin",
		)
	}
	return fmt.Errorf("%w: payload: %s, for example {\"page\": 1}", ErrInvalid, claim.Refusal(pg))
}

// fullSQL says whether a schedule $1 would be one too many. The ids are different numbers from 1, so there are at
// most as many rows as the largest id. Usually this suffices. Otherwise the count reads at most $2 entries of an index.
const fullSQL = `SELECT CASE
	WHEN EXISTS (SELECT FROM dispatcherd.schedules WHERE name = $1) OR coalesce((SELECT max(id) FROM dispatcherd.schedules), 0) < $2 THEN false
	ELSE (SELECT count(*) FROM (SELECT FROM dispatcherd.schedules LIMIT $2) bounded) >= $2 END`

// checkRoom returns ErrFull if the schedule would be one too many. Concurrent calls may together create more; then the
// controller says so in the column error.
func (s Schedules) checkRoom(ctx context.Context, name string) error {
	var full bool
	err := s.DB.QueryRow(ctx, fullSQL, name, cmp.Or(s.Most, schedule.MaxSchedules)).Scan(&full)
	if err == nil && full {
		err = ErrFull
	}
	return err
}

// Remove deletes a schedule. Its runs end normally, and its queued ticks never run.
func (s Schedules) Remove(ctx context.Context, name string) error {
	return s.change(ctx, name, ErrNotFound, `DELETE FROM dispatcherd.schedules WHERE name = $1`)
}

// RemoveVersion is Remove for the schedule that has a version. It returns ErrEdited if there is none.
func (s Schedules) RemoveVersion(ctx context.Context, name string, version int64) error {
	return s.change(ctx, name, ErrEdited, `DELETE FROM dispatcherd.schedules WHERE name = $1 AND version = $2`, version)
}

// Pause pauses a schedule: no tick is made until it is resumed. Occasions in a pause are not missed.
func (s Schedules) Pause(ctx context.Context, name string) error {
	return s.change(ctx, name, ErrNotFound, `UPDATE dispatcherd.schedules SET paused = true WHERE name = $1`)
}

// Resume ends a pause.
func (s Schedules) Resume(ctx context.Context, name string) error {
	return s.change(ctx, name, ErrNotFound, `UPDATE dispatcherd.schedules SET paused = false WHERE name = $1`)
}

// change changes or deletes a schedule. It returns an error if there is none.
func (s Schedules) change(ctx context.Context, name string, none error, sql string, args ...any) error {
	tag, err := s.DB.Exec(ctx, sql, append([]any{name}, args...)...)
	if err == nil && tag.RowsAffected() == 0 {
		err = none
	}
	return named(name, err)
}

// CancelOrphans cancels runs of startup-worker schedules whose worker is gone. Such a row is
// pending, and no slot supports its type.
func (s Schedules) CancelOrphans(ctx context.Context) error {
	_, err := s.DB.Exec(ctx, cancelOrphansSQL)
	return err
}

// The runs of all schedules may be many, those of startup-worker schedules are few.
const (
	cancelOrphansSQL    = cancelRunsSQL + `dispatcherd.schedule_runs r` + orphanSQL
	cancelWorkerRunsSQL = cancelRunsSQL + `dispatcherd.schedules s
		JOIN dispatcherd.schedule_runs r ON r.schedule_id = s.id AND s.kind = 'startup-worker'` + orphanSQL

	cancelRunsSQL = `SELECT dispatcherd.end_idle(ARRAY[o.id], 'cancelled', 'schedule', NULL) FROM (SELECT j.id::bigint FROM `
	orphanSQL     = ` JOIN dispatcherd.jobs_live j ON j.id BETWEEN r.job_id AND r.job_id
	WHERE j.status = 'pending' AND j.type LIKE '` + contract.StartupType + `%' ORDER BY j.id + 0 LIMIT 1000 FOR UPDATE OF j SKIP LOCKED) o`
)

// renewSQL renews the ticks of occasions $1 of startup-worker schedules, at most once a day.
const renewSQL = `
UPDATE dispatcherd.ticks t SET renewed_at = now() FROM dispatcherd.schedules s CROSS JOIN unnest($1::text[]) AS w (occasion)
WHERE s.kind = 'startup-worker' AND t.schedule_id = s.id AND t.occasion = w.occasion
	AND coalesce(t.renewed_at, t.made_at) < now() - interval '1 day'`

// RenewWorkers says which workers are connected, by the occasions of their startup runs, so that
// retention keeps their ticks.
func (s Schedules) RenewWorkers(ctx context.Context, occasions []string) error {
	_, err := s.DB.Exec(ctx, renewSQL, occasions)
	return err
}

// noTick returns the error for an outcome of a tick on request that is none. unpause says what to do about a pause.
func (s Schedules) noTick(ctx context.Context, name, outcome, unpause string) error {
	why := "another session is editing it: try again after its transaction has ended"
	if outcome == contract.TickChanged {
		v, err := s.Get(ctx, name)
		if err != nil { // ErrNotFound: it was deleted meanwhile
			return err
		}
		why = "it was paused, edited or deleted at the same time: try again"
		if v.Paused {
			why = "it is paused: " + unpause
		}
	}
	return rest.Conflict.Refuses(fmt.Sprintf("schedule %q: %s", name, why))
}

// Run makes a tick now. The occasion is "now:" and the key, so a second call with the same key
// makes none: its outcome is contract.TickExists, with the job and outcome of the first call. The overlap
// policy and a pause apply unless force is set.
func (s Schedules) Run(ctx context.Context, name, key string, force bool) (contract.MadeTick, error) {
	if key == "" || len(key) > 128 {
		return contract.MadeTick{}, fmt.Errorf("%w: key %q: must have 1 to 128 bytes, for example %q", ErrInvalid, key, "2026-03-01 repeated")
	}
	id, err := s.id(ctx, name)
	if err != nil {
		return contract.MadeTick{}, err
	}
	tick := schedule.Tick{Schedule: id, Occasion: "now:" + key, RunAt: time.Unix(0, 0)}
	r := schedule.Request{Schedule: id, Ticks: []schedule.Tick{tick}, Forced: force}
	if force {
		r.Overlap = contract.AllowAll
	}
	made, err := s.makeNow(ctx, name, r)
	if err != nil {
		return contract.MadeTick{}, err
	}
	m := made[0]
	switch m.Outcome {
	case contract.TickChanged, contract.TickLocked:
		return m, s.noTick(ctx, name, m.Outcome, "resume it first, or run it with --force (over HTTP: force=true)")
	case contract.TickExists:
		err = s.DB.QueryRow(ctx, `SELECT coalesce(job_id, 0), outcome FROM dispatcherd.ticks WHERE schedule_id = $1 AND occasion = $2`,
			id, tick.Occasion).Scan(&m.Job, &m.Earlier)
	}
	return m, named(name, err)
}

// id returns the id of a schedule.
func (s Schedules) id(ctx context.Context, name string) (id int64, err error) {
	err = s.DB.QueryRow(ctx, `SELECT id FROM dispatcherd.schedules WHERE name = $1`, name).Scan(&id)
	return id, named(name, err)
}

// makeNow makes ticks of one schedule on request. The transaction needs the rights of a dispatcher.
func (s Schedules) makeNow(ctx context.Context, name string, r schedule.Request) ([]contract.MadeTick, error) {
	results, err := session{}.apply(ctx, s.DB, []schedule.Request{r})
	if err != nil {
		return nil, named(name, err)
	}
	return results[r.Schedule].made, nil
}

// MaxBackfill bounds the occasions of one Backfill.
const MaxBackfill = 10_000

// Backfill makes ticks for the occasions of a cron schedule from an instant to another one, both
// inclusive and not in the future. It omits occasions that have a tick. The result counts the
// outcomes, contract.TickExists included. overlap is the policy; empty = contract.QueueAll. After
// an error, Backfill may be repeated.
func (s Schedules) Backfill(ctx context.Context, name string, from, to time.Time, overlap string) (map[string]int, error) {
	overlap = cmp.Or(overlap, contract.QueueAll)
	if err := schedule.CheckOverlap(overlap); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	ticks, err := s.pastTicks(ctx, name, from, to)
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for some := range slices.Chunk(ticks, MaxTicks) {
		made, err := s.makeNow(ctx, name, schedule.Request{Schedule: some[0].Schedule, Ticks: some, Overlap: overlap})
		if err != nil {
			return counts, err
		}
		for _, m := range made {
			if m.Outcome == contract.TickChanged || m.Outcome == contract.TickLocked {
				return counts, s.noTick(ctx, name, m.Outcome, "resume it first")
			}
			counts[m.Outcome]++
		}
	}
	return counts, nil
}

// CountBackfill counts the occasions that Backfill would make ticks for, as contract.TickNew, and those that have one,
// as contract.TickExists.
func (s Schedules) CountBackfill(ctx context.Context, name string, from, to time.Time) (map[string]int, error) {
	ticks, err := s.pastTicks(ctx, name, from, to)
	if err != nil || len(ticks) == 0 {
		return nil, err
	}
	names := make([]string, len(ticks))
	for i := range ticks {
		names[i] = ticks[i].Occasion
	}
	var exist int
	err = s.DB.QueryRow(ctx, `SELECT count(*) FROM dispatcherd.ticks WHERE schedule_id = $1 AND occasion = ANY ($2)`,
		ticks[0].Schedule, names).Scan(&exist)
	counts := map[string]int{contract.TickExists: exist, contract.TickNew: len(ticks) - exist}
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n == 0 })
	return counts, err
}

// pastTicks returns a tick for each occasion of a cron schedule in a range of Backfill.
func (s Schedules) pastTicks(ctx context.Context, name string, from, to time.Time) (ticks []schedule.Tick, err error) {
	if to.Before(from) {
		return nil, fmt.Errorf("%w: from %s: must not be after to %s", ErrInvalid, from.Format(time.RFC3339), to.Format(time.RFC3339))
	}
	v, err := s.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	now, err := claim.Jobs{DB: s.DB}.Clock(ctx)
	if err != nil {
		return nil, err
	}
	if to.After(now) {
		return nil, fmt.Errorf("%w: schedule %q: to %s: must not be in the future", ErrInvalid, name, to.Format(time.RFC3339))
	}
	all, err := schedule.Occasions(&v.SchedulePlan, from.Add(-time.Nanosecond), to, MaxBackfill+1)
	switch {
	case err != nil:
		return nil, rest.Conflict.Refuses(err.Error())
	case len(all) > MaxBackfill:
		return nil, fmt.Errorf("%w: schedule %q: more than %d occasions: choose a shorter time", ErrInvalid, name, MaxBackfill)
	}
	for _, at := range all {
		ticks = append(ticks, schedule.Tick{Schedule: v.ID, Occasion: schedule.CronOccasion(at), RunAt: at})
	}
	return ticks, nil
}

// Ticks returns the newest ticks of a schedule, the newest first. before is the last tick of the
// previous page; the zero tick asks for the first page. Ticks of one statement may have been made
// at the same instant, so the occasion is part of the order.
func (s Schedules) Ticks(ctx context.Context, name string, before contract.Tick, limit int) ([]contract.Tick, error) {
	var at *time.Time
	if !before.MadeAt.IsZero() {
		at = &before.MadeAt
	}
	id, err := s.id(ctx, name)
	if err != nil {
		return nil, err
	}
	return claim.List[contract.Tick](ctx, s.DB, `
		SELECT t.occasion, t.outcome, t.made_at, t.planned_at, t.run_at, t.job_id AS job, coalesce(t.missed, 0) AS missed,
			coalesce(t.reason, '') AS reason,
			coalesce(j.status::text, '') AS status, j.started_at, j.finished_at
		FROM (SELECT * FROM dispatcherd.ticks t WHERE t.schedule_id = $1 AND (t.made_at, t.occasion) < (coalesce($2, 'infinity'::timestamptz), $3)
			ORDER BY t.made_at DESC, t.occasion DESC LIMIT $4) t
		LEFT JOIN dispatcherd.jobs j ON j.id = t.job_id ORDER BY t.made_at DESC, t.occasion DESC`, id, at, before.Occasion, limit)
}
