package schedulestore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
)

// These tests are attacks on the statements. internal/schedule and e2e contain the others.

// Attack 7: the controller was stopped, and another dispatcher has taken its role.
func TestTicksOfAFormerControllerChangeNothing(t *testing.T) {
	w := newWorld(t)
	s := w.cron("s", nil)
	q := w.cron("q", func(s *contract.Schedule) { s.Overlap = contract.QueueAll })
	require.Equal(t, outcomes("run", "queued"), w.make(w.controller, minute(&q, 1), minute(&q, 2)))
	w.end()
	w.exec(`UPDATE dispatcherd.controller SET dispatcher = 2, term = 2`)
	require.Equal(t, outcomes(""), w.make(w.controller, minute(&s, 1)))
	started, err := w.controller.StartQueued(t.Context(), []int64{q.ID})
	require.NoError(t, err)
	require.Empty(t, started)
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs`), "the queued tick is left to the new controller")
	edited, _, err := w.controller.Edits(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, edited)
	require.Equal(t, 2, w.number(`SELECT count(*) FROM dispatcherd.operations WHERE kind = 'schedule_edited'`),
		"the records are left to the new controller")
	_, err = w.controller.Report(t.Context(), []Problem{{s.ID, s.Version, "x"}})
	require.NoError(t, err)
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.schedules WHERE error IS NOT NULL`))
	require.Equal(t, outcomes("run"), w.make(w.dispatcher(2, 2), minute(&s, 1)))
}

// A dispatcher takes the role only after the statements of the former controller have ended.
func TestTheNextControllerWaitsForTicksInFlight(t *testing.T) {
	w := newWorld(t)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), `WITH `+role+` SELECT term FROM role`, int32(1), int64(1))
	require.NoError(t, err)
	require.Zero(t, w.number(`SELECT count(*) FROM (SELECT FROM dispatcherd.controller FOR UPDATE SKIP LOCKED) c`))
}

// makeAlone makes a tick as a dispatcher without the role does, until no other session has locked the schedule.
func (w *world) makeAlone(tick schedule.Tick) (contract.MadeTick, error) {
	for {
		results, err := session{}.apply(w.t.Context(), w.db, schedule.Requests([]schedule.Tick{tick}))
		if err != nil {
			return contract.MadeTick{}, err
		}
		if made := results[tick.Schedule].made[0]; made.Outcome != contract.TickLocked {
			return made, nil
		}
	}
}

// Attack 8: the election is switched off, so that several dispatchers make the same ticks. Half of the
// occasions are no instants, so that no high-water mark excludes them.
func TestSeveralControllersMakeOneJobPerOccasion(t *testing.T) {
	w := newWorld(t)
	const dispatchers, schedules, occasions = 4, 20, 10
	var list []contract.Schedule
	for i := range schedules {
		list = append(list, w.cron(name(i), func(s *contract.Schedule) { s.Overlap = contract.AllowAll }))
	}
	var mu sync.Mutex
	made := map[string]int{}
	atOnce(t, dispatchers, func(int) error {
		for n := 1; n <= occasions; n++ {
			for i := range list {
				tick := minute(&list[i], n)
				if i%2 == 0 {
					tick.Planned = time.Time{}
				}
				m, err := w.makeAlone(tick)
				if err != nil {
					return err
				}
				mu.Lock()
				made[m.Outcome]++
				mu.Unlock()
			}
		}
		return nil
	})
	const all = schedules * occasions
	require.Equal(t, map[string]int{contract.TickRun: all, contract.TickExists: (dispatchers - 1) * all}, made)
	require.Equal(t, all, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
	require.Equal(
		t,
		all,
		w.number(`SELECT count(DISTINCT (schedule_id, occasion)) FROM dispatcherd.ticks t JOIN dispatcherd.jobs j ON j.id = t.job_id`),
	)
}

// Another session inserts the tick without the lock of the schedule, as startup-worker runs do. The statement
// waits for its end and makes no second job.
func TestATickOfASessionWithoutTheLockRunsOnce(t *testing.T) {
	w := newWorld(t)
	s := w.cron("s", func(s *contract.Schedule) { s.Overlap = contract.AllowAll })
	tick := minute(&s, 1)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background()) // without effect after Commit
	_, err = tx.Exec(t.Context(), `INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome) VALUES ($1, $2, 'run')`, s.ID, tick.Occasion)
	require.NoError(t, err)
	made := make(chan error, 1)
	go func() {
		_, err := w.makeAlone(tick)
		made <- err
	}()
	require.Eventually(t, func() bool {
		return w.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 1
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-made)
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.ticks`))
}

// The same with the policy skip: at no time does a schedule have two runs.
func TestSeveralControllersMakeOneRunAtATime(t *testing.T) {
	w := newWorld(t)
	s := w.cron("s", nil)
	atOnce(t, 8, func(i int) error {
		_, err := session{}.apply(t.Context(), w.db, schedule.Requests([]schedule.Tick{minute(&s, 1+i)}))
		return err
	})
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
}

// Attack 9: an edit or a pause between planning and insertion.
func TestNoJobOfAnEditedOrPausedSchedule(t *testing.T) {
	w := newWorld(t)
	s := w.cron("s", nil)
	old := minute(&s, 1)
	w.exec(`UPDATE dispatcherd.schedules SET payload = '{"new": true}'`)
	require.Equal(t, outcomes("changed"), w.make(w.controller, old))
	edited, _, err := w.controller.Edits(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, int64(2), edited[s.ID].Version)
	s, err = w.Get(t.Context(), "s")
	require.NoError(t, err)
	require.NoError(t, w.Pause(t.Context(), "s"))
	require.Equal(t, outcomes("changed"), w.make(w.controller, minute(&s, 1)))
	require.NoError(t, w.Remove(t.Context(), "s"))
	require.Equal(t, outcomes("changed"), w.make(w.controller, minute(&s, 1)))
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.ticks`))
}

