package schedulestore

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/schedule"
	"github.com/dispatcherd/dispatcherd/internal/schedule/cron"
)

func TestSetCreatesAndChangesSchedules(t *testing.T) {
	w := newWorld(t)
	s := contract.NewSchedule()
	s.Name, s.Kind, s.Every, s.Type, s.Payload = "i", contract.Interval, contract.Duration(90*time.Second), "pdf", []byte(`{"a":1}`)
	created, err := w.Set(t.Context(), s)
	require.NoError(t, err)
	require.True(t, created)
	got, err := w.Get(t.Context(), "i")
	require.NoError(t, err)
	require.Equal(t, contract.Duration(90*time.Second), got.Every)
	require.Equal(t, contract.Duration(time.Hour), got.CatchUp)
	require.JSONEq(t, `{"a":1}`, string(got.Payload))
	require.Equal(t, int64(1), got.Version)

	created, err = w.Set(t.Context(), s)
	require.NoError(t, err)
	require.False(t, created)
	same, err := w.Get(t.Context(), "i")
	require.NoError(t, err)
	same.ReadAt = got.ReadAt
	require.Equal(t, got, same, "a change of nothing is no edit")
	from := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	timeout := 500
	s.Priority, s.StartsAt, s.TimeoutMS, s.ExpectedMS, s.Jitter = 7, &from, &timeout, &timeout, contract.Duration(time.Second)
	_, err = w.Set(t.Context(), s)
	require.NoError(t, err)
	got, err = w.Get(t.Context(), "i")
	require.NoError(t, err)
	require.Equal(t, int64(2), got.Version)
	require.True(t, got.Since.After(same.Since), "the plan was edited")
	require.True(t, from.Equal(*got.StartsAt))
	require.Equal(t, 500, *got.ExpectedMS)
	w.cron("c", nil)
	list, err := w.List(t.Context(), "", "", 1000)
	require.NoError(t, err)
	require.Len(t, list, 2)
	list, err = w.List(t.Context(), "", "c", 1)
	require.NoError(t, err)
	require.Equal(t, "i", list[0].Name)

	s.Every = 0
	_, err = w.Set(t.Context(), s)
	require.ErrorIs(t, err, ErrInvalid)
	s.Every, s.MaxAttempts = contract.Duration(time.Second), 0
	_, err = w.Set(t.Context(), s)
	require.EqualError(t, err, "invalid schedule: max_attempts 0: must be from 1 to 32767, for example 5")
	require.NoError(t, w.Remove(t.Context(), "i"))
	for _, call := range []func() error{
		func() error { return w.Remove(t.Context(), "i") }, func() error { return w.Pause(t.Context(), "i") },
		func() error { return w.Resume(t.Context(), "i") },
		func() error { _, err := w.Get(t.Context(), "i"); return err },
		func() error { _, err := w.Run(t.Context(), "i", "k", false); return err },
		func() error { _, err := w.Ticks(t.Context(), "i", contract.Tick{}, 1000); return err },
		func() error { _, err := w.Backfill(t.Context(), "i", from, from, ""); return err },
	} {
		require.ErrorIs(t, call(), ErrNotFound)
	}
}

