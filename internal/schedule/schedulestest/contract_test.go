package schedulestest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
	"github.com/dispatcherd/dispatcherd/internal/schedule/controller"
	"github.com/dispatcherd/dispatcherd/internal/schedule/schedulestore"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// both are the tables in Postgres and the fake.
type both struct {
	t        *testing.T
	rng      *rand.Rand
	base     time.Time // first occasion of half of the schedules
	db       *pgxpool.Pool
	fake     *Tables
	two      [2]controller.Table
	rows     []*row // by the log of the fake
	last     int64  // schedule
	terms    int64
	outcomes map[string]int
	offset   time.Duration // of the clock of the fake
}

func (b *both) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
}

// controllers returns the two of a dispatcher in a term.
func (b *both) controllers(dispatcher int32, term int64) [2]controller.Table {
	do := func(ctx context.Context, f func(claim.Session) (int, error)) error {
		return b.db.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
			_, err := f(claim.Session{Context: ctx, Conn: c.Conn()})
			return err
		})
	}
	return [2]controller.Table{schedulestore.Controller{Do: do, Dispatcher: dispatcher, Term: term}, Controller{b.fake, dispatcher, term}}
}

// plain removes what the clocks of the two decide.
func plain(row *schedulestore.Row) {
	if row != nil {
		row.Since = time.Time{}
		if row.Handled != nil {
			*row.Handled = row.Handled.UTC()
		}
	}
}

// same calls f with the two and requires equal results.
func same[T any](b *both, f func(controller.Table) (T, error)) T {
	b.t.Helper()
	want, err := f(b.two[0])
	require.NoError(b.t, err)
	got, err := f(b.two[1])
	require.NoError(b.t, err)
	require.Equal(b.t, want, got)
	return want
}

// policies and kinds are by schedule id.
var (
	policies = []string{contract.AllowAll, contract.Skip, contract.QueueOne, contract.QueueAll, contract.CancelOther}
	kinds    = []string{contract.Cron, contract.Cron, contract.Cron, contract.Interval, contract.Startup}
)

// insert inserts a schedule.
func (b *both) insert(id int64) {
	s := contract.SchedulePlan{
		Name:        fmt.Sprint("s", id),
		Kind:        kinds[id%int64(len(kinds))],
		TimeZone:    "UTC",
		CatchUp:     contract.Duration(time.Hour),
		CatchUpMost: 1,
	}
	switch s.Kind {
	case contract.Cron:
		s.Spec = "* * * * *"
	case contract.Interval:
		s.Every = contract.Duration(time.Hour)
	case contract.Startup:
		s.Once = contract.OnceEver
	}
	overlap := policies[id/3%int64(len(policies))]
	b.exec(
		`INSERT INTO dispatcherd.schedules (name, kind, spec, every, once, type, overlap)
			VALUES ($1, $2, nullif($3, ''), $4, nullif($5, ''), 'pdf', $6)`,
		s.Name,
		s.Kind, s.Spec, interval(s.Every), s.Once, overlap,
	)
	require.Equal(b.t, id, b.fake.Insert(s, overlap))
}

func interval(d contract.Duration) any {
	if d == 0 {
		return nil
	}
	return time.Duration(d)
}

// row is a tick and its job.
type row struct {
	Schedule int64
	Occasion string
	Outcome  string
	Planned  time.Time
	Missed   int
	Job      bool
	Open     bool
	Cancel   bool  // the job is to be cancelled
	jobID    int64 // of the fake
}

// note adopts the log of the fake.
func (b *both) note() {
	for _, e := range b.fake.Log() {
		switch e.Change {
		case Made:
			b.rows = append(
				b.rows,
				&row{Schedule: e.Schedule, Occasion: e.Tick.Occasion, Outcome: e.Tick.Outcome, Planned: e.Tick.Planned, Missed: e.Tick.Missed},
			)
		case Started, Replaced:
			r := b.find(e.Schedule, e.Tick.Occasion)
			if r.Outcome = e.Tick.Outcome; e.Change == Started {
				r.Job, r.Open, r.jobID = true, true, e.Job
			}
		case Cancelled, Ended:
			for _, r := range b.rows {
				if r.jobID == e.Job {
					r.Cancel, r.Open = r.Cancel || e.Change == Cancelled, e.Change != Ended
				}
			}
		case Edited, Elected:
		}
	}
}

