package operation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/dsn"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// Errors of changes of controls.
var (
	ErrNoControl = rest.NotFound.Refuses("there is nothing to resume")
	ErrTooMany   = rest.Conflict.Refuses(fmt.Sprintf("there are %d rows already: resume some of them first", contract.MaxControls))
)

// Controls reads and changes what operators have set for types and workers.
type Controls struct {
	DB claim.DB
	By string // who makes the changes; "" = the role of the session
}

// Columns of contract.Pause and contract.Drain. A control is named by one column or two.
const (
	pauseColumns = `type, coalesce(paused, ''), coalesce(paused_by, ''), coalesce(paused_at, now()), paused_until, coalesce(pause_reason, '')`
	retryColumns = `coalesce(max_attempts, 0)::int, coalesce(backoff, '')`
	drainColumns = `worker, process, types, drained_by, drained_at, coalesce(reason, '')`
	// paused is true for a row of types that is paused now.
	paused = `paused IS NOT NULL AND (paused_until IS NULL OR paused_until > clock_timestamp())`
)

// Read reads the controls. It reads the version first, so the rows contain at least all changes up to this version.
func (c Controls) Read(ctx context.Context) (all contract.Controls, err error) {
	ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer cancel()
	err = c.DB.QueryRow(ctx, `SELECT coalesce(max(controls), 0), clock_timestamp() FROM dispatcherd.controller`).Scan(&all.Version, &all.Clock)
	if err == nil {
		all.Drains, err = list[contract.Drain](ctx, c.DB, `SELECT `+drainColumns+` FROM dispatcherd.drains ORDER BY worker, process`)
	}
	if err == nil {
		all.Away, err = claim.Column[int32](ctx, c.DB,
			`SELECT id FROM dispatcherd.dispatchers d WHERE away_by IS NOT NULL AND `+claim.Alive+` ORDER BY id`)
	}
	if err != nil {
		return all, err
	}
	types, err := list[struct {
		contract.Pause
		contract.RetryPolicy

		Paused bool
	}](ctx, c.DB, `SELECT `+pauseColumns+`, `+retryColumns+`, `+paused+` FROM dispatcherd.types ORDER BY type`)
	all.Retries = map[string]contract.RetryPolicy{}
	for i := range types {
		t := &types[i]
		if t.Paused {
			all.Pauses = append(all.Pauses, t.Pause)
		}
		if t.RetryPolicy != (contract.RetryPolicy{}) {
			all.Retries[t.Type] = t.RetryPolicy
		}
	}
	return all, err
}

// list reads rows.
func list[T any](ctx context.Context, db claim.DB, sql string, args ...any) ([]T, error) {
	return claim.Rows(ctx, db, pgx.RowToStructByPos[T], sql, args...)
}

// named is the name of a type or worker.
type named struct{ Name string }

// change executes a statement that changes a control and returns it. The transaction holds the row of the version, so all changes are in
// the order of their versions. If the statement changes nothing, the error is none.
func change[T any](ctx context.Context, c Controls, none error, sql string, args ...any) (row T, version int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, c.DB, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `INSERT INTO dispatcherd.controller DEFAULT VALUES ON CONFLICT (one) DO UPDATE
			SET controls = controller.controls + 1 RETURNING controls`).Scan(&version)
		if err == nil { // rows that say nothing would count
			_, err = tx.Exec(ctx, `DELETE FROM dispatcherd.types WHERE (`+paused+`) IS NOT TRUE AND max_attempts IS NULL AND backoff IS NULL`)
		}
		if err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, sql, args...)
		row, err = pgx.CollectOneRow(rows, pgx.RowToStructByPos[T])
		switch rule := dsn.ErrorOf(err).ConstraintName; {
		case errors.Is(err, pgx.ErrNoRows):
			err = none
		case rule != "":
			err = rest.InvalidRequest.Refuses("refused: " + strings.ReplaceAll(rule, "_", " "))
		}
		if err == nil {
			_, err = tx.Exec(ctx, `SELECT pg_notify('dispatcherd', 'controls') WHERE dispatcherd.may_notify()`)
		}
		return err
	})
	return row, version, err
}

