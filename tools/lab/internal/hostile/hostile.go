// Package hostile measures a tenant beside loads of other tenants that must not delay it.
package hostile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dispatcherd/dispatcherd/tools/lab/internal/figure"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/rig"
	"github.com/dispatcherd/dispatcherd/tools/lab/internal/stats"
)

var errIdle = errors.New("the tenant was stopped")

// A tenant works beside each attack: every tenantPause it inserts a batch of five members with a callback, and jobs of one key
// follow each other. Its jobs rank before those of the attack, so it waits only for the flows and permits of others.
const (
	tenantTime  = 20 * time.Second
	tenantPause = 50 * time.Millisecond
	tenantEnd   = 30 * time.Second // after which a callback that has not started counts as this late
	keyedJobs   = 5000
)

// Site is the place of an attack: a database with daemons and their workers.
type Site struct {
	*pgx.Conn // with all rights

	Type string  // of the jobs that attacks insert
	Size float64 // of attacks; 1 = the full size
	dsn  string
}

// Open connects to the database of a site.
func Open(ctx context.Context, dsn, typ string) (*Site, error) {
	conn, err := pgx.Connect(ctx, dsn)
	return &Site{conn, typ, 1, dsn}, err
}

// Scaled returns a number of the full size for the size of the run.
func (s *Site) Scaled(n int) int { return max(1, int(float64(n)*s.Size)) }

// Attack is a load that must not delay others. Prepare runs before the tenant begins; nil = nothing. Begin runs when the tenant works; what
// it returns runs when the tenant has ended.
type Attack struct {
	Name    string
	Types   int // that the slots support; 0 = two
	Prepare func(ctx context.Context, s *Site) error
	Begin   func(ctx context.Context, s *Site) (end func() error, err error)
}

// None is the attack that does nothing.
var None = Attack{Name: "none", Begin: func(context.Context, *Site) (func() error, error) { return nil, nil }}

// Measure measures the tenant beside each attack.
func Measure(ctx context.Context, env *rig.Rig, attacks []Attack, size float64) (figures, details figure.Figures, err error) {
	for _, a := range attacks {
		callback, handOff, err := beside(ctx, env, a, size)
		if err != nil {
			return figures, details, fmt.Errorf("%s: %w", a.Name, err)
		}
		figures = append(figures, figure.AtMost(a.Name+"_callback_p99_ms", callback, 250), figure.AtMost(a.Name+"_handoff_p99_ms", handOff, 15))
	}
	return figures, nil, nil
}

// beside returns the 99th percentiles in milliseconds of the tenant: from the last end of a member to the start of the callback,
// and from the end of a job with the key to the start of the next one.
func beside(ctx context.Context, env *rig.Rig, a Attack, size float64) (callback, handOff float64, err error) {
	dsn, err := env.FreshJobs(ctx, "hostile")
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, env.Drop(context.WithoutCancel(ctx), "hostile")) }()
	for _, name := range []string{"first", "second"} {
		d, err := env.Daemon(ctx, dsn, name)
		if err != nil {
			return 0, 0, err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		crew, err := env.Crew(d.Socket, 1, 250, max(a.Types, 2))
		if err != nil {
			return 0, 0, err
		}
		defer func() { err = errors.Join(err, crew.Stop()) }()
	}
	s, err := Open(ctx, dsn, rig.TypeName(0))
	if err != nil {
		return 0, 0, err
	}
	s.Size = size
	defer s.Close(context.WithoutCancel(ctx))
	if a.Prepare != nil {
		if err := a.Prepare(ctx, s); err != nil {
			return 0, 0, err
		}
	}
	return s.measure(ctx, a)
}

// measure lets the tenant work while the attack runs.
func (s *Site) measure(ctx context.Context, a Attack) (callback, handOff float64, err error) {
	t := &tenant{}
	worked := make(chan error, 1)
	go func() { worked <- t.work(ctx, s.dsn) }()
	end, err := a.Begin(ctx, s)
	err = errors.Join(err, <-worked)
	if err == nil {
		callback, err = t.callbacks(ctx, s.Conn)
	}
	if err == nil {
		handOff, err = t.handOffs(ctx, s.Conn)
	}
	if end != nil {
		err = errors.Join(err, end())
	}
	return callback, handOff, err
}

// tenant is what the tenant has inserted.
type tenant struct {
	batches     []int64
	members     [][]int64
	first, last int64 // the first and the last job with the key
}