// The table, Go and the other ways to create a schedule have the same defaults.
func TestDefaultsAreThoseOfTheTable(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO dispatcherd.schedules (name, spec, type) VALUES ('s', '@daily', 'pdf')`)
	inserted, err := w.Get(t.Context(), "s")
	require.NoError(t, err)
	fresh := contract.NewSchedule()
	fresh.Spec, fresh.Type = "@daily", "pdf"
	require.Empty(t, schedule.Differences(&inserted, &fresh))
}

// The table refuses what is no cron expression by its form, and accepts each one that Go accepts.
func TestTableChecksTheFormOfCronExpressions(t *testing.T) {
	w := newWorld(t)
	accepts := func(spec string) bool {
		_, err := w.db.Exec(t.Context(), `INSERT INTO dispatcherd.schedules (name, spec, type) VALUES ('s', $1, 'x')`, spec)
		if err != nil {
			require.ErrorContains(t, err, "spec_is_a_cron_expression", spec)
			return false
		}
		w.exec(`DELETE FROM dispatcherd.schedules`)
		return true
	}
	for _, spec := range []string{
		"nonsense", "every day", "* * * *", "* * * * * * *", "61 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * FOO *",
		"* * * * 8", "* * * * MON#6", "1, * * * *", ",1 * * * *", "*/ * * * *", "@dayly", "@daily x", "* * ? * *", "1;2 * * * *", " ",
		"@every 5m",
	} {
		_, err := cron.Parse(spec)
		require.Error(t, err, spec)
		require.False(t, accepts(spec), spec)
	}
	items := []string{"*", "0", "00", "07", "5", "1-3", "*/2", "10-20/5", "L", "LW", "15W", "lw", "MON", "fri", "MON#1", "5L", "jan",
		"FEB-APR", "23", "31",
		"59", "7", "FRI-SUN", "1,2", "*,3", "0-0", "1,15,L", "SUN,MON#2", "60", "x"}
	rng := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	for range 20_000 {
		fields := make([]string, 5+rng.IntN(2))
		for i := range fields {
			fields[i] = items[rng.IntN(len(items))]
			if rng.IntN(2) == 0 {
				fields[i] = "*"
			}
		}
		spec := strings.Join(fields, []string{" ", "  ", "\t"}[rng.IntN(3)])
		if _, err := cron.Parse(spec); err == nil && accepted < 1500 {
			accepted++
			require.True(t, accepts(spec), spec)
		}
	}
	require.Greater(t, accepted, 1000)
	for _, spec := range []string{"@DAILY", " @hourly ", "0 0 30 2 *", "30-10 * * * *"} { // Go refuses the last two
		require.True(t, accepts(spec), spec)
	}
}

func TestTableRejectsInvalidSchedules(t *testing.T) {
	w := newWorld(t)
	for rule, columns := range map[string]string{
		"name_is_1_to_128_letters": `'a b', 'cron', '* * * * *', NULL, 'UTC', NULL, 'x'`,
		"kind_is_cron_interval":    `'a', 'daily', '* * * * *', NULL, 'UTC', NULL, 'x'`,
		"only_cron_has_spec":       `'a', 'cron', NULL, NULL, 'UTC', NULL, 'x'`,
		"only_interval_has_every":  `'a', 'cron', '* * * * *', '1 s', 'UTC', NULL, 'x'`,
		"every_is_1_second":        `'a', 'interval', NULL, '0', 'UTC', NULL, 'x'`,
		"only_startup_has_once":    `'a', 'startup', NULL, NULL, 'UTC', NULL, 'x'`,
		"once_is_start_version":    `'a', 'startup', NULL, NULL, 'UTC', 'daily', 'x'`,
		`time zone "Mars"`:         `'a', 'cron', '* * * * *', NULL, 'Mars', NULL, 'x'`,
		"type_is_1_to_128_bytes":   `'a', 'cron', '* * * * *', NULL, 'UTC', NULL, ''`,
	} {
		_, err := w.db.Exec(
			t.Context(),
			`INSERT INTO dispatcherd.schedules (name, kind, spec, every, time_zone, once, type) VALUES (`+columns+`)`,
		)
		require.ErrorContains(t, err, rule)
	}
	w.cron("a", nil)
	_, err := w.db.Exec(t.Context(), `INSERT INTO dispatcherd.schedules (name, kind, spec, type) VALUES ('a', 'cron', '* * * * *', 'x')`)
	require.ErrorContains(t, err, "schedule_name_is_unique")
	_, err = w.db.Exec(t.Context(), `INSERT INTO dispatcherd.schedules (name, kind, type, keys) VALUES ('b', 'startup-worker', 'x', 'k')`)
	require.ErrorContains(t, err, "startup_worker_has_no_keys")
	for rule, change := range map[string]string{
		"jitter_is_0_to_1_day": "jitter = '2 days'", "catch_up_is_0_to_366_days": "catch_up = '-1 s'",
		"catch_up_most_is_0_to_10000": "catch_up_most = -1",
		"overlap_is_skip":             "overlap = 'both'", "ends_at_is_after_starts_at": "starts_at = '2030-01-02', ends_at = '2030-01-01'",
		"starts_at_is_between": "starts_at = 'infinity'",
	} {
		_, err := w.db.Exec(t.Context(), `UPDATE dispatcherd.schedules SET `+change)
		require.ErrorContains(t, err, rule)
	}
}

// Instants that a dispatcher cannot read would stop the load of all schedules.
func TestTableRejectsInstantsThatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	s := w.cron("s", nil)
	for _, column := range []string{"planned_at", "run_at"} {
		_, err := w.db.Exec(
			t.Context(),
			`INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome, `+column+`) VALUES ($1, 'x', 'skipped', 'infinity')`,
			s.ID,
		)
		require.ErrorContains(t, err, column+"_is_between_1970_and_2200")
	}
	rows, err := w.controller.Load(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, rows, 1)
}

// Each policy gets three ticks while the first run is open, and further ticks after its end.
func TestOverlapPolicies(t *testing.T) {
	w := newWorld(t)
	for policy, want := range map[string][]string{
		contract.Skip:        {"run", "skipped", "skipped"},
		contract.QueueOne:    {"run", "queued", "skipped"},
		contract.QueueAll:    {"run", "queued", "queued"},
		contract.CancelOther: {"run", "queued", "queued"},
		contract.AllowAll:    {"run", "run", "run"},
	} {
		s := w.cron(policy, func(s *contract.Schedule) { s.Overlap = policy })
		for i, outcome := range want {
			require.Equal(t, outcomes(outcome), w.make(w.controller, minute(&s, 1+i)), "%s, tick %d", policy, i)
		}
		other := w.cron(policy+"-together", func(s *contract.Schedule) { s.Overlap = policy })
		if policy == contract.CancelOther { // the last one replaces the others
			want = []string{"skipped", "skipped", "run"}
		}
		require.Equal(t, want, w.make(w.controller, minute(&other, 1), minute(&other, 2), minute(&other, 3)), "%s in one statement", policy)
		if policy == contract.CancelOther {
			require.Equal(t, outcomes("skipped", "queued"), w.make(w.controller, minute(&other, 4), minute(&other, 5)), "while a run is open")
		}
	}
	require.Equal(
		t,
		2,
		w.number(`SELECT count(*) FROM dispatcherd.operations WHERE kind = 'cancel' AND who = 'schedule'`),
		"cancel_other cancels its open run",
	)
	require.Equal(
		t,
		1,
		w.number(
			`SELECT count(*) FROM dispatcherd.ticks t JOIN dispatcherd.schedules s ON s.id = t.schedule_id
				WHERE s.name = 'cancel_other' AND t.outcome = 'queued'`,
		),
		"the third run replaces the second",
	)

	ids := []int64{}
	list, err := w.List(t.Context(), "", "", 1000)
	require.NoError(t, err)
	for i := range list {
		ids = append(ids, list[i].ID)
	}
	started, err := w.controller.StartQueued(t.Context(), ids)
	require.NoError(t, err)
	for _, s := range started {
		require.Zero(t, s.Job, "the first run is open")
	}
	w.end()
	starts := func() (jobs, waiting int) {
		started, err := w.controller.StartQueued(t.Context(), ids)
		require.NoError(t, err)
		for _, s := range started {
			if s.Job > 0 {
				jobs++
			}
			if s.Waiting {
				waiting++
			}
		}
		return jobs, waiting
	}
	jobs, waiting := starts()
	require.Equal(t, []int{6, 2}, []int{jobs, waiting})
	jobs, waiting = starts()
	require.Equal(t, []int{0, 2}, []int{jobs, waiting}, "one run at a time")
	w.end()
	jobs, waiting = starts()
	require.Equal(t, []int{2, 0}, []int{jobs, waiting})
}

// Queued ticks of one schedule are bounded.
func TestQueuedTicksAreBounded(t *testing.T) {
	w := newWorld(t)
	s := w.cron("s", func(s *contract.Schedule) { s.Overlap = contract.QueueAll })
	w.exec(
		`INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome, run_at) SELECT $1, n::text, 'queued', now()
			FROM generate_series(1, 10000) n`,
		s.ID,
	)
	require.Equal(t, outcomes("skipped"), w.make(w.controller, minute(&s, 1)))
}

func TestMissedTicksCountOccasions(t *testing.T) {
	w := newWorld(t)
	s := w.cron("s", nil)
	missed := minute(&s, 7)
	missed.Missed = 7
	require.Equal(t, outcomes("missed", "run"), w.make(w.controller, missed, minute(&s, 8)))
	ticks, err := w.Ticks(t.Context(), "s", contract.Tick{}, 1000)
	require.NoError(t, err)
	require.Equal(t, 7, ticks[1].Missed)
	require.Equal(t, "pending", ticks[0].Status)
	older, err := w.Ticks(t.Context(), "s", ticks[0], 1)
	require.NoError(t, err)
	require.Equal(t, ticks[1:], older)
}

// Pages omit no tick of a statement that made several at one instant.
func TestPagesContainEveryTick(t *testing.T) {
	w := newWorld(t)
	s := w.cron("s", nil)
	w.exec(
		`INSERT INTO dispatcherd.ticks (schedule_id, occasion, outcome, made_at)
			SELECT $1, n::text, 'skipped', to_timestamp(n / 4) FROM generate_series(1, 10) n`,
		s.ID,
	)
	var pages []string
	var last contract.Tick
	for {
		page, err := w.Ticks(t.Context(), "s", last, 3)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		for i := range page {
			pages = append(pages, page[i].Occasion)
		}
		last = page[len(page)-1]
	}
	require.Equal(t, []string{"9", "8", "10", "7", "6", "5", "4", "3", "2", "1"}, pages)
}

// A run on request follows the overlap policy and a pause, unless it is forced.
func TestRunOnRequest(t *testing.T) {
	w := newWorld(t)
	w.cron("s", nil)
	m, err := w.Run(t.Context(), "s", "1", false)
	require.NoError(t, err)
	require.Equal(t, "run", m.Outcome)
	m, err = w.Run(t.Context(), "s", "2", false)
	require.NoError(t, err)
	require.Equal(t, "skipped", m.Outcome)
	m, err = w.Run(t.Context(), "s", "3", true)
	require.NoError(t, err)
	require.Equal(t, "run", m.Outcome)
	require.NoError(t, w.Pause(t.Context(), "s"))
	_, err = w.Run(t.Context(), "s", "4", false)
	require.ErrorContains(t, err, "resume")
	_, err = w.Run(t.Context(), "s", "5", true)
	require.NoError(t, err)
	_, err = w.Run(t.Context(), "s", "", true)
	require.ErrorIs(t, err, ErrInvalid)
	require.Zero(
		t,
		w.number(`SELECT count(*) FROM dispatcherd.ticks WHERE planned_at IS NOT NULL`),
		"runs on request do not move the high-water mark",
	)
	w.end()
	require.NoError(t, w.Resume(t.Context(), "s"))
	s, err := w.Get(t.Context(), "s")
	require.NoError(t, err)
	require.Equal(t, outcomes("run"), w.make(w.controller, minute(&s, 1)))
}

// A backfill makes the ticks of past occasions, in order, and omits those that exist.
func TestBackfill(t *testing.T) {
	w := newWorld(t)
	s := w.cron("s", func(s *contract.Schedule) { s.Spec, s.TimeZone = "0 * * * *", "Europe/Berlin" })
	to := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	counts, err := w.Backfill(t.Context(), "s", to.Add(-5*time.Hour), to, "")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"run": 1, "queued": 5}, counts)
	counts, err = w.Backfill(t.Context(), "s", to.Add(-7*time.Hour), to, "")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"exists": 6, "queued": 2}, counts)
	edited, _, err := w.controller.Edits(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, edited, 1)
	require.True(t, edited[s.ID].Queued, "the controller learns of queued ticks")
	require.Nil(t, edited[s.ID].Handled, "a backfill does not move the high-water mark")
	_, err = w.Backfill(t.Context(), "s", to, time.Now().Add(time.Hour), "")
	require.ErrorContains(t, err, "future")
	_, err = w.Backfill(t.Context(), "s", to.AddDate(-2, 0, 0), to, "")
	require.ErrorContains(t, err, "10000")
}

// A backfill runs all occasions that a missed tick counts, also the one that the tick names.
func TestBackfillRunsMissedOccasions(t *testing.T) {
	w := newWorld(t)
	s := w.cron("s", nil)
	now := s.Since.Truncate(time.Minute)
	s.Since = now.Add(-10 * time.Minute)
	plan := schedule.New(schedule.Start{}, 0)
	require.NoError(t, plan.Set(now, &s.SchedulePlan, time.Time{}))
	ticks, _ := plan.Due(now, 100)
	require.Equal(t, outcomes("missed", "run"), w.make(w.controller, ticks...))
	require.Equal(t, 9, ticks[0].Missed)
	counts, err := w.Backfill(t.Context(), "s", now.Add(-9*time.Minute), now, "")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"queued": 9, "exists": 1}, counts)
}

func TestBackfillRejectsInvalidParameters(t *testing.T) {
	w := newWorld(t)
	w.cron("s", nil)
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	_, err := w.Backfill(t.Context(), "s", at, at, "parallel")
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, `overlap "parallel": must be skip, queue_one`)
	_, err = w.Backfill(t.Context(), "s", at, at.Add(-time.Second), "")
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "from 2026-03-01T00:00:00Z: must not be after to 2026-02-28T23:59:59Z")
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.ticks`))
}