// pauseSQL pauses what $2 of type $1 for $5 microseconds, or until $4, unless there are $7 other rows; $3 is who, and $6 why. The last
// column is who had paused it before.
const pauseSQL = `
WITH former AS (
	SELECT paused_by FROM dispatcherd.types WHERE type = $1::text AND ` + paused + `
)
INSERT INTO dispatcherd.types (type, paused, paused_by, paused_at, paused_until, pause_reason)
SELECT $1::text, $2::text, coalesce(nullif($3::text, ''), session_user), t.now,
	coalesce($4::timestamptz, t.now + $5::bigint * interval '1 microsecond'), nullif($6::text, '')
FROM (SELECT clock_timestamp() AS now) t
WHERE EXISTS (SELECT FROM dispatcherd.types WHERE type = $1::text) OR (SELECT count(*) FROM dispatcherd.types) < $7::bigint
ON CONFLICT (type) DO UPDATE SET (paused, paused_by, paused_at, paused_until, pause_reason)
	= ROW (excluded.paused, excluded.paused_by, excluded.paused_at, excluded.paused_until, excluded.pause_reason)
RETURNING ` + pauseColumns + `, coalesce((SELECT paused_by FROM former), '')`

// Pause pauses a type until p.Until or for a time; with neither, until Resume. It replaces a former pause.
func (c Controls) Pause(ctx context.Context, p contract.Pause, length *contract.Duration) (contract.PauseState, int64, error) {
	var span *int64
	if length != nil {
		span = new(time.Duration(*length).Microseconds())
	}
	return change[contract.PauseState](ctx, c, ErrTooMany, pauseSQL, p.Type, p.What, c.By, p.Until, span, p.Reason, contract.MaxControls)
}

// SetRetries replaces the retry policy of a type.
func (c Controls) SetRetries(ctx context.Context, typ string, p contract.RetryPolicy) (s contract.RetryState, version int64, err error) {
	if p.Backoff != "" {
		_, err = timing.ParsePolicy(p.Backoff)
	}
	if p.MaxAttempts < 0 || p.MaxAttempts > math.MaxInt16 {
		err = fmt.Errorf("max_attempts is %d, must be 1 to %d, or left out", p.MaxAttempts, math.MaxInt16)
	}
	if err != nil {
		return s, 0, rest.InvalidRequest.Of(err.Error())
	}
	return change[contract.RetryState](ctx, c, ErrTooMany, `
		INSERT INTO dispatcherd.types (type, max_attempts, backoff) SELECT $1::text, nullif($2::int, 0), nullif($3::text, '')
		WHERE EXISTS (SELECT FROM dispatcherd.types WHERE type = $1::text) OR (SELECT count(*) FROM dispatcherd.types) < $4::bigint
		ON CONFLICT (type) DO UPDATE SET (max_attempts, backoff) = ROW (excluded.max_attempts, excluded.backoff)
		RETURNING `+retryColumns+`, type`, typ, p.MaxAttempts, p.Backoff, contract.MaxControls)
}

// Resume ends the pause of a type.
func (c Controls) Resume(ctx context.Context, typ string) (version int64, err error) {
	_, version, err = change[named](ctx, c, fmt.Errorf("type %q is not paused: %w", typ, ErrNoControl), `
		UPDATE dispatcherd.types SET paused = NULL, paused_by = NULL, paused_at = NULL, paused_until = NULL, pause_reason = NULL
		WHERE type = $1::text AND `+paused+` RETURNING type`, typ)
	return version, err
}