func (b *both) find(id int64, occasion string) *row {
	at := slices.IndexFunc(b.rows, func(r *row) bool { return r.Schedule == id && r.Occasion == occasion })
	return b.rows[at]
}

// equal requires that the log of the fake has led to the rows of Postgres.
func (b *both) equal() {
	b.t.Helper()
	b.note()
	found, _ := b.db.Query(
		b.t.Context(),
		`SELECT t.schedule_id, t.occasion, t.outcome, t.planned_at, coalesce(t.missed, 0), t.job_id IS NOT NULL,
		EXISTS (SELECT FROM dispatcherd.jobs_live j WHERE j.id = t.job_id),
		EXISTS (SELECT FROM dispatcherd.operations c WHERE c.kind = 'cancel' AND c.target = t.job_id)
		FROM dispatcherd.ticks t`,
	)
	want, err := pgx.CollectRows(found, func(r pgx.CollectableRow) (w row, err error) {
		var planned *time.Time
		if err = r.Scan(&w.Schedule, &w.Occasion, &w.Outcome, &planned, &w.Missed, &w.Job, &w.Open, &w.Cancel); planned != nil {
			w.Planned = planned.UTC()
		}
		return w, err
	})
	require.NoError(b.t, err)
	got := make([]row, len(b.rows))
	for i := range got {
		got[i] = *b.rows[i]
		got[i].jobID = 0
	}
	require.ElementsMatch(b.t, want, got)
}

// end ends a job that is open.
func (b *both) end(rng *rand.Rand, at time.Time) {
	b.note()
	open := slices.DeleteFunc(slices.Clone(b.rows), func(r *row) bool { return !r.Open })
	if len(open) == 0 {
		return
	}
	r := open[rng.IntN(len(open))]
	b.fake.End(r.jobID, at)
	b.exec(
		`WITH gone AS (DELETE FROM dispatcherd.jobs_live j USING dispatcherd.ticks t
			WHERE t.schedule_id = $1 AND t.occasion = $2 AND j.id = t.job_id RETURNING j.id, j.type)
		INSERT INTO dispatcherd.jobs_done (id, type, status, finished_at) SELECT id, type, 'done', $3 FROM gone`,
		r.Schedule,
		r.Occasion, at,
	)
}

// setBack sets the database clock back by an hour, or what was written forward.
func (b *both) setBack() {
	b.offset -= time.Hour
	b.exec(
		`UPDATE dispatcherd.ticks SET made_at = made_at + interval '1 hour',
			run_at = CASE WHEN schedule_id % 2 = 0 THEN run_at + interval '1 hour' ELSE run_at END`,
	)
}

// Random statements have the same results with Postgres and with the fake.
func TestFakeEqualsPostgres(t *testing.T) {
	db, err := pgxpool.New(t.Context(), pgtest.New(t))
	require.NoError(t, err)
	t.Cleanup(db.Close)
	b := &both{t: t, db: db, rng: rand.New(rand.NewPCG(1, 1)), base: time.Now().Truncate(time.Minute).UTC(), outcomes: map[string]int{}}
	b.fake = New(func() time.Time { return time.Now().Add(b.offset) })
	b.two = b.controllers(1, 1)
	b.exec(
		`INSERT INTO dispatcherd.dispatchers (id, name, lease, founder) OVERRIDING SYSTEM VALUE
			VALUES (1, 'a', '1 hour', 7), (2, 'b', '1 hour', NULL)`,
	)
	b.fake.Join(1, 7)
	for n := range 3000 {
		b.step(n)
		if n%20 == 0 {
			b.equal()
		}
	}
	b.equal()
	for _, outcome := range []string{
		"", contract.TickRun, contract.TickQueued, contract.TickSkipped, contract.TickMissed, contract.TickExists,
		contract.TickChanged, "started", "last run",
	} {
		require.Greater(t, b.outcomes[outcome], 10, "%q: %v", outcome, b.outcomes)
	}
}