// A backfill that stops in the middle says what it has done, and may be repeated.
func TestBackfillThatStopsReturnsItsCounts(t *testing.T) {
	w := newWorld(t)
	w.cron("s", nil)
	from := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	w.exec(`ALTER TABLE dispatcherd.ticks ADD CONSTRAINT refused CHECK (occasion < '2026-03-01T20:00:00Z')`)
	counts, err := w.Backfill(t.Context(), "s", from, from.Add(1499*time.Minute), "")
	require.ErrorContains(t, err, "refused")
	require.Equal(t, map[string]int{"run": 1, "queued": 999}, counts)
	w.exec(`ALTER TABLE dispatcherd.ticks DROP CONSTRAINT refused`)
	counts, err = w.Backfill(t.Context(), "s", from, from.Add(1499*time.Minute), "")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"exists": 1000, "queued": 500}, counts)
}

// A page of payloads would not be bounded.
func TestListContainsNoPayloads(t *testing.T) {
	w := newWorld(t)
	w.cron("s", func(s *contract.Schedule) { s.Payload = []byte(`{"page": 1}`) })
	list, err := w.List(t.Context(), "", "", 1000)
	require.NoError(t, err)
	require.Empty(t, list[0].Payload)
}

// Edits are records of the schedules to read again. The controller deletes them.
func TestEditsAreRecordedOnce(t *testing.T) {
	w := newWorld(t)
	a, b := w.cron("a", nil), w.cron("b", nil)
	w.exec(`UPDATE dispatcherd.schedules SET priority = 1`)
	edited, more, err := w.controller.Edits(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, edited, 2)
	require.False(t, more)
	require.NoError(t, w.Remove(t.Context(), "b"))
	w.exec(`UPDATE dispatcherd.schedules SET error = 'x'`)
	edited, _, err = w.controller.Edits(t.Context(), []int64{a.ID})
	require.NoError(t, err)
	require.Len(t, edited, 2, "the record of the deletion is new, and a is read without a record")
	require.Contains(t, edited, b.ID)
	require.Nil(t, edited[b.ID])
	require.Equal(t, "x", edited[a.ID].Error)
	edited, _, err = w.controller.Edits(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, edited)
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.operations WHERE kind = 'schedule_edited'`))
	require.Equal(t, outcomes("changed"), w.make(w.controller, minute(&a, 1)))
	row, err := w.controller.Load(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, row, 1)
	tick := minute(&a, 1)
	tick.Version = 2
	require.Equal(t, outcomes("run"), w.make(w.controller, tick))
	require.Zero(t, w.number(`SELECT count(*) FROM dispatcherd.operations WHERE kind = 'schedule_edited'`), "ticks write no edits")
	row, err = w.controller.Load(t.Context(), 0)
	require.NoError(t, err)
	require.True(t, tick.Planned.Equal(*row[0].Handled))
}

// The controller writes errors of its plan. It waits for no lock, and repeats what it has left out.
func TestErrorsOfLockedSchedulesAreReportedLater(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.cron("a", nil), w.cron("b", nil), w.cron("c", nil)
	problems := []Problem{{a.ID, a.Version, "x"}, {b.ID, b.Version, "x"}, {c.ID, c.Version + 1, "x"}}
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM dispatcherd.schedules WHERE name = 'a' FOR UPDATE`)
	require.NoError(t, err)
	locked, err := w.controller.Report(t.Context(), problems)
	require.NoError(t, err)
	require.Equal(t, []int64{a.ID}, locked)
	require.NoError(t, tx.Rollback(t.Context()))
	locked, err = w.controller.Report(t.Context(), problems)
	require.NoError(t, err)
	require.Empty(t, locked)
	require.Equal(t, 2, w.number(`SELECT count(*) FROM dispatcherd.schedules WHERE error = 'x' AND name < 'c'`))
	require.Equal(t, 2, w.number(`SELECT count(*) FROM dispatcherd.schedules WHERE error = 'x'`))
}

