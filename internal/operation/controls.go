package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/httpapi/rest"
)

// Errors of changes of controls.
var (
	ErrInvalidControl = rest.InvalidRequest.Refuses("invalid value")
	ErrNoControl      = rest.NotFound.Refuses("there is nothing to resume")
	ErrTooMany        = rest.Conflict.Refuses(fmt.Sprintf("there are %d rows already: resume some of them first", contract.MaxControls))
)

// Controls reads and changes what operators have set for types and workers.
type Controls struct {
	DB claim.DB
	By string // who makes the changes
}

// Read reads the controls. It reads the version first, so the rows contain at least all changes up to this version.
func (c Controls) Read(ctx context.Context) (all contract.Controls, err error) {
	ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer cancel()
	err = c.DB.QueryRow(ctx, `SELECT coalesce(max(controls), 0), clock_timestamp() FROM dispatcherd.controller`).Scan(&all.Version, &all.Clock)
	if err != nil {
		return all, err
	}
	rows, _ := c.DB.Query(ctx, `SELECT `+pauseColumns+` FROM dispatcherd.types WHERE `+paused+` ORDER BY type`)
	if all.Pauses, err = pgx.CollectRows(rows, pgx.RowToStructByPos[contract.Pause]); err != nil {
		return all, err
	}
	rows, _ = c.DB.Query(ctx, `SELECT `+drainColumns+` FROM dispatcherd.drains ORDER BY worker, process`)
	all.Drains, err = pgx.CollectRows(rows, pgx.RowToStructByPos[contract.Drain])
	return all, err
}

// Columns of contract.Pause and contract.Drain.
const (
	pauseColumns = `type, paused, paused_by, paused_at, paused_until, coalesce(pause_reason, '')`
	drainColumns = `worker, process, types, drained_by, drained_at, coalesce(reason, '')`
	// paused is true for a row of types that is paused now.
	paused = `paused IS NOT NULL AND (paused_until IS NULL OR paused_until > clock_timestamp())`
)

// change makes a change in a transaction that holds the row of the version, so that it has this version for all dispatchers. It returns
// the version. The change learns the time of Postgres.
func (c Controls) change(ctx context.Context, do func(tx pgx.Tx, now time.Time) error) (version int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, claim.DefaultTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, c.DB, func(tx pgx.Tx) error {
		var now time.Time
		err := tx.QueryRow(ctx, `INSERT INTO dispatcherd.controller DEFAULT VALUES ON CONFLICT (one) DO UPDATE
			SET controls = controller.controls + 1 RETURNING controls, clock_timestamp()`).Scan(&version, &now)
		if err == nil {
			err = do(tx, now)
		}
		if err == nil {
			_, err = tx.Exec(ctx, `SELECT pg_notify('dispatcherd', 'controls') WHERE dispatcherd.may_notify()`)
		}
		return err
	})
	return version, err
}

// pauseSQL pauses type $1, unless there are $7 other rows.
const pauseSQL = `
INSERT INTO dispatcherd.types (type, paused, paused_by, paused_at, paused_until, pause_reason)
SELECT $1::text, $2::text, coalesce(nullif($3::text, ''), session_user), $4::timestamptz, $5::timestamptz, nullif($6::text, '')
WHERE EXISTS (SELECT FROM dispatcherd.types WHERE type = $1::text) OR (SELECT count(*) FROM dispatcherd.types) < $7::bigint
ON CONFLICT (type) DO UPDATE SET (paused, paused_by, paused_at, paused_until, pause_reason)
	= ROW (excluded.paused, excluded.paused_by, excluded.paused_at, excluded.paused_until, excluded.pause_reason)
RETURNING ` + pauseColumns

// Pause pauses a type for a time, or until p.Until; with neither, until Resume. It completes p, and returns the pause that it replaces.
func (c Controls) Pause(ctx context.Context, p *contract.Pause, length *contract.Duration) (former *contract.Pause, version int64, err error) {
	p.What = cmp.Or(p.What, contract.PauseAll)
	err = cmp.Or(dispatcherd.CheckType(p.Type), checkReason(p.Reason))
	if !slices.Contains([]string{contract.PauseAll, contract.PauseQueued, contract.PauseRequests}, p.What) {
		err = fmt.Errorf("what %q: must be all, queued or requests", p.What)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrInvalidControl, err)
	}
	version, err = c.change(ctx, func(tx pgx.Tx, now time.Time) error {
		if length != nil {
			p.Until = new(now.Add(time.Duration(*length)))
		}
		if p.Until != nil && (!p.Until.After(now) || p.Until.Sub(now) > contract.MaxControlTime) {
			return fmt.Errorf("%w: a pause ends in at least 1 ms and at most %d days, not in %v: leave its end out to pause the type until it is "+
				"resumed", ErrInvalidControl, contract.MaxControlTime/(24*time.Hour), p.Until.Sub(now).Round(time.Millisecond))
		}
		before, err := tx.Query(ctx, `SELECT `+pauseColumns+` FROM dispatcherd.types WHERE `+paused+` AND type = $1::text`, p.Type)
		if err == nil {
			former, err = first[contract.Pause](before)
		}
		if err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, pauseSQL, p.Type, p.What, c.By, now, p.Until, p.Reason, contract.MaxControls)
		*p, err = one[contract.Pause](rows)
		return err
	})
	return former, version, err
}

