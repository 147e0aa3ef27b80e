package schedulestore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
)

// world is a database with one controller.
type world struct {
	t *testing.T
	Schedules
	db         *pgxpool.Pool
	dsn        string
	controller Controller
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	dsn := pgtest.New(t)
	db, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	w := &world{t: t, Schedules: Schedules{DB: db}, db: db, dsn: dsn}
	w.exec(`UPDATE dispatcherd.controller SET dispatcher = 1, term = 1`)
	w.controller = w.dispatcher(1, 1)
	return w
}

// dispatcher returns a controller in a term.
func (w *world) dispatcher(id int32, term int64) Controller {
	return Controller{Dispatcher: id, Term: term, Do: func(ctx context.Context, f func(claim.Session) (int, error)) error {
		return w.db.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
			_, err := f(claim.Session{Context: ctx, Conn: c.Conn()})
			return err
		})
	}}
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.db.Exec(w.t.Context(), sql, args...)
	require.NoError(w.t, err)
}

func (w *world) number(sql string, args ...any) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.db.QueryRow(w.t.Context(), sql, args...).Scan(&n))
	return n
}

// limitLocks sets the lock timeout of the connections of daemons.
func (w *world) limitLocks() {
	w.t.Helper()
	w.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET lock_timeout = 4000', current_database()); END $$`)
	w.db.Reset()
}

// cron creates a cron schedule.
func (w *world) cron(name string, change func(*contract.Schedule)) contract.Schedule {
	w.t.Helper()
	s := contract.NewSchedule()
	s.Name, s.Kind, s.Spec, s.Type = name, contract.Cron, "* * * * *", "pdf"
	if change != nil {
		change(&s)
	}
	_, err := w.Set(w.t.Context(), s)
	require.NoError(w.t, err)
	s, err = w.Get(w.t.Context(), name)
	require.NoError(w.t, err)
	return s
}

// minute returns the tick of a schedule at a minute.
func minute(s *contract.Schedule, n int) schedule.Tick {
	at := s.Since.Truncate(time.Minute).Add(time.Duration(n) * time.Minute)
	return schedule.Tick{Schedule: s.ID, Version: s.Version, Occasion: schedule.CronOccasion(at), Planned: at, RunAt: at}
}

// make makes ticks with a controller and returns their outcomes.
func (w *world) make(c Controller, ticks ...schedule.Tick) (outcomes []string) {
	w.t.Helper()
	made, err := c.Make(w.t.Context(), ticks)
	require.NoError(w.t, err)
	for i, m := range made {
		require.Equal(w.t, m.Outcome == contract.TickRun, m.Job > 0, "tick %d: %+v", i, m)
		outcomes = append(outcomes, m.Outcome)
	}
	return outcomes
}

// end ends all jobs.
func (w *world) end() { w.exec(`DELETE FROM dispatcherd.jobs_live`) }

func outcomes(list ...string) []string { return list }

// atOnce calls f in several goroutines at the same time.
func atOnce(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	start, errs := make(chan struct{}), make(chan error, n)
	for i := range n {
		go func() {
			<-start
			errs <- f(i)
		}()
	}
	close(start)
	for range n {
		require.NoError(t, <-errs)
	}
}

func name(i int) string { return fmt.Sprintf("s%04d", i) }