// One statement notifies at most once, whatever it edits.
func TestEditsNotifyOncePerStatement(t *testing.T) {
	w := newWorld(t)
	conn, err := w.db.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), `LISTEN dispatcherd`)
	require.NoError(t, err)
	w.exec(`INSERT INTO dispatcherd.schedules (name, kind, spec, type) SELECT 's' || n, 'cron', '* * * * *', 'x' FROM generate_series(1, 5) n`)
	w.exec(`UPDATE dispatcherd.schedules SET error = 'x'`)
	w.exec(`NOTIFY dispatcherd, 'end'`)
	var seen []string
	for len(seen) == 0 || seen[len(seen)-1] != "end" {
		note, err := conn.Conn().WaitForNotification(t.Context())
		require.NoError(t, err)
		seen = append(seen, note.Payload)
	}
	require.Equal(t, []string{"edits", "end"}, seen)
}

func TestLastRunsOfIntervals(t *testing.T) {
	w := newWorld(t)
	s := contract.NewSchedule()
	s.Name, s.Kind, s.Every, s.Type = "i", contract.Interval, contract.Duration(time.Second), "x"
	_, err := w.Set(t.Context(), s)
	require.NoError(t, err)
	s, err = w.Get(t.Context(), "i")
	require.NoError(t, err)
	last := func() schedule.Run {
		runs, err := w.controller.LastRuns(t.Context(), []int64{s.ID})
		require.NoError(t, err)
		require.Len(t, runs, 1)
		runs[0].EndedAt = runs[0].EndedAt.UTC() // whatever the time zone of the test is
		return runs[0]
	}
	require.Equal(t, schedule.Run{Schedule: s.ID}, last())
	require.Equal(t, outcomes("run"), w.make(w.controller, minute(&s, 0)))
	require.Equal(t, schedule.Run{Schedule: s.ID, Exists: true, Open: true}, last())
	w.exec(
		`WITH gone AS (DELETE FROM dispatcherd.jobs_live RETURNING id, type)
			INSERT INTO dispatcherd.jobs_done (id, type, status, finished_at) SELECT id, type, 'done', now() FROM gone`,
	)
	r := last()
	require.False(t, r.Open)
	require.WithinDuration(t, time.Now(), r.EndedAt, time.Minute)
	w.exec(`UPDATE dispatcherd.ticks SET made_at = made_at + interval '1 hour'`) // the clock was set back
	require.Equal(t, outcomes("run"), w.make(w.controller, minute(&s, 1)))
	w.exec(`WITH gone AS (DELETE FROM dispatcherd.jobs_live RETURNING id, type)
		INSERT INTO dispatcherd.jobs_done (id, type, status, finished_at) SELECT id, type, 'done', now() + interval '1 minute' FROM gone`)
	require.True(t, last().EndedAt.After(r.EndedAt), "not the run whose tick was made at the latest time")
	w.exec(`UPDATE dispatcherd.jobs_done SET finished_at = finished_at + interval '1 hour'
		WHERE id = (SELECT min(id) FROM dispatcherd.jobs_done)`)
	w.exec(`INSERT INTO dispatcherd.schedule_runs SELECT schedule_id, min(job_id) FROM dispatcherd.ticks GROUP BY 1 ON CONFLICT DO NOTHING`)
	require.True(t, last().EndedAt.After(r.EndedAt.Add(30*time.Minute)), "an earlier run was retried, and has ended after the last one")
	w.exec(`DELETE FROM dispatcherd.jobs_done`)
	require.Equal(t, schedule.Run{Schedule: s.ID, Exists: true}, last())
}

