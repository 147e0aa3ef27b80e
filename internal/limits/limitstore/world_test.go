package limitstore

import (
	"context"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// world is a database whose controller is dispatcher 1 in term 1. It has begun.
type world struct {
	*Controller
	t   *testing.T
	db  *pgxpool.Pool
	dsn string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{t: t, dsn: pgtest.New(t)}
	config, err := pgxpool.ParseConfig(w.dsn)
	require.NoError(t, err)
	claim.Pin(config.ConnConfig)
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SET lock_timeout = '60s'`) // tests wait for locks
		return err
	}
	w.db, err = pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(w.db.Close)
	w.exec(`UPDATE dispatcherd.controller SET dispatcher = 1, term = 1`)
	w.Controller = w.controller(1, 1)
	w.begin(w.Controller)
	return w
}

// controller returns the statements of a dispatcher in a term.
func (w *world) controller(dispatcher int32, term int64) *Controller {
	do := func(ctx context.Context, f func(claim.Session) (int, error)) error {
		return w.db.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
			_, err := f(claim.Session{Context: ctx, Conn: c.Conn()})
			return err
		})
	}
	return &Controller{Dispatcher: dispatcher, Term: term, Do: do, Scan: do}
}

// impatient returns the controller with connections that wait briefly for locks.
func (w *world) impatient() *Controller {
	c := *w.Controller
	c.Do = func(ctx context.Context, f func(claim.Session) (int, error)) error {
		return w.db.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
			if _, err := conn.Exec(ctx, `SET lock_timeout = 20`); err != nil {
				return err
			}
			_, err := f(claim.Session{Context: ctx, Conn: conn.Conn()})
			_, _ = conn.Exec(ctx, `SET lock_timeout = '60s'`)
			return err
		})
	}
	return &c
}

func (w *world) begin(c *Controller) (firstFence, last int64) {
	w.t.Helper()
	firstFence, last, err := c.Begin(w.t.Context())
	require.NoError(w.t, err)
	return firstFence, last
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.db.Exec(w.t.Context(), sql, args...)
	require.NoError(w.t, err)
}

func one[T any](w *world, sql string, args ...any) (v T) {
	w.t.Helper()
	require.NoError(w.t, w.db.QueryRow(w.t.Context(), sql, args...).Scan(&v))
	return v
}

// due is when the rows of insert are due.
const due = 1_700_000_000_000_000

// insert inserts waiting rows of type pdf and priority 3 with ids from first on.
func (w *world) insert(keys string, first, n int64) (rows []Waiting) {
	w.t.Helper()
	w.exec(
		`INSERT INTO dispatcherd.jobs (id, type, priority, keys, run_at) SELECT $2::bigint + i - 1, 'pdf', 3, $1, to_timestamp($4::bigint / 1e6)
		FROM generate_series(1, $3::bigint) i`,
		keys,
		first, n, int64(due),
	)
	for id := first; id < first+n; id++ {
		rows = append(rows, Waiting{Class: permits.Class{Keys: keys, Type: "pdf", Priority: 3}, Job: permits.Job{RunAt: due, ID: id}})
	}
	return rows
}

// admission admits a row.
func admission(r Waiting, fence int64, dispatcher int32) permits.Permit {
	return permits.Permit{Class: r.Class, Job: r.Job, Fence: fence, Dispatcher: dispatcher}
}

// starting admits a row that uses windows.
func starting(r Waiting, fence int64, starts ...permits.Start) []permits.Permit {
	p := admission(r, fence, 0)
	p.Counted = starts
	return []permits.Permit{p}
}

// held returns what Withdraw needs of permits, for the ids from 1.
func held(fences ...int64) (list []permits.Permit) {
	for i, fence := range fences {
		list = append(list, permits.Permit{Job: permits.Job{ID: int64(i + 1)}, Fence: fence})
	}
	return list
}

// admit admits rows, each in a decision of its own, with fences from first on. It returns the ids of those that were admitted.
func (w *world) admit(c *Controller, first int64, rows ...Waiting) map[int64]bool {
	w.t.Helper()
	all := map[int64]bool{}
	for i, r := range rows {
		admitted, err := c.Admit(w.t.Context(), []permits.Permit{admission(r, first+int64(i), 0)})
		require.NoError(w.t, err)
		maps.Copy(all, idsOf(admitted))
	}
	return all
}

// start makes an admitted row run.
func (w *world) start(id int64) {
	w.exec(
		`UPDATE dispatcherd.jobs_live SET status = 'running', attempt = attempt + 1, dispatcher = 1,
			started_at = to_timestamp($2::bigint / 1e6) WHERE id = $1`,
		id,
		int64(due),
	)
}

// returns makes a running row pending again.
func (w *world) returns(id int64) {
	w.exec(
		`UPDATE dispatcherd.jobs_live SET status = 'pending', dispatcher = NULL, started_at = NULL,
			fence = -abs(fence), admitted_to = NULL WHERE id = $1`,
		id,
	)
}

// fence returns the fence of a row, or 0.
func (w *world) fence(id int64) int64 {
	return one[int64](w, `SELECT coalesce(fence, 0) FROM dispatcherd.jobs_live WHERE id = $1`, id)
}

// lock locks rows until the returned function is called.
func (w *world) lock(sql string, args ...any) (unlock func()) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.dsn)
	require.NoError(w.t, err)
	_, err = conn.Exec(w.t.Context(), `BEGIN`)
	require.NoError(w.t, err)
	_, err = conn.Exec(w.t.Context(), sql, args...)
	require.NoError(w.t, err)
	return func() { require.NoError(w.t, conn.Close(context.Background())) }
}

// idsOf returns the ids of admitted rows.
func idsOf(admitted map[int64]dispatcherd.DurationClass) map[int64]bool {
	return ids(slices.Collect(maps.Keys(admitted))...) // order-free: a set
}

// ids returns a set.
func ids(list ...int64) map[int64]bool {
	set := map[int64]bool{}
	for _, id := range list {
		set[id] = true
	}
	return set
}

// same requires equal lists, of which nil is the empty one.
func same[T any](t *testing.T, want, got []T) {
	t.Helper()
	require.Equal(t, append([]T{}, want...), append([]T{}, got...))
}