// Attack 9: the edit is in an open transaction. The tick neither waits for it nor runs the old
// version, and other schedules are not affected.
func TestALockedScheduleDoesNotDelayOthers(t *testing.T) {
	w := newWorld(t)
	a, b := w.cron("a", nil), w.cron("b", nil)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `UPDATE dispatcherd.schedules SET priority = 3 WHERE name = 'a'`)
	require.NoError(t, err)
	require.Equal(t, outcomes("locked", "run"), w.make(w.controller, minute(&a, 1), minute(&b, 1)))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, outcomes("changed", "exists"), w.make(w.controller, minute(&a, 1), minute(&b, 1)))
}

// Postgres refuses the ticks or jobs of some schedules, for example because of a damaged payload.
// The other schedules run.
func TestARefusedTickStopsNoOtherSchedule(t *testing.T) {
	w := newWorld(t)
	var list []contract.Schedule
	var ticks []schedule.Tick
	var ids []int64
	for i := range 100 {
		s := w.cron(name(i), func(s *contract.Schedule) { s.Overlap = contract.QueueAll })
		list, ids = append(list, s), append(ids, s.ID)
	}
	second := func(n int) (ticks []schedule.Tick) {
		for i := range list {
			ticks = append(ticks, minute(&list[i], n))
		}
		return ticks
	}
	ticks = second(1)
	ticks[17].Occasion = strings.Repeat("x", 257)
	w.exec(`ALTER TABLE dispatcherd.ticks ADD CONSTRAINT refused CHECK (schedule_id <> ` + strconv.FormatInt(ids[42], 10) + `)`)
	made, err := w.controller.Make(t.Context(), ticks)
	require.NoError(t, err)
	for i := range made {
		for n := 0; made[i].Outcome == contract.TickLocked && n < 20; n++ { // on a slow machine, a call leaves ticks to the next one
			again, err := w.controller.Make(t.Context(), ticks[i:i+1])
			require.NoError(t, err)
			made[i] = again[0]
		}
	}
	for i, m := range made {
		if i == 17 || i == 42 {
			require.Equal(t, contract.TickRefused, m.Outcome)
			require.Regexp(t, `^constraint (refused|occasion_is_1_to_256_bytes), SQLSTATE 23514$`, m.Err.Error())
		} else {
			require.Equal(t, contract.TickRun, m.Outcome, i)
		}
	}
	require.Equal(t, 98, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
	w.make(w.controller, append(second(2)[:42], second(2)[43:]...)...)
	w.end()
	w.exec(`ALTER TABLE dispatcherd.ticks DROP CONSTRAINT refused`)
	w.exec(
		`ALTER TABLE dispatcherd.ticks ADD CONSTRAINT refused CHECK (outcome <> 'run' OR schedule_id <> ` + strconv.FormatInt(
			ids[5],
			10,
		) + `) NOT VALID`,
	)
	for range 20 { // a call on a slow machine leaves schedules to the next one
		started, err := w.controller.StartQueued(t.Context(), ids)
		require.NoError(t, err)
		require.Len(t, started, 100)
		require.True(t, slices.Contains(started, Started{Schedule: ids[5], Waiting: true}))
		if w.number(`SELECT count(*) FROM dispatcherd.jobs`) == 97 {
			break
		}
	}
	require.Equal(t, 97, w.number(`SELECT count(*) FROM dispatcherd.jobs`), "of 98 queued ticks, one is refused, and that of 17 is a run")
}

// Postgres refuses a tick and would make a later one of the same schedule. If it did, the high-water mark would pass
// the first tick, and no row would say that it was missed.
func TestNoTickPassesARefusedOne(t *testing.T) {
	w := newWorld(t)
	allowAll := func(s *contract.Schedule) { s.Overlap = contract.AllowAll }
	a, b := w.cron("a", allowAll), w.cron("b", allowAll)
	ticks := []schedule.Tick{minute(&a, 1), minute(&b, 1), minute(&a, 2)}
	w.exec(
		`ALTER TABLE dispatcherd.ticks ADD CONSTRAINT refused CHECK (schedule_id <> ` + strconv.FormatInt(
			a.ID,
			10,
		) + ` OR occasion <> '` + ticks[0].Occasion + `')`,
	)
	require.Equal(t, outcomes("refused", "run", "refused"), w.make(w.controller, ticks...))
	w.exec(`ALTER TABLE dispatcherd.ticks DROP CONSTRAINT refused`)
	require.Equal(t, outcomes("run", "exists", "run"), w.make(w.controller, ticks...))
}

// The same if another session has locked the schedule for a part of the ticks.
func TestNoTickPassesALockedOne(t *testing.T) {
	w := newWorld(t)
	allowAll := func(s *contract.Schedule) { s.Overlap = contract.AllowAll }
	a, b := w.cron("a", allowAll), w.cron("b", allowAll)
	ticks := []schedule.Tick{minute(&a, 1), minute(&b, 1), minute(&a, 2)}
	w.exec(`ALTER TABLE dispatcherd.ticks ADD CONSTRAINT refused CHECK (schedule_id <> ` + strconv.FormatInt(b.ID, 10) + `)`)
	c, n := w.controller, 0 // of the statements: all ticks, the first, the second, the third
	c.Do = func(ctx context.Context, f func(claim.Session) (int, error)) error {
		if n++; n != 2 {
			return w.controller.Do(ctx, f)
		}
		tx, err := w.db.Begin(ctx)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, `SELECT FROM dispatcherd.schedules WHERE id = $1 FOR UPDATE`, a.ID)
		require.NoError(t, err)
		err = w.controller.Do(ctx, f)
		require.NoError(t, tx.Rollback(ctx))
		return err
	}
	require.Equal(t, outcomes("locked", "refused", "locked"), w.make(c, ticks...))
	require.Equal(t, outcomes("run", "refused", "run"), w.make(w.controller, ticks...))
}

