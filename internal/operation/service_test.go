package operation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// world is a database with jobs and the service of the controller.
type world struct {
	t       *testing.T
	db      *pgxpool.Pool
	service background.Service
	done    []string // "KIND N changed M", or "KIND TARGET: ERROR"
}

func newWorld(t *testing.T, jobs int) *world {
	t.Parallel()
	db, err := pgxpool.New(t.Context(), pgtest.New(t))
	require.NoError(t, err)
	t.Cleanup(db.Close)
	w := &world{t: t, db: db}
	w.service = Service{DB: db, Done: func(done []Operation, changed int, refused error) {
		if refused != nil {
			w.done = append(w.done, fmt.Sprintf("%s %d: %v", done[0].Kind, done[0].Target, refused))
			return
		}
		w.done = append(w.done, fmt.Sprintf("%s %d changed %d", done[0].Kind, len(done), changed))
	}}.Service()
	w.exec(`INSERT INTO dispatcherd.jobs (type) SELECT 'pdf' FROM generate_series(1, $1)`, jobs)
	return w
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

// ask inserts operations "KIND TARGET".
func (w *world) ask(operations ...string) {
	w.t.Helper()
	for _, o := range operations {
		kind, target, _ := strings.Cut(o, " ")
		w.exec(`INSERT INTO dispatcherd.operations (kind, target) VALUES ($1, $2)`, kind, target)
	}
}

// step does a step and returns what was done.
func (w *world) step() (done []string, wait time.Duration) {
	w.t.Helper()
	w.done = nil
	wait, err := w.service.Step(w.t.Context(), background.Now{})
	require.NoError(w.t, err)
	return w.done, wait
}

// statuses are those of the jobs, in the order of their ids.
func (w *world) statuses() (list string) {
	w.t.Helper()
	require.NoError(w.t, w.db.QueryRow(w.t.Context(), `SELECT string_agg(status::text, ' ' ORDER BY id) FROM dispatcherd.jobs`).Scan(&list))
	return list
}

func (w *world) left() int { return w.number(`SELECT count(*) FROM dispatcherd.operations`) }

func TestOperationsOfOneTargetAreDoneInTheirOrder(t *testing.T) {
	w := newWorld(t, 3)
	w.ask("cancel 1", "cancel 2", "retry 1", "retry 3", "cancel 3", "retry 2", "retry 99")
	done, wait := w.step()
	require.Equal(t, []string{
		"cancel 2 changed 2", "retry 1 changed 1", "retry 3: job 3 is pending: only failed and cancelled jobs can be retried",
		"cancel 1 changed 1", "retry 1 changed 1", "retry 99: job 99: no such job",
	}, done)
	require.Equal(t, noMore, wait)
	require.Equal(t, "pending pending cancelled", w.statuses())
	require.Zero(t, w.left())
}

func TestRequestToCancelARunningJobStaysUntilTheJobIsPending(t *testing.T) {
	w := newWorld(t, 1)
	w.exec(`UPDATE dispatcherd.jobs_live SET status = 'running', dispatcher = 1`)
	w.ask("cancel 1", "cancel 1")
	done, _ := w.step()
	require.Empty(t, done)
	require.Equal(t, 2, w.left())
	w.exec(`UPDATE dispatcherd.jobs_live SET status = 'pending', dispatcher = NULL`)
	done, _ = w.step()
	require.Equal(t, []string{"cancel 2 changed 1"}, done)
	require.Zero(t, w.left())
}

// Postgres refuses to cancel job 42, and job 7 has ended. The operations are deleted and reported, and all others are done.
func TestRefusedOperationIsDeletedAndReported(t *testing.T) {
	w := newWorld(t, 100)
	w.exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused by the test'; END $$`)
	w.exec(`CREATE TRIGGER refuse BEFORE INSERT ON dispatcherd.jobs_cancelled FOR EACH ROW WHEN (NEW.id = 42)
		EXECUTE FUNCTION public.refuse()`)
	w.exec(`INSERT INTO dispatcherd.operations (kind, target) SELECT 'cancel', id FROM dispatcherd.jobs`)
	w.ask("cancel_tree 7", "retry 1")
	done, _ := w.step()
	require.Len(t, done, 102)
	require.Contains(t, done[41], "cancel 42: ")
	require.Contains(t, done[41], "refused by the test")
	require.Equal(t, "cancel_tree 7: job 7 is cancelled: only waiting, pending and running jobs can be cancelled", done[100])
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.jobs_live WHERE id = 42`))
	require.Equal(t, 98, w.number(`SELECT count(*) FROM dispatcherd.jobs_cancelled`))
	require.Zero(t, w.left())
}

// A session has locked job 7. Its cancellation waits, and so does the later retry. All others are done.
func TestLockedTargetHoldsBackOnlyItself(t *testing.T) {
	w := newWorld(t, 100)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background()) // the pool waits for the connection
	_, err = tx.Exec(t.Context(), `SELECT FROM dispatcherd.jobs_live WHERE id = 7 FOR UPDATE`)
	require.NoError(t, err)
	w.exec(`INSERT INTO dispatcherd.operations (kind, target) SELECT 'cancel', id FROM dispatcherd.jobs`)
	w.ask("retry 7", "retry 8")
	_, wait := w.step()
	require.Equal(t, lockPause, wait)
	require.Equal(t, 98, w.number(`SELECT count(*) FROM dispatcherd.jobs_cancelled`))
	require.Equal(t, []string{"cancel 7", "retry 7"}, w.open())
	require.NoError(t, tx.Rollback(t.Context()))
	w.step()
	require.Equal(t, 2, w.number(`SELECT count(*) FROM dispatcherd.jobs_live`))
	require.Zero(t, w.left())
}

// Sessions have locked the targets of more operations than a step has time for. The step after it goes on behind them, and those that
// wait are tried again when all others are done.
func TestManyLockedTargetsHoldBackNoOther(t *testing.T) {
	w := newWorld(t, 13)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background()) // the pool waits for the connection
	_, err = tx.Exec(t.Context(), `SELECT FROM dispatcherd.jobs_live WHERE id <= 12 ORDER BY id FOR UPDATE`)
	require.NoError(t, err)
	w.exec(`INSERT INTO dispatcherd.operations (kind, target) SELECT 'cancel', id FROM dispatcherd.jobs ORDER BY id`)
	w.ask("retry 12")
	_, wait := w.step()
	require.Zero(t, wait)
	_, wait = w.step()
	require.Equal(t, lockPause, wait)
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.jobs_cancelled WHERE id = 13`))
	require.Equal(t, 13, w.left())
	require.NoError(t, tx.Rollback(t.Context()))
	w.step()
	require.Zero(t, w.left())
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.jobs_live`))
}

// Some of several retries are refused. The others are done, and each refused one says why.
func TestRefusedRetriesAreReported(t *testing.T) {
	w := newWorld(t, 3)
	w.exec(`INSERT INTO dispatcherd.operations (kind, target) SELECT 'cancel', id FROM dispatcherd.jobs WHERE id <= 2`)
	w.step()
	w.ask("retry 1", "retry 2", "retry 3", "retry 99")
	done, _ := w.step()
	require.Equal(t, []string{
		"retry 1 changed 1", "retry 1 changed 1", "retry 3: job 3 is pending: only failed and cancelled jobs can be retried",
		"retry 99: job 99: no such job",
	}, done)
	require.Equal(t, "pending pending pending", w.statuses())
	require.Zero(t, w.left())
}

// open are the operations that are left.
func (w *world) open() []string {
	rows, err := w.db.Query(w.t.Context(), `SELECT kind || ' ' || target FROM dispatcherd.operations ORDER BY id`)
	require.NoError(w.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(w.t, err)
	return list
}

// A former controller has not yet noticed that another one leads. Each retry is done once.
func TestTwoControllersDoEachOperationOnce(t *testing.T) {
	w := newWorld(t, 300)
	w.exec(`INSERT INTO dispatcherd.operations (kind, target) SELECT 'cancel', id FROM dispatcherd.jobs`)
	w.step()
	w.exec(`CREATE TABLE public.retried (id bigint)`)
	w.exec(`CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO public.retried VALUES (NEW.id); RETURN NULL; END $$`)
	w.exec(`CREATE TRIGGER note AFTER INSERT ON dispatcherd.jobs_live FOR EACH ROW EXECUTE FUNCTION public.note()`)
	w.exec(`INSERT INTO dispatcherd.operations (kind, target) SELECT 'retry', id FROM dispatcherd.jobs ORDER BY random()`)
	other := Service{DB: w.db, Done: func([]Operation, int, error) {}}.Service()
	ended := make(chan error, 1)
	go func() { _, err := other.Step(t.Context(), background.Now{}); ended <- err }()
	w.step()
	require.NoError(t, <-ended)
	require.Equal(t, 300, w.number(`SELECT count(*) FROM public.retried`))
	require.Zero(t, w.left())
}

// A transaction has taken the smaller id and commits last.
func TestOperationWithASmallerIDThatCommitsLaterIsStillDone(t *testing.T) {
	w := newWorld(t, 2)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO dispatcherd.operations (kind, target) VALUES ('cancel', 1)`)
	require.NoError(t, err)
	w.ask("cancel 2")
	done, _ := w.step()
	require.Equal(t, []string{"cancel 1 changed 1"}, done)
	require.NoError(t, tx.Commit(t.Context()))
	done, _ = w.step()
	require.Equal(t, []string{"cancel 1 changed 1"}, done)
	require.Equal(t, "cancelled cancelled", w.statuses())
}