// drainSQL drains process $2 of worker $1, or types $3 of it, unless there are $6 other rows; $4 is who, and $5 why. The last columns are
// not used, and who had drained it before.
const drainSQL = `
WITH former AS (
	SELECT drained_by FROM dispatcherd.drains WHERE worker = $1::text AND process = $2::text
)
INSERT INTO dispatcherd.drains (worker, process, types, drained_by, reason)
SELECT $1::text, $2::text, nullif($3::text[], '{}'), coalesce(nullif($4::text, ''), session_user), nullif($5::text, '')
WHERE EXISTS (SELECT FROM former) OR (SELECT count(*) FROM dispatcherd.drains) < $6::bigint
ON CONFLICT (worker, process) DO UPDATE SET (types, drained_by, drained_at, reason, gone)
	= ROW (excluded.types, excluded.drained_by, excluded.drained_at, excluded.reason, excluded.gone)
RETURNING ` + drainColumns + `, 0, 0, coalesce((SELECT drained_by FROM former), '')`

// Drain drains a worker. It replaces a former drain.
func (c Controls) Drain(ctx context.Context, d contract.Drain) (contract.DrainState, int64, error) {
	if len(d.Types) > contract.MaxDrainedTypes {
		return contract.DrainState{}, 0, rest.InvalidRequest.Of(fmt.Sprintf(
			"%d types are given, at most %d are possible: drain the worker without types", len(d.Types), contract.MaxDrainedTypes))
	}
	for _, typ := range d.Types {
		if err := dispatcherd.CheckType(typ); err != nil {
			return contract.DrainState{}, 0, rest.InvalidRequest.Of(rest.Invalid("types", typ, err.Error()))
		}
	}
	return change[contract.DrainState](ctx, c, ErrTooMany, drainSQL, d.Worker, d.Process, d.Types, c.By, d.Reason, contract.MaxControls)
}

// Undrain lets a worker get jobs again: one process of it, or all that have been drained.
func (c Controls) Undrain(ctx context.Context, worker, process string) (version int64, err error) {
	_, version, err = change[named](ctx, c, fmt.Errorf("worker %q is not drained: %w", worker, ErrNoControl),
		`DELETE FROM dispatcherd.drains WHERE worker = $1::text AND ($2::text = '' OR process = $2::text) RETURNING worker`, worker, process)
	return version, err
}

// Following returns the service that reads the controls at the start, after each change, when a pause ends, and when the clock of Postgres
// was set.
func Following(db claim.DB, apply func(contract.Controls)) background.Service {
	return background.Service{
		Name: "controls", Topics: contract.ControlsChanged, Rest: restTime,
		Step: func(ctx context.Context, _ background.Now) (wait time.Duration, err error) {
			all, err := Controls{DB: db}.Read(ctx)
			if err != nil {
				return 0, err
			}
			apply(all)
			wait = noMore
			for _, p := range all.Pauses {
				if p.Until != nil {
					wait = min(wait, p.Until.Sub(all.Clock)+time.Millisecond)
				}
			}
			return wait, nil
		},
	}
}

// A drain ends when the controller has looked goneLooks times, each goneLook after the last time, and no dispatcher has had the worker.
// While Postgres does not answer, it does not look.
const (
	goneLook  = 30 * time.Second
	goneLooks = 10
)

// connected is true for drain w if a dispatcher has the worker.
const connected = `EXISTS (SELECT FROM dispatcherd.dispatchers d WHERE d.lost_at IS NULL AND d.drained ? (w.worker || '/' || w.process))`

// Forgetting returns the service of the controller that ends the drains of workers without a process.
func Forgetting(db claim.DB) background.Service {
	return background.Service{Name: "drains", Controller: true, Step: func(ctx context.Context, _ background.Now) (time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
		defer cancel()
		looked, err := db.Exec(ctx, `UPDATE dispatcherd.drains w SET gone = CASE WHEN `+connected+` THEN 0 ELSE w.gone + 1 END
			WHERE w.gone > 0 OR NOT `+connected)
		if err == nil && looked.RowsAffected() > 0 {
			_, _, err = change[named](ctx, Controls{DB: db}, ErrNoControl,
				`DELETE FROM dispatcherd.drains WHERE gone > $1::int RETURNING worker`, goneLooks)
		}
		if errors.Is(err, ErrNoControl) { // each of them may come back
			err = nil
		}
		return goneLook, err
	}}
}