// The role of operators suffices for their work.
func TestOperatorsMayEditSchedules(t *testing.T) {
	w := newWorld(t)
	conn, err := pgx.Connect(t.Context(), w.dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	for _, role := range []string{"dispatcherd_operator", "dispatcherd_dispatcher"} {
		_, err = conn.Exec(t.Context(), `SET ROLE `+role)
		require.NoError(t, err)
		o := &world{t: t, Schedules: Schedules{DB: conn}}
		o.cron(role, func(s *contract.Schedule) { s.Overlap = contract.QueueAll })
		_, err = o.Run(t.Context(), role, "k", false)
		require.Equal(t, role == "dispatcherd_operator", err != nil, "operators ask a dispatcher, which decides: %v", err)
		_, err = o.Backfill(t.Context(), role, time.Now().Add(-time.Hour), time.Now(), "")
		require.Equal(t, role == "dispatcherd_operator", err != nil, "%v", err)
		_, err = o.Ticks(t.Context(), role, contract.Tick{}, 0)
		require.NoError(t, err)
		require.NoError(t, o.Pause(t.Context(), role))
		require.NoError(t, o.Remove(t.Context(), role))
		_, err = conn.Exec(t.Context(), `RESET ROLE`)
		require.NoError(t, err)
	}
}

// Two sessions read a schedule, and both write it. The second write must not undo the first one.
func TestSetOfAnOldVersionUndoesNoEdit(t *testing.T) {
	w := newWorld(t)
	s := contract.NewSchedule()
	s.Name, s.Kind, s.Spec, s.Type, s.Version = "c", contract.Cron, "@daily", "pdf", contract.NoVersion
	_, err := w.Set(t.Context(), s)
	require.NoError(t, err)
	_, err = w.Set(t.Context(), s)
	require.ErrorIs(t, err, ErrEdited, "it exists")
	first, err := w.Get(t.Context(), "c")
	require.NoError(t, err)
	second := first
	first.Priority, second.Spec = 7, "@hourly"
	_, err = w.Set(t.Context(), first)
	require.NoError(t, err)
	_, err = w.Set(t.Context(), second)
	require.ErrorIs(t, err, ErrEdited)
	require.ErrorContains(t, err, `schedule "c": it was created, edited or deleted after it was read: read it again`)
	got, err := w.Get(t.Context(), "c")
	require.NoError(t, err)
	require.EqualValues(t, 7, got.Priority)
	require.Equal(t, "@daily", got.Spec)
	require.NoError(t, w.Remove(t.Context(), "c"))
	_, err = w.Set(t.Context(), got)
	require.ErrorIs(t, err, ErrEdited, "it was deleted")
	got.Version = 0
	created, err := w.Set(t.Context(), got)
	require.NoError(t, err)
	require.True(t, created)
}

// Each tick finds the tick of its occasion by the primary key: it does not read all ticks of its schedule.
func TestTicksReadFewOtherTicks(t *testing.T) {
	w := newWorld(t)
	w.cron("s", nil)
	to := time.Now().Add(-time.Hour).Truncate(time.Minute)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background()) // the pool waits for the connection
	counts, err := Schedules{DB: tx}.Backfill(t.Context(), "s", to.Add(-2999*time.Minute), to, "")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"run": 1, "queued": 2999}, counts)
	var read int
	require.NoError(
		t,
		tx.QueryRow(t.Context(), `SELECT sum(idx_tup_fetch + seq_tup_read) FROM pg_stat_xact_user_tables WHERE relname = 'ticks'`).Scan(&read),
	)
	require.Less(t, read, 20_000)
}