func TestBatchesAreCancelledRetriedAndRepaired(t *testing.T) {
	w := newWorld(t, 0)
	batch := w.number(`SELECT dispatcherd.open_batch()`)
	w.exec(`INSERT INTO dispatcherd.jobs (type, parent) SELECT 'pdf', $1 FROM generate_series(1, 3)`, batch)
	w.ask(fmt.Sprint("cancel_tree ", batch))
	done, _ := w.step()
	require.Equal(t, []string{"cancel_tree 1 changed 3"}, done)
	w.ask(fmt.Sprint("retry_tree ", batch), fmt.Sprint("repair ", batch))
	w.exec(`INSERT INTO dispatcherd.operations (kind) VALUES ('repair')`)
	done, _ = w.step()
	want := []string{"retry_tree 1 changed 0", "repair 1 changed 0", "repair 1 changed 0"}
	require.Equal(t, want, done, "dispatchers have cancelled nothing")
	require.Equal(t, "pending pending pending", w.statuses())
}

func TestRepairOfAnUnknownBatchIsRefused(t *testing.T) {
	w := newWorld(t, 1)
	w.ask("repair 999", "repair 1")
	done, _ := w.step()
	require.Equal(t, []string{"repair 999: no batch or flow has the id 999", "repair 1: no batch or flow has the id 1"}, done)
	require.Zero(t, w.left())
}