// step does something with both.
func (b *both) step(n int) {
	t, rng := b.t, b.rng
	id := 1 + rng.Int64N(max(b.last, 1)+1)
	switch rng.IntN(14) {
	case 0:
		if b.last < 30 {
			b.last++
			b.insert(b.last)
		}
	case 1:
		b.update(id, rng)
	case 2:
		if rng.IntN(30) == 0 {
			b.exec(`DELETE FROM dispatcherd.schedules WHERE id = $1`, id)
			if b.fake.Row(id).ID != 0 {
				b.fake.Delete(id)
			}
		}
		if rng.IntN(20) == 0 {
			b.setBack()
		}
	case 3:
		if rng.IntN(4) == 0 { // the former controller continues in half of the cases
			b.elect()
		}
	case 4, 5, 6:
		b.end(rng, b.base.Add(time.Duration(n)*time.Microsecond))
	case 7:
		same(b, func(c controller.Table) ([]schedulestore.Row, error) {
			rows, err := c.Load(t.Context(), id-1)
			for i := range rows {
				plain(&rows[i])
			}
			return append([]schedulestore.Row{}, rows...), err
		})
		same(b, func(c controller.Table) (schedule.Start, error) { return c.Start(t.Context(), "1.2") })
	case 8:
		same(b, func(c controller.Table) (map[int64]*schedulestore.Row, error) {
			edited, more, err := c.Edits(t.Context(), []int64{id})
			for _, row := range edited {
				plain(row)
			}
			require.False(t, more)
			return edited, err
		})
	case 9:
		former := rng.Int64N(2)
		same(b, func(c controller.Table) ([]int64, error) {
			locked, err := c.Report(t.Context(),
				[]schedulestore.Problem{{Schedule: id, Version: b.fake.Row(id).Version - former, Reason: "why"}})
			return append([]int64{}, locked...), err
		})
	case 10:
		b.runs(id)
	default:
		b.make()
	}
}

// elect elects a dispatcher.
func (b *both) elect() {
	b.terms++
	dispatcher := 1 + b.rng.Int32N(2)
	b.exec(`UPDATE dispatcherd.controller SET dispatcher = $1, term = $2`, dispatcher, b.terms)
	require.Equal(b.t, b.terms, b.fake.Elect(dispatcher))
	if b.rng.IntN(2) == 0 {
		b.two = b.controllers(dispatcher, b.terms)
	}
}

// runs reads last runs and starts queued ticks.
func (b *both) runs(id int64) {
	ids := []int64{id, id + 3, id + 7}
	for _, r := range same(b, func(c controller.Table) ([]schedule.Run, error) {
		runs, err := c.LastRuns(b.t.Context(), ids)
		for i := range runs {
			runs[i].EndedAt = runs[i].EndedAt.UTC()
		}
		return runs, err
	}) {
		if !r.EndedAt.IsZero() {
			b.outcomes["last run"]++
		}
	}
	for _, s := range same(b, func(c controller.Table) ([]schedulestore.Started, error) {
		started, err := c.StartQueued(b.t.Context(), ids)
		for i := range started {
			started[i].Job = min(started[i].Job, 1)
		}
		slices.SortFunc(started, func(a, b schedulestore.Started) int { return cmp.Compare(a.Schedule, b.Schedule) })
		return append([]schedulestore.Started{}, started...), err
	}) {
		if s.Job > 0 {
			b.outcomes["started"]++
		}
	}
}

// make makes ticks.
func (b *both) make() {
	ticks := b.ticks(b.rng, max(b.last, 1))
	for _, outcome := range same(b, func(c controller.Table) ([]string, error) {
		made, err := c.Make(b.t.Context(), ticks)
		list := make([]string, len(made))
		for i := range made {
			list[i] = made[i].Outcome
		}
		return list, err
	}) {
		b.outcomes[outcome]++
	}
}