// Many runs of a schedule do not end. Its ticks read few of them, find those that have ended, and cancel a portion.
func TestTicksReadFewOpenRuns(t *testing.T) {
	w := newWorld(t)
	s := w.cron("s", func(s *contract.Schedule) { s.Overlap = contract.AllowAll })
	w.exec(`WITH job AS (INSERT INTO dispatcherd.jobs (type) SELECT 'pdf' FROM generate_series(1, 20000) RETURNING id)
		INSERT INTO dispatcherd.schedule_runs SELECT $1, id FROM job`, s.ID)
	w.exec(`ANALYZE`) // no vacuum: afterwards index-only scans would not be counted
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background()) // without effect after Commit
	read := func() (n int) {                // may count earlier transactions of the session
		require.NoError(
			t,
			tx.QueryRow(t.Context(), `SELECT sum(idx_tup_fetch + seq_tup_read) FROM pg_stat_xact_user_tables
				WHERE relname IN ('schedule_runs', 'jobs_live')`).
				Scan(&n),
		)
		return n
	}
	before := read()
	results, err := session{1, 1}.apply(t.Context(), tx, schedule.Requests([]schedule.Tick{minute(&s, 1)}))
	require.NoError(t, err)
	require.Equal(t, contract.TickRun, results[s.ID].made[0].Outcome)
	_, err = session{1, 1}.apply(t.Context(), tx, []schedule.Request{{Schedule: s.ID}})
	require.NoError(t, err)
	require.Less(t, read()-before, 5000, "at most 1,000 runs are counted")
	require.NoError(t, tx.Commit(t.Context()))

	w.exec(`UPDATE dispatcherd.schedules SET overlap = 'cancel_other'`)
	s, err = w.Get(t.Context(), "s")
	require.NoError(t, err)
	require.Equal(t, outcomes("queued"), w.make(w.controller, minute(&s, 2)))
	require.Equal(t, 1000, w.number(`SELECT count(*) FROM dispatcherd.operations WHERE kind = 'cancel'`))
	_, err = w.controller.StartQueued(t.Context(), []int64{s.ID})
	require.NoError(t, err)
	require.Equal(t, 2000, w.number(`SELECT count(*) FROM dispatcherd.operations WHERE kind = 'cancel'`))
	w.end()
	for _, left := range []int{8901, 1, 1} { // a call deletes at most 11,100; the last one is the new run
		_, err := w.controller.StartQueued(t.Context(), []int64{s.ID})
		require.NoError(t, err)
		require.Equal(t, left, w.number(`SELECT count(*) FROM dispatcherd.schedule_runs`))
	}
	require.Equal(t, 1, w.number(`SELECT count(*) FROM dispatcherd.jobs`))
}