func TestOneTransactionDoesABoundedNumber(t *testing.T) {
	w := newWorld(t, 2500)
	w.exec(`INSERT INTO dispatcherd.operations (kind, target) SELECT 'cancel', id FROM dispatcherd.jobs`)
	var all []string
	for w.left() > 0 {
		done, _ := w.step()
		all = append(all, done...)
	}
	require.GreaterOrEqual(t, len(all), 2500/together)
	require.Equal(t, 2500, w.number(`SELECT count(*) FROM dispatcherd.jobs_cancelled`))
	require.True(t, slices.Contains(all, fmt.Sprintf("cancel %d changed %[1]d", together)))
}

// A job without children is its own tree.
func TestTreeOfAJobIsTheJob(t *testing.T) {
	w := newWorld(t, 2)
	w.exec(`UPDATE dispatcherd.jobs_live SET status = 'running', dispatcher = 1 WHERE id = 2`)
	w.ask("cancel_tree 1", "cancel_tree 2")
	done, _ := w.step()
	require.Equal(t, []string{"cancel_tree 1 changed 1", "cancel_tree 1 changed 1"}, done)
	require.Equal(t, "cancelled running", w.statuses())
	require.Equal(t, []string{"cancel 2"}, w.open())
	w.ask("retry_tree 1", "retry_tree 2")
	done, _ = w.step()
	require.Equal(t, "retry_tree 1 changed 1", done[0])
	require.Contains(t, done[1], "retry_tree 2: job 2 is running")
	require.Equal(t, "pending running", w.statuses())
}