// Attack 10: an outage of 3 days of a schedule that runs every minute.
func TestThreeMissedDaysAreCaughtUpAsConfigured(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		catchUp time.Duration
		most    int
		want    map[string]int
	}{
		{time.Hour, 1, map[string]int{"run": 1, "missed": 4319}},
		{72 * time.Hour, 5000, map[string]int{"run": 1, "skipped": 4319}},
	} {
		s := w.cron(name(c.most), func(s *contract.Schedule) { s.CatchUp, s.CatchUpMost = contract.Duration(c.catchUp), c.most })
		now := s.Since.Truncate(time.Minute)
		s.Since = now.Add(-72 * time.Hour)
		plan := schedule.New(schedule.Start{}, 0)
		require.NoError(t, plan.Set(now, &s.SchedulePlan, time.Time{}))
		for {
			ticks, _ := plan.Due(now, MaxTicks)
			if len(ticks) == 0 {
				break
			}
			made, err := w.controller.Make(t.Context(), ticks)
			require.NoError(t, err)
			for i := range ticks {
				plan.Made(now, &ticks[i], made[i].Outcome)
			}
		}
		got := map[string]int{}
		rows, _ := w.db.Query(
			t.Context(),
			`SELECT outcome, sum(coalesce(missed, 1)) FROM dispatcherd.ticks WHERE schedule_id = $1 GROUP BY 1`,
			s.ID,
		)
		var outcome string
		var n int
		_, err := pgx.ForEachRow(rows, []any{&outcome, &n}, func() error {
			got[outcome] = n
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, c.want, got)
		require.Equal(
			t,
			1,
			w.number(`SELECT count(*) FROM dispatcherd.jobs j JOIN dispatcherd.ticks t ON t.job_id = j.id WHERE t.schedule_id = $1`, s.ID),
		)
	}
	require.Equal(t, 2, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
}

// Attack 11: the answer is lost, so the statement is repeated.
func TestARepeatedStatementInsertsNothing(t *testing.T) {
	w := newWorld(t)
	a, b := w.cron("a", nil), w.cron("b", func(s *contract.Schedule) { s.Overlap = contract.QueueAll })
	require.Equal(t, outcomes("run", "run", "queued"), w.make(w.controller, minute(&a, 1), minute(&b, 1), minute(&b, 2)))
	require.Equal(t, outcomes("exists", "exists", "exists"), w.make(w.controller, minute(&a, 1), minute(&b, 1), minute(&b, 2)))
	require.Equal(t, 2, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
}

// Attack 12: the schedule is renamed or deleted while a run is open.
func TestRunsOfADeletedScheduleEndNormally(t *testing.T) {
	w := newWorld(t)
	s := w.cron("s", nil)
	require.Equal(t, outcomes("run"), w.make(w.controller, minute(&s, 1)))
	w.exec(`UPDATE dispatcherd.schedules SET name = 'other'`)
	other, err := w.Get(t.Context(), "other")
	require.NoError(t, err)
	require.Equal(t, outcomes("skipped"), w.make(w.controller, minute(&other, 2)), "the run of the renamed schedule is open")
	require.NoError(t, w.Remove(t.Context(), "other"))
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.jobs WHERE status = 'pending'`))
	again := w.cron("s", nil)
	require.NotEqual(t, s.ID, again.ID)
	require.Equal(t, outcomes("run"), w.make(w.controller, minute(&again, 3)))
}

// Attack 16: several dispatchers start at the same time.
func TestDispatchersThatStartAtTheSameTimeHaveOneFounder(t *testing.T) {
	w := newWorld(t)
	join := func() {
		atOnce(t, 4, func(i int) error {
			store, err := claim.Open(t.Context(), claimfake.Config(w.dsn, name(i)))
			if err != nil {
				return err
			}
			defer store.Close()
			_, err = store.Join(t.Context())
			return err
		})
	}
	join()
	require.Equal(t, 1, w.number(`SELECT count(DISTINCT founder) FROM dispatcherd.dispatchers`))
	join()
	require.Equal(t, 1, w.number(`SELECT count(DISTINCT founder) FROM dispatcherd.dispatchers`), "others are alive")
	w.exec(`UPDATE dispatcherd.dispatchers SET lost_at = now()`)
	join()
	require.Equal(t, 2, w.number(`SELECT count(DISTINCT founder) FROM dispatcherd.dispatchers`), "the cluster started again")
}

// A dispatcher that joins waits for another one that is joining, and inherits its founder.
func TestADispatcherThatJoinsWaitsForOthers(t *testing.T) {
	w := newWorld(t)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), `SELECT FROM dispatcherd.controller FOR UPDATE`)
	require.NoError(t, err)
	_, err = tx.Exec(
		t.Context(),
		`INSERT INTO dispatcherd.dispatchers (id, name, lease, incarnation, founder) OVERRIDING SYSTEM VALUE
			VALUES (7, 'first', '1 min', gen_random_uuid(), 7)`,
	)
	require.NoError(t, err)
	store, err := claim.Open(t.Context(), claimfake.Config(w.dsn, "second"))
	require.NoError(t, err)
	defer store.Close()
	joined := make(chan error, 1)
	go func() {
		_, err := store.Join(t.Context())
		joined <- err
	}()
	require.Eventually(t, func() bool {
		return len(joined) > 0 ||
			w.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-joined)
	require.Equal(t, 2, w.number(`SELECT count(*) FROM dispatcherd.dispatchers WHERE founder = 7`))
}

// Attack 17: occasions at or before the high-water mark.
func TestNoTickOfAHandledOccasion(t *testing.T) {
	w := newWorld(t)
	s := w.cron("s", func(s *contract.Schedule) { s.Overlap = contract.AllowAll })
	require.Equal(t, outcomes("run"), w.make(w.controller, minute(&s, 10)))
	earlier := minute(&s, 9)
	earlier.Occasion = "2026-01-01T00:00:13Z"
	require.Equal(t, outcomes("exists", "run"), w.make(w.controller, earlier, minute(&s, 11)))
}

// Attack 6: the database clock was far ahead and was set back. No handled occasion runs again, and the mark is shown.
func TestHandledOccasionsInTheFutureAreListed(t *testing.T) {
	w := newWorld(t)
	s := w.cron("s", nil)
	require.Nil(t, s.Handled)
	last := minute(&s, 500_000)
	require.Equal(t, outcomes("run", "exists"), append(w.make(w.controller, last), w.make(w.controller, minute(&s, 1))...))
	s, err := w.Get(t.Context(), "s")
	require.NoError(t, err)
	require.True(t, last.Planned.Equal(*s.Handled))
	require.WithinDuration(t, time.Now(), s.ReadAt, time.Minute)
	require.Equal(t, *s.Handled, s.After())
	s.ReadAt = last.Planned.Add(time.Hour)
	require.Equal(t, s.ReadAt, s.After())
	list, err := w.List(t.Context(), "", "", 1000)
	require.NoError(t, err)
	require.Equal(t, s.Handled, list[0].Handled)
}

// Attack 18: calls with the same key at the same time.
func TestRunsOnRequestWithTheSameKeyRunOnce(t *testing.T) {
	w := newWorld(t)
	w.cron("s", func(s *contract.Schedule) { s.Overlap = contract.AllowAll })
	made := make([]contract.MadeTick, 4)
	atOnce(t, len(made), func(i int) (err error) {
		for made[i].Outcome == "" {
			if made[i], err = w.Run(t.Context(), "s", "k", false); err != nil {
				if !strings.Contains(err.Error(), "another session is editing it") {
					return err
				}
				made[i].Outcome = ""
			}
		}
		return nil
	})
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
	for _, m := range made {
		require.Equal(t, made[0].Job, m.Job, "each call gets the job: %+v", made)
	}
}

// A user cancels runs of cancel_other schedules in a transaction that remains open. No tick waits for it,
// and the runs are cancelled after its rollback.
func TestAnOpenCancellationDelaysNoTick(t *testing.T) {
	w := newWorld(t)
	w.limitLocks()
	var first, second []schedule.Tick
	var ids []int64
	for i := range 60 {
		s := w.cron(name(i), func(s *contract.Schedule) { s.Overlap = contract.CancelOther })
		ids = append(ids, s.ID)
		first, second = append(first, minute(&s, 1)), append(second, minute(&s, 2))
	}
	w.make(w.controller, first...)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background()) // the pool waits for the connection
	_, err = tx.Exec(
		t.Context(),
		`INSERT INTO dispatcherd.operations (kind, target) SELECT 'cancel', job_id FROM dispatcherd.schedule_runs WHERE schedule_id <= $1`,
		ids[29],
	)
	require.NoError(t, err)
	begun := time.Now()
	for _, outcome := range w.make(w.controller, second...) {
		require.Equal(t, contract.TickQueued, outcome)
	}
	require.Less(t, time.Since(begun), 2*time.Second)
	require.Equal(t, 60, w.number(`SELECT count(*) FROM dispatcherd.operations WHERE who = 'schedule'`))
	require.NoError(t, tx.Rollback(t.Context()))
	start := func() {
		_, err := w.controller.StartQueued(t.Context(), ids)
		require.NoError(t, err)
	}
	w.end()
	start()
	require.Equal(
		t,
		60,
		w.number(`SELECT count(*) FROM dispatcherd.ticks t WHERE planned_at = $1 AND outcome = 'run' AND reason IS NULL`, second[0].Planned),
	)
}

// A backfill with overlap = cancel_other of a schedule that has another policy.
func TestACancellationOfABackfillIsRepeated(t *testing.T) {
	w := newWorld(t)
	w.limitLocks()
	s := w.cron("s", nil)
	w.make(w.controller, minute(&s, 1))
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background()) // the pool waits for the connection
	_, err = tx.Exec(t.Context(), `INSERT INTO dispatcherd.operations (kind, target) SELECT 'cancel', job_id FROM dispatcherd.schedule_runs`)
	require.NoError(t, err)
	at := time.Now().Add(-time.Hour)
	_, err = w.Backfill(t.Context(), "s", at, at.Add(5*time.Minute), contract.CancelOther)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	_, err = w.controller.StartQueued(t.Context(), []int64{s.ID})
	require.NoError(t, err)
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.operations WHERE kind = 'cancel' AND who = 'schedule'`))
}

// A session has edited a schedule and not committed. A run on request is refused at once; it does not wait for the record of the edit.
func TestARunBesideAnOpenEditIsRefusedAtOnce(t *testing.T) {
	w := newWorld(t)
	w.limitLocks()
	s := w.cron("s", nil)
	w.exec(`DELETE FROM dispatcherd.operations`)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background()) // the pool waits for the connection
	_, err = tx.Exec(t.Context(), `UPDATE dispatcherd.schedules SET priority = 3 WHERE id = $1`, s.ID)
	require.NoError(t, err)
	_, err = w.Run(t.Context(), "s", "k", false)
	require.ErrorContains(t, err, "another session is editing it")
}