// work inserts the jobs of the tenant.
func (t *tenant) work(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := conn.QueryRow(ctx, `WITH job AS (INSERT INTO dispatcherd.jobs (type, priority, keys)
		SELECT $1, 5, 'tenant' FROM generate_series(1, $2) RETURNING id) SELECT min(id), max(id) FROM job`,
		rig.TypeName(1), keyedJobs).Scan(&t.first, &t.last); err != nil {
		return err
	}
	for begun := time.Now(); time.Since(begun) < tenantTime; {
		if err := errors.Join(t.insertBatch(ctx, conn), rig.Pause(ctx, tenantPause)); err != nil {
			return err
		}
	}
	return nil
}

// insertBatch inserts a batch of five members and seals it.
func (t *tenant) insertBatch(ctx context.Context, conn *pgx.Conn) error {
	var batch int64
	var members []int64
	callback := map[string]any{"type": rig.TypeName(1), "priority": 5}
	if err := conn.QueryRow(ctx, `SELECT dispatcherd.open_batch($1)`, callback).Scan(&batch); err != nil {
		return err
	}
	if err := conn.QueryRow(ctx, `WITH job AS (INSERT INTO dispatcherd.jobs (type, priority, parent)
		SELECT $1, 5, $2 FROM generate_series(1, 5) RETURNING id) SELECT array_agg(id) FROM job`,
		rig.TypeName(1), batch).Scan(&members); err != nil {
		return err
	}
	t.batches, t.members = append(t.batches, batch), append(t.members, members)
	_, err := conn.Exec(ctx, `SELECT dispatcherd.seal_batch($1)`, batch)
	return err
}

// callbacks waits for the callbacks and returns the 99th percentile of their delays in milliseconds.
func (t *tenant) callbacks(ctx context.Context, conn *pgx.Conn) (float64, error) {
	for begun := time.Now(); time.Since(begun) < tenantEnd; {
		var open int
		err := conn.QueryRow(ctx, `SELECT count(*) FROM dispatcherd.batches WHERE id = ANY ($1) AND ended_at IS NULL`, t.batches).Scan(&open)
		if err != nil {
			return 0, err
		}
		if open == 0 {
			break
		}
		if err := rig.Pause(ctx, 100*time.Millisecond); err != nil {
			return 0, err
		}
	}
	var delays []float64
	for i, batch := range t.batches {
		var delay float64
		err := conn.QueryRow(ctx, `SELECT coalesce(extract(epoch FROM c.started_at - greatest(b.sealed_at,
				(SELECT max(m.finished_at) FROM dispatcherd.jobs m WHERE m.id = ANY ($2)))) * 1000, $3)
			FROM dispatcherd.batches b JOIN dispatcherd.jobs c ON c.id = b.id WHERE b.id = $1`,
			batch, t.members[i], float64(tenantEnd.Milliseconds())).Scan(&delay)
		if err != nil {
			return 0, err
		}
		delays = append(delays, delay)
	}
	return stats.Quantile(delays, 0.99), nil
}

// handOffs returns the 99th percentile of the hand-offs of the key in milliseconds.
func (t *tenant) handOffs(ctx context.Context, conn *pgx.Conn) (p99 float64, err error) {
	var n int
	err = conn.QueryRow(ctx, `SELECT count(*), coalesce(percentile_disc(0.99) WITHIN GROUP (ORDER BY ms), 0) FROM (
		SELECT extract(epoch FROM started_at - lag(finished_at) OVER (ORDER BY started_at)) * 1000 AS ms FROM dispatcherd.jobs
		WHERE id BETWEEN $1 AND $2 AND keys = 'tenant' AND status = 'done') AS hand_off WHERE ms IS NOT NULL`,
		t.first, t.last).Scan(&n, &p99)
	if err == nil && n < keyedJobs/50 {
		err = fmt.Errorf("only %d of %d jobs of the key have run: %w", n, keyedJobs, errIdle)
	}
	return p99, err
}

// Held is a session with an open transaction.
type Held struct{ *pgx.Conn }

// Hold executes statements in a transaction that stays open.
func (s *Site) Hold(ctx context.Context, statements ...string) (*Held, error) {
	conn, err := pgx.Connect(ctx, s.dsn)
	if err != nil {
		return nil, err
	}
	for _, sql := range append([]string{`BEGIN`}, statements...) {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
		}
	}
	return &Held{conn}, nil
}

// End commits the transaction and ends the session.
func (h *Held) End() error {
	_, err := h.Exec(context.Background(), `COMMIT`)
	return errors.Join(err, h.Close(context.Background()))
}