// A load deletes the ended runs that no tick finds, because older runs are open.
func TestALoadForgetsEndedRuns(t *testing.T) {
	w := newWorld(t)
	s := w.cron("s", func(s *contract.Schedule) { s.Overlap = contract.AllowAll })
	w.exec(`WITH job AS (INSERT INTO dispatcherd.jobs (type) SELECT 'pdf' FROM generate_series(1, 100) RETURNING id)
		INSERT INTO dispatcherd.schedule_runs SELECT $1::bigint, id FROM job UNION ALL SELECT $1, max(id) + 1000 FROM job`, s.ID)
	w.make(w.controller, minute(&s, 1))
	require.Equal(t, 102, w.number(`SELECT count(*) FROM dispatcherd.schedule_runs`))
	_, _, err := w.controller.Expire(t.Context(), time.Time{})
	require.NoError(t, err)
	require.Equal(t, 101, w.number(`SELECT count(*) FROM dispatcherd.schedule_runs`))
}

// The schedule is deleted while Set waits for the lock of its row.
func TestSetOfAnOldVersionUndoesNoDeletion(t *testing.T) {
	w := newWorld(t)
	w.cron("c", nil)
	read, err := w.Get(t.Context(), "c")
	require.NoError(t, err)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background()) // without effect after Commit
	_, err = tx.Exec(t.Context(), `DELETE FROM dispatcherd.schedules`)
	require.NoError(t, err)
	set := make(chan error, 1)
	go func() {
		_, err := w.Set(t.Context(), read)
		set <- err
	}()
	require.Eventually(t, func() bool {
		return w.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 1
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, tx.Commit(t.Context()))
	require.ErrorIs(t, <-set, ErrEdited)
	_, err = w.Get(t.Context(), "c")
	require.ErrorIs(t, err, ErrNotFound)
}