// update edits a schedule, sometimes without a change.
func (b *both) update(id int64, rng *rand.Rand) {
	s := b.fake.Row(id).SchedulePlan
	if s.Paused, s.CatchUpMost = rng.IntN(6) == 0, rng.IntN(2); s.Spec != "" {
		s.Spec = fmt.Sprintf("%d * * * *", rng.IntN(2))
	}
	if s.Every != 0 {
		s.Every = contract.Duration(1+rng.IntN(2)) * contract.Duration(time.Hour)
	}
	if s.ID == 0 {
		return
	}
	var since bool
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), `WITH old AS (SELECT since FROM dispatcherd.schedules WHERE id = $1)
		UPDATE dispatcherd.schedules SET spec = nullif($2, ''), every = $3, paused = $4, catch_up_most = $5 WHERE id = $1
		RETURNING since <> (SELECT since FROM old)`, id, s.Spec, interval(s.Every), s.Paused, s.CatchUpMost).Scan(&since))
	b.fake.Update(id, func(row *contract.SchedulePlan) { *row = s })
	require.Equal(b.t, since, !b.fake.Row(id).Since.Equal(s.Since), "the plan is new")
}

// ticks returns ticks of which some are outdated, and some exist.
func (b *both) ticks(rng *rand.Rand, last int64) (ticks []schedule.Tick) {
	seen := map[int64]bool{}
	b.note()
	for range 1 + rng.IntN(4) {
		id := 1 + rng.Int64N(last)
		if seen[id] {
			continue // the ticks of a schedule are in order
		}
		seen[id] = true
		row := b.fake.Row(id)
		if row.ID == 0 || rng.IntN(6) == 0 {
			row.Version++ // 0 would mean any version
		}
		base := b.base
		if id%2 == 0 {
			base = base.AddDate(0, -1, 0)
		}
		n := max(b.count(id)-1+rng.IntN(4), 0)
		for i := range 1 + rng.IntN(3) {
			at := base.Add(time.Duration(n+i) * time.Minute)
			tick := schedule.Tick{Schedule: id, Version: row.Version, Occasion: schedule.CronOccasion(at), Planned: at, RunAt: at}
			if row.Kind == contract.Startup {
				tick.Occasion, tick.Planned = fmt.Sprint("start:", n+i), time.Time{}
			}
			if i == 0 && rng.IntN(4) == 0 {
				tick.Missed = 3
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}

// count returns the number of ticks of a schedule.
func (b *both) count(id int64) (n int) {
	for _, r := range b.rows {
		if r.Schedule == id {
			n++
		}
	}
	return n
}

// No more than 10,000 ticks of a schedule are queued, with Postgres and with the fake.
func TestFakeBoundsQueue(t *testing.T) {
	db, err := pgxpool.New(t.Context(), pgtest.New(t))
	require.NoError(t, err)
	t.Cleanup(db.Close)
	b := &both{t: t, db: db, fake: New(time.Now)}
	b.exec(`UPDATE dispatcherd.controller SET dispatcher = 1, term = $1`, b.fake.Elect(1))
	b.two = b.controllers(1, 1)
	s := contract.SchedulePlan{Name: "s", Kind: contract.Cron, Spec: "* * * * *", TimeZone: "UTC"}
	b.exec(`INSERT INTO dispatcherd.schedules (name, kind, spec, type, overlap) VALUES ('s', 'cron', $1, 'pdf', 'queue_all')`, s.Spec)
	id := b.fake.Insert(s, contract.QueueAll)
	count, base := map[string]int{}, time.Now().Truncate(time.Minute).UTC()
	for n := range 11 {
		ticks := make([]schedule.Tick, schedulestore.MaxTicks)
		for i := range ticks {
			at := base.Add(time.Duration(n*len(ticks)+i) * time.Minute)
			ticks[i] = schedule.Tick{Schedule: id, Version: 1, Occasion: schedule.CronOccasion(at), Planned: at, RunAt: at}
		}
		for _, m := range same(b, func(c controller.Table) ([]contract.MadeTick, error) {
			made, err := c.Make(t.Context(), ticks)
			for i := range made {
				made[i].Job = 0
			}
			return made, err
		}) {
			count[m.Outcome]++
		}
	}
	require.Equal(t, map[string]int{contract.TickRun: 1, contract.TickQueued: schedule.MaxQueued - 1, contract.TickSkipped: 1000}, count)
}