// first collects the first row, or nil.
func first[T any](rows pgx.Rows) (*T, error) {
	list, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[T])
	if len(list) == 0 {
		return nil, err
	}
	return list[0], err
}

// one collects the only row of a change. Without one there are too many others.
func one[T any](rows pgx.Rows) (T, error) {
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[T])
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrTooMany
	}
	return row, err
}

// Resume ends the pause of a type.
func (c Controls) Resume(ctx context.Context, typ string) (version int64, err error) {
	return c.remove(ctx, fmt.Sprintf("type %q is not paused", typ), `UPDATE dispatcherd.types
		SET paused = NULL, paused_by = NULL, paused_at = NULL, paused_until = NULL, pause_reason = NULL WHERE type = $1::text AND `+paused, typ)
}

// remove makes a change that ends a control. Without one it says why.
func (c Controls) remove(ctx context.Context, why, sql string, args ...any) (version int64, err error) {
	return c.change(ctx, func(tx pgx.Tx, _ time.Time) error {
		tag, err := tx.Exec(ctx, sql, args...)
		if err == nil && tag.RowsAffected() == 0 {
			err = fmt.Errorf("%s: %w", why, ErrNoControl)
		}
		return err
	})
}

// drainSQL drains a worker, unless there are $6 other rows.
const drainSQL = `
INSERT INTO dispatcherd.drains (worker, process, types, drained_by, reason)
SELECT $1::text, $2::text, $3::text[], coalesce(nullif($4::text, ''), session_user), nullif($5::text, '')
WHERE EXISTS (SELECT FROM dispatcherd.drains WHERE worker = $1::text AND process = $2::text)
	OR (SELECT count(*) FROM dispatcherd.drains) < $6::bigint
ON CONFLICT (worker, process) DO UPDATE SET (types, drained_by, drained_at, reason)
	= ROW (excluded.types, excluded.drained_by, excluded.drained_at, excluded.reason)
RETURNING ` + drainColumns

// Drain drains a worker. It completes d, and returns the drain that it replaces.
func (c Controls) Drain(ctx context.Context, d *contract.Drain) (former *contract.Drain, version int64, err error) {
	err = checkReason(d.Reason)
	if n := len(d.Worker); n == 0 || n > dispatcherd.MaxWorkerLength {
		err = fmt.Errorf("the name of a worker has 1 to %d bytes, not %d", dispatcherd.MaxWorkerLength, n)
	}
	for _, typ := range d.Types {
		err = cmp.Or(err, dispatcherd.CheckType(typ))
	}
	if len(d.Types) == 0 {
		d.Types = nil
	}
	if len(d.Types) > dispatcherd.MaxSlotTypes {
		err = fmt.Errorf("%d types: name at most %d", len(d.Types), dispatcherd.MaxSlotTypes)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrInvalidControl, err)
	}
	slices.Sort(d.Types)
	version, err = c.change(ctx, func(tx pgx.Tx, _ time.Time) error {
		before, err := tx.Query(ctx, `SELECT `+drainColumns+` FROM dispatcherd.drains WHERE worker = $1 AND process = $2`, d.Worker, d.Process)
		if err == nil {
			former, err = first[contract.Drain](before)
		}
		if err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, drainSQL, d.Worker, d.Process, slices.Compact(d.Types), c.By, d.Reason, contract.MaxControls)
		*d, err = one[contract.Drain](rows)
		return err
	})
	return former, version, err
}

// Undrain lets a worker get jobs again: one process of it, or all that have been drained.
func (c Controls) Undrain(ctx context.Context, worker, process string) (version int64, err error) {
	return c.remove(ctx, fmt.Sprintf("worker %q is not drained", worker),
		`DELETE FROM dispatcherd.drains WHERE worker = $1 AND ($2::text = '' OR process = $2::text)`, worker, process)
}

func checkReason(reason string) error {
	if len(reason) > contract.MaxReason {
		return fmt.Errorf("the reason has %d bytes; at most %d are allowed", len(reason), contract.MaxReason)
	}
	return nil
}

// Following returns the service that reads the controls at the start and after each change, and when the clock of Postgres was set.
func Following(db claim.DB, apply func(contract.Controls)) background.Service {
	last := int64(-1)
	return background.Service{
		Name: "controls", Topics: contract.ControlsChanged, Rest: restTime,
		Step: func(ctx context.Context, now background.Now) (time.Duration, error) {
			all, err := Controls{DB: db}.Read(ctx)
			if err == nil && (all.Version != last || now.Moved != 0) {
				last = all.Version
				apply(all)
			}
			return noMore, err
		},
	}
}