// Set creates no schedule beyond the bound, and still edits those that exist. Ids of deleted schedules do not count.
func TestSetRefusesASurplusSchedule(t *testing.T) {
	w := newWorld(t)
	w.Most = 3
	for range 3 {
		w.cron("gone", nil)
		require.NoError(t, w.Remove(t.Context(), "gone"))
	}
	for i := range 3 {
		w.cron(name(i), nil)
	}
	s := contract.NewSchedule()
	s.Name, s.Kind, s.Spec, s.Type = "more", contract.Cron, "@daily", "pdf"
	for _, s.Version = range []int64{0, contract.NoVersion} {
		_, err := w.Set(t.Context(), s)
		require.ErrorIs(t, err, ErrFull)
		require.EqualError(
			t,
			err,
			`schedule "more": there are 100000 schedules, and no more can run: remove one first, for example with 'dispatcherd schedule rm old'`,
		)
	}
	w.cron(name(1), func(s *contract.Schedule) { s.Priority = 3 })
	require.Equal(t, 3, w.number(`SELECT count(*) FROM dispatcherd.schedules`))
	require.NoError(t, w.Remove(t.Context(), name(0)))
	w.cron("more", nil)
}

// At the bound the test reads one entry of the index per schedule at most, and below it one row.
func TestSetCountsSchedulesCheaply(t *testing.T) {
	w := newWorld(t)
	w.exec(
		`INSERT INTO dispatcherd.schedules (name, kind, spec, type) SELECT 's' || n, 'cron', '@daily', 'pdf' FROM generate_series(1, 2000) n`,
	)
	w.exec(`VACUUM ANALYZE dispatcherd.schedules`)
	for most, want := range map[int]string{2000: "Index Only Scan", 3000: "never executed"} {
		rows, _ := w.db.Query(t.Context(), `EXPLAIN (ANALYZE, COSTS OFF) `+fullSQL, "new", most)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		plan := strings.Join(lines, "\n")
		_, count, found := strings.Cut(plan, "Limit (actual")
		if most == 3000 {
			_, count, found = strings.Cut(plan, "Aggregate (")
		}
		require.True(t, found, plan)
		require.Contains(t, count, want, plan)
	}
}

// RemoveVersion removes only what was read.
func TestRemoveOfAVersion(t *testing.T) {
	w := newWorld(t)
	s := w.cron("s", nil)
	require.NoError(t, w.Pause(t.Context(), "s"))
	require.ErrorIs(t, w.RemoveVersion(t.Context(), "s", s.Version), ErrEdited)
	require.NoError(t, w.RemoveVersion(t.Context(), "s", s.Version+1))
	require.ErrorIs(t, w.RemoveVersion(t.Context(), "s", s.Version+1), ErrEdited, "it was deleted")
}

// What only Postgres can reject is explained like what the check rejects.
func TestRefusalsOfPostgresAreExplained(t *testing.T) {
	w := newWorld(t)
	s := contract.NewSchedule()
	s.Name, s.Kind, s.Spec, s.Type = "s", contract.Cron, "@daily", "pdf"
	s.Payload = []byte(`"` + strings.Repeat("x", 1_000_001) + `"`)
	_, err := w.Set(t.Context(), s)
	require.ErrorIs(t, err, ErrInvalid)
	require.EqualError(
		t,
		err,
		`schedule "s": invalid schedule: payload: the payload has more than 1,000,000 bytes as Postgres stores it: store large `+
			`data outside the job and refer to it, for example {"page": 1}`,
	)
	s.TimeZone = "Moon"
	err = refused(&s, &pgconn.PgError{Code: "22023", Message: `time zone "Moon" not recognized`})
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(
		t,
		err,
		`time_zone "Moon": Postgres does not know it: must be a name of its time zone database, for example "Europe/Berlin"`,
	)
	locked := &pgconn.PgError{Code: "55P03"}
	require.Equal(t, locked, refused(&s, locked))
}
