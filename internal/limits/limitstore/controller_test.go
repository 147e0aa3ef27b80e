package limitstore

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// Attack 11: a controller was stopped for a minute. Another one has begun, also in the same term. The late statements change nothing.
func TestStatementsOfAFormerControllerChangeNothing(t *testing.T) {
	w := newWorld(t)
	rows := w.insert("k", 1, 3)
	w.admit(w.Controller, 10, rows[0])
	w.exec(`INSERT INTO dispatcherd.limits (key, capacity) VALUES ('k', 2)`)
	w.exec(
		`INSERT INTO dispatcherd.key_starts VALUES ('k', 0, 'infinity', 5, now() + interval '1 h'), ('old', 0, now(), 1, now() - interval '1 h')`,
	)
	former := w.controller(1, 1)
	*former = *w.Controller
	w.begin(w.Controller)
	state := `SELECT array_agg(x ORDER BY x) FROM (SELECT format('%s %s', id, fence) AS x FROM dispatcherd.jobs_live
		UNION ALL SELECT format('%s %s %s', key, part, cost) FROM dispatcherd.key_starts
		UNION ALL SELECT 'edit' FROM dispatcherd.operations WHERE kind = 'limits_edited') s`
	before := one[[]string](w, state)

	admitted, err := former.Admit(t.Context(), starting(rows[1], 11, permits.Start{Key: "k", Cost: 1, Per: 1e6}))
	require.ErrorIs(t, err, ErrNotController)
	require.Empty(t, admitted)
	withdrawn, err := former.Withdraw(t.Context(), held(10))
	require.ErrorIs(t, err, ErrNotController)
	require.Empty(t, withdrawn)
	require.NoError(t, former.Confirm(t.Context(), []permits.Start{{Key: "k", Cost: 1, Per: 1e6, At: due}}))
	_, err = former.Expire(t.Context())
	require.NoError(t, err)
	edited, err := former.Edits(t.Context(), 0)
	require.NoError(t, err)
	require.Empty(t, edited)
	require.Equal(t, before, one[[]string](w, state))

	w.exec(`UPDATE dispatcherd.controller SET dispatcher = 2, term = 2`)
	_, _, err = w.Begin(t.Context())
	require.ErrorIs(t, err, ErrNotController)
	_, err = w.Admit(t.Context(), []permits.Permit{admission(rows[1], 12, 0)})
	require.ErrorIs(t, err, ErrNotController, "the role belongs to another dispatcher")
	second := w.controller(2, 2)
	w.begin(second)
	require.Equal(t, ids(2), w.admit(second, 13, rows[1]))
	_, err = second.Edits(t.Context(), 0)
	require.NoError(t, err)
	more, err := second.Expire(t.Context())
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, []string{"1 10", "2 13", "3 ", "k infinity 5"}, one[[]string](w, state))
}

// Attack 10: a controller is killed while its admission is in flight. The next one waits for it, and then sees the permit.
func TestBeginWaitsForStatementsInFlight(t *testing.T) {
	w := newWorld(t)
	rows := w.insert("k", 1, 2)
	unlock := w.lock(`INSERT INTO dispatcherd.key_starts VALUES ('k', 0, 'infinity', 1, now())`) // the admission waits for the same row
	defer unlock()
	former := *w.Controller
	admitted := make(chan map[int64]dispatcherd.DurationClass, 1)
	go func() {
		list, err := former.Admit(context.Background(), starting(rows[0], 10, permits.Start{Key: "k", Cost: 1, Per: 1e6}))
		if err != nil {
			t.Error(err)
		}
		admitted <- list
	}()
	waits := func(n int, statement string) func() bool {
		return func() bool {
			return one[int](
				w,
				`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'`,
				statement,
			) == n
		}
	}
	require.Eventually(t, waits(1, "SKIP LOCKED"), 30*time.Second, 2*time.Millisecond, "the second attempt, which has no short lock timeout")
	began := make(chan error, 1)
	next := w.controller(1, 1)
	go func() {
		_, _, err := next.Begin(context.Background())
		began <- err
	}()
	require.Eventually(t, waits(2, ""), 30*time.Second, 2*time.Millisecond, "Begin waits")
	unlock()
	require.Equal(t, ids(1), idsOf(<-admitted))
	require.NoError(t, <-began)
	held, err := next.Held(t.Context())
	require.NoError(t, err)
	require.Len(t, held, 1)
	require.EqualValues(t, 10, held[0].Fence)
}

func TestFencesGrowWithEachBegin(t *testing.T) {
	w := newWorld(t)
	w.insert("k", 1, 3)
	first, last := w.begin(w.Controller)
	require.EqualValues(t, 3, last)
	next, _ := w.begin(w.controller(1, 1))
	require.Equal(t, first+1<<32, next)
	w.exec(`DELETE FROM dispatcherd.jobs_live`)
	_, last = w.begin(w.Controller)
	require.Zero(t, last)
}

// An admission takes waiting and returned rows, and no others. If it meets a locked row, it leaves it out.
func TestAdmitTakesWaitingAndReturnedRowsOnly(t *testing.T) {
	w := newWorld(t)
	rows := w.insert("k", 1, 9)
	require.Equal(t, ids(1, 2), w.admit(w.Controller, 10, rows[0], rows[1]))
	w.start(1)
	w.start(2)
	w.returns(2)
	w.exec(`UPDATE dispatcherd.jobs_live SET keys = NULL WHERE id = 3`)
	w.exec(`DELETE FROM dispatcherd.jobs_live WHERE id = 6`)
	w.exec(`SELECT dispatcherd.end_idle(ARRAY[7], 'cancelled', session_user, NULL)`)
	unlock := w.lock(`SELECT FROM dispatcherd.jobs_live WHERE id = 8 FOR SHARE`)
	defer unlock()
	var list []permits.Permit
	for _, r := range rows {
		list = append(list, admission(r, 20, int32(r.ID%2)))
	}
	c := w.impatient()
	admitted, err := c.Admit(t.Context(), list)
	require.NoError(t, err)
	require.Equal(t, ids(2, 4, 5, 9), idsOf(admitted))
	for id, fence := range map[int64]int64{1: 10, 2: 20, 3: 0, 4: 20, 5: 20, 8: 0, 9: 20} {
		require.Equal(t, fence, w.fence(id), "row %d", id)
	}
	require.Equal(t, []int64{5, 9},
		one[[]int64](w, `SELECT array_agg(id ORDER BY id) FROM dispatcherd.jobs_live WHERE admitted_to = 1 AND fence = 20`))
	unlock()
	require.Equal(t, ids(8), w.admit(w.Controller, 30, rows...), "admitted rows keep their fences")
}

func TestAdmissionNamesTheOnlyDispatcher(t *testing.T) {
	w := newWorld(t)
	rows := w.insert("k", 1, 2)
	admitted, err := w.Admit(t.Context(), []permits.Permit{admission(rows[0], 10, 7), admission(rows[1], 10, 0)})
	require.NoError(t, err)
	require.Equal(t, ids(1, 2), idsOf(admitted))
	require.Equal(t, []int32{7, 0}, one[[]int32](w, `SELECT array_agg(coalesce(admitted_to, 0) ORDER BY id) FROM dispatcherd.jobs_live`))
}

// Attack 13 and 22: a withdrawal takes back the permits of pending rows only, with exactly this fence. It does not change
// a row that has run and returned meanwhile.
func TestWithdrawTakesBackPendingRowsOnly(t *testing.T) {
	w := newWorld(t)
	rows := w.insert("k", 1, 6)
	rows = append(rows, w.insert("k", 8, 1)...)
	w.admit(w.Controller, 10, rows...)
	for _, id := range []int64{2, 3, 8} {
		w.start(id)
	}
	w.returns(3)
	w.returns(8)
	w.exec(`SELECT dispatcherd.end_idle(ARRAY[4], 'cancelled', session_user, NULL)`)
	unlock := w.lock(`SELECT FROM dispatcherd.jobs_live WHERE id = 5 FOR KEY SHARE`)
	withdrawn, err := w.Withdraw(t.Context(), held(10, 11, -12, 13, 14, 999, 15, 16))
	require.NoError(t, err)
	require.Equal(t, ids(1, 3), withdrawn)
	for id, fence := range map[int64]int64{1: 0, 2: 11, 3: 0, 5: 14, 6: 15, 8: -16} {
		require.Equal(t, fence, w.fence(id), "row %d", id)
	}
	unlock()
	require.Zero(t, one[int](w, `SELECT count(*) FROM dispatcherd.jobs_live WHERE fence IS NULL AND admitted_to IS NOT NULL`))
}

// Attack 13: a claim is in flight while its permit is withdrawn. The claim keeps the permit.
func TestClaimInFlightIsNotWithdrawn(t *testing.T) {
	w := newWorld(t)
	rows := w.insert("k", 1, 1)
	w.admit(w.Controller, 10, rows...)
	claimed := w.lock(`UPDATE dispatcherd.jobs_live SET status = 'running', dispatcher = 2 WHERE id = 1 AND status = 'pending' AND fence > 0`)
	withdrawn, err := w.Withdraw(t.Context(), held(10))
	require.NoError(t, err)
	require.Empty(t, withdrawn)
	claimed()
	require.EqualValues(t, 10, w.fence(1))
}

// Attack 4: all rows with a fence are permits, or have returned.
func TestHeldReadsAllRowsWithAFence(t *testing.T) {
	w := newWorld(t)
	rows := w.insert("k x*2", 1, 4)
	w.exec(`INSERT INTO dispatcherd.jobs (id, type) VALUES (9, 'pdf')`)
	_, err := w.Admit(t.Context(), []permits.Permit{admission(rows[0], 10, 0), admission(rows[1], 10, 5), admission(rows[2], 10, 6)})
	require.NoError(t, err)
	w.start(1)
	w.start(3)
	w.returns(3)
	list, err := w.Held(t.Context())
	require.NoError(t, err)
	permit := func(r Waiting, fence int64, dispatcher int32, started bool) permits.Permit {
		return permits.Permit{Class: r.Class, Job: r.Job, Fence: fence, Dispatcher: dispatcher, Started: started}
	}
	for i := range list {
		if list[i].Started {
			require.InDelta(t, time.Since(time.UnixMicro(due)).Microseconds(), list[i].Ago, 60e6)
			list[i].Ago = 0
		}
	}
	require.ElementsMatch(t, []Held{
		{Permit: permit(rows[0], 10, 1, true)}, {Permit: permit(rows[1], 10, 5, false)}, {Permit: permit(rows[2], 10, 0, false), Returned: true},
	}, list)
}

func TestWaitingRowsAreReadInOrder(t *testing.T) {
	w := newWorld(t)
	class := func(keys, typ string, priority int16) permits.Class {
		return permits.Class{Keys: keys, Type: typ, Priority: priority}
	}
	classes := []permits.Class{class("a", "x", 0), class("a", "x", 1), class("a", "y", 0), class("b", "x", 0), class("b*2 c", "x", 0)}
	var all []Waiting
	for i := range int64(30) { // later ids are due earlier
		r := Waiting{Class: classes[i%5], Job: permits.Job{RunAt: due - i*1_000_000, ID: 100 + i}}
		w.exec(
			`INSERT INTO dispatcherd.jobs (id, type, priority, keys, run_at) VALUES ($1, $2, $3, $4, to_timestamp($5::bigint / 1e6))`,
			r.ID,
			r.Type,
			r.Priority,
			r.Keys,
			r.RunAt,
		)
		all = append(all, r)
	}
	w.exec(`INSERT INTO dispatcherd.jobs (id, type, run_at) VALUES (1, 'x', now())`) // without keys
	w.exec(`INSERT INTO dispatcherd.jobs (id, type, keys) VALUES (131, 'x', 'a'), (132, 'x', 'a')`)
	w.exec(`UPDATE dispatcherd.jobs_live SET fence = 1 WHERE id = 131`)
	w.exec(`UPDATE dispatcherd.jobs_live SET fence = -2 WHERE id = 132`)

	list, edited, err := w.Arrived(t.Context(), 105, 10)
	require.NoError(t, err)
	require.False(t, edited)
	same(t, all[6:16], list)
	w.exec(`INSERT INTO dispatcherd.limits (key) VALUES ('edited')`)
	list, edited, err = w.Arrived(t.Context(), 129, 10)
	require.NoError(t, err)
	require.True(t, edited)
	require.Empty(t, list)
	_, err = w.Edits(t.Context(), 1)
	require.NoError(t, err)
	_, edited, err = w.Arrived(t.Context(), 129, 10)
	require.NoError(t, err)
	require.False(t, edited)

	heads := []Waiting{all[25], all[26], all[27], all[28], all[29]} // the last of each class
	list, err = w.Heads(t.Context(), permits.Class{}, 10)
	require.NoError(t, err)
	same(t, heads, firsts(list))
	list, err = w.Heads(t.Context(), permits.Class{}, 2)
	require.NoError(t, err)
	same(t, heads[:2], firsts(list))
	list, err = w.Heads(t.Context(), heads[1].Class, 2)
	require.NoError(t, err)
	same(t, heads[2:4], firsts(list))
	list, err = w.Heads(t.Context(), heads[4].Class, 2)
	require.NoError(t, err)
	require.Empty(t, list)

	jobs, err := w.Refill(t.Context(),
		[]permits.Refill{
			{Class: classes[4], After: all[24].Job},
			{Class: classes[0]},
			{Class: classes[1], After: all[1].Job},
			{Class: class("none", "x", 0)},
		},
		3,
	)
	require.NoError(t, err)
	require.Equal(t, [][]permits.Job{{all[19].Job, all[14].Job, all[9].Job}, {all[25].Job, all[20].Job, all[15].Job}, nil, nil}, jobs)
}

func TestLimitsAreReadAsTheBookNeedsThem(t *testing.T) {
	w := newWorld(t)
	w.exec(
		`INSERT INTO dispatcherd.limits (key, capacity, rate, per, scope, on_retry)
			VALUES ('a', NULL, 3, '1 s', 'dispatcher', 'wait'), ('b*', 0, NULL, NULL, 'cluster', 'pass')`,
	)
	w.exec(`INSERT INTO dispatcherd.limits (key) VALUES ('c')`)
	list, err := w.Limits(t.Context())
	require.NoError(t, err)
	require.Equal(t, []permits.Limit{
		{Key: "a", Capacity: permits.Unlimited, Rate: 3, Per: 1_000_000, Scope: permits.Dispatcher, OnRetry: permits.Wait},
		{Key: "b*"}, {Key: "c", Capacity: 1},
	}, list)
}

// A notification names the rows of an admission, so that other dispatchers read no lanes of other types. Of many rows it names none.
func TestAdmissionsAreNotifiedByRow(t *testing.T) {
	w := newWorld(t)
	rows := w.insert("k", 1, 45)
	listener, err := pgx.Connect(t.Context(), w.dsn)
	require.NoError(t, err)
	defer listener.Close(context.Background())
	_, err = listener.Exec(t.Context(), `LISTEN dispatcherd`)
	require.NoError(t, err)
	admit := func(dispatcher int32, fence int64, some ...Waiting) string {
		var list []permits.Permit
		for _, r := range some {
			list = append(list, admission(r, fence, dispatcher))
		}
		admitted, err := w.Admit(t.Context(), list)
		require.NoError(t, err)
		require.Len(t, admitted, len(some))
		w.exec(`NOTIFY dispatcherd, 'mark'`)
		first, err := listener.WaitForNotification(t.Context())
		require.NoError(t, err)
		if first.Payload != "mark" {
			mark, err := listener.WaitForNotification(t.Context())
			require.NoError(t, err)
			require.Equal(t, "mark", mark.Payload)
		}
		return first.Payload
	}
	require.Equal(t, "mark", admit(0, 10, rows[0]), "there is no other dispatcher")
	w.exec(`INSERT INTO dispatcherd.dispatchers (name, lease, armed) VALUES ('me', '1 hour', true), ('other', '1 hour', true)`)
	w.exec(`UPDATE dispatcherd.jobs_live SET expected_ms = 60000 WHERE id = 3`)
	class := one[int](w, `SELECT dispatcherd.duration_class(60000)`)
	require.Equal(t, fmt.Sprintf("admitted 0\n2 3 %d pdf\n3 3/%d %d pdf", int64(due), class, int64(due)), admit(0, 11, rows[1], rows[2]))
	require.Equal(t, fmt.Sprintf("admitted 2\n4 3 %d pdf", int64(due)), admit(2, 12, rows[3]))
	require.Equal(t, "jobs", admit(0, 13, rows[4:45]...))
}

// An import of many limits makes as many records. They are deleted in portions, and all limits are read.
func TestManyEditsAreReadInPortions(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO dispatcherd.limits (key) SELECT 'k' || i FROM generate_series(1, $1 + 1) i`, editsMost)
	for _, left := range []int{1, 0} {
		edited, err := w.Edits(t.Context(), 1000)
		require.NoError(t, err)
		require.Equal(t, left == 0, edited != nil)
		require.Equal(t, left, one[int](w, `SELECT count(*) FROM dispatcherd.operations WHERE kind = 'limits_edited'`))
	}
}

// Edits returns what each kind of statement has edited, and nothing else: beside many limits, an edit costs a read of one.
func TestEditsNameTheLimits(t *testing.T) {
	w := newWorld(t)
	edited := func() (names []string) {
		limits, err := w.Edits(t.Context(), 3)
		require.NoError(t, err)
		require.Zero(t, one[int](w, `SELECT count(*) FROM dispatcherd.operations`))
		if limits == nil {
			return []string{"all"}
		}
		for key, l := range limits {
			if l == nil {
				key = "no " + key
			}
			names = append(names, key)
		}
		slices.Sort(names)
		return names
	}
	w.exec(`INSERT INTO dispatcherd.limits (key) SELECT 'k' || i FROM generate_series(1, 4) i`)
	require.Equal(t, []string{"all"}, edited(), "more than may be read one by one")
	w.exec(`UPDATE dispatcherd.limits SET capacity = 2 WHERE key = 'k2'`)
	w.exec(`INSERT INTO dispatcherd.limits (key) VALUES ('k2'), ('k9*') ON CONFLICT (key) DO UPDATE SET capacity = 3`)
	require.Equal(t, []string{"k2", "k9*"}, edited())
	w.exec(`UPDATE dispatcherd.limits SET key = 'k5' WHERE key = 'k4'`)
	w.exec(`DELETE FROM dispatcherd.limits WHERE key = 'k9*'`)
	require.Equal(t, []string{"k5", "no k4", "no k9*"}, edited())
	w.exec(`DELETE FROM dispatcherd.limits WHERE key = 'none'`)
	require.Empty(t, edited())
	w.exec(`TRUNCATE dispatcherd.limits`)
	require.Equal(t, []string{"all"}, edited())
}

// Admitted cost is recorded with the admission. When it starts, its record moves to a part of the window, with the last
// start in that part. The sum stays the same.
func TestStartsAreNeitherLostNorCountedTwice(t *testing.T) {
	w := newWorld(t)
	rows := w.insert("k", 1, 5)
	sum := func() int64 {
		return one[int64](w, `SELECT coalesce(sum(cost), 0)::bigint FROM dispatcherd.key_starts`)
	}
	starts := func() []permits.Start {
		list, err := w.Starts(t.Context(), []string{"k", "x", "old"})
		require.NoError(t, err)
		for i := range list {
			if list[i].At != NotStarted {
				require.InDelta(t, time.Since(time.UnixMicro(list[i].At)).Microseconds(), list[i].Ago, 60e6)
			}
			list[i].Ago = 0
		}
		return list
	}
	now := one[int64](w, `SELECT (extract(epoch FROM now()) * 1000000)::bigint`) / 64_000_000 * 64_000_000
	const per = 64_000_000 // a part is a second
	_, err := w.Admit(t.Context(), starting(rows[0], 10,
		permits.Start{Key: "k", Cost: 3, Per: per}, permits.Start{Key: "k", Dispatcher: 2, Cost: 4, Per: per},
		permits.Start{Key: "x", Cost: 1, Per: per}))
	require.NoError(t, err)
	_, err = w.Admit(t.Context(), starting(rows[1], 11, permits.Start{Key: "k", Cost: 2, Per: per}))
	require.NoError(t, err)
	require.Equal(
		t,
		[]permits.Start{{Key: "k", Cost: 5, At: NotStarted}, {Key: "k", Dispatcher: 2, Cost: 4, At: NotStarted},
			{Key: "x", Cost: 1, At: NotStarted}},
		starts(),
	)

	require.NoError(t, w.Confirm(t.Context(), []permits.Start{
		{
			Key:  "k",
			Cost: 1,
			Per:  per,
			At:   now + 100_000,
		},
		{Key: "k", Cost: 1, Per: per, At: now + 999_999},
		{Key: "k", Cost: 1, Per: per, At: now + 1_000_000},
		{Key: "k", Dispatcher: 2, Cost: 3, Per: per, At: now},
	}))
	require.EqualValues(t, 10, sum())
	require.Equal(t,
		[]permits.Start{
			{Key: "k", Cost: 2, At: now + 999_999},
			{Key: "k", Cost: 1, At: now + 1_000_000},
			{Key: "k", Cost: 2, At: NotStarted},
			{
				Key:        "k",
				Dispatcher: 2,
				Cost:       3,
				At:         now,
			},
			{Key: "k", Dispatcher: 2, Cost: 1, At: NotStarted},
			{Key: "x", Cost: 1, At: NotStarted},
		},
		starts(),
	)

	require.NoError(t, w.Confirm(t.Context(), []permits.Start{{Key: "x", Cost: 1, Per: per}, {Key: "k", Cost: 1, Per: per, At: now}}))
	require.EqualValues(t, 9, sum(), "the cost of x will not start")
	require.Equal(t,
		[]permits.Start{{Key: "k", Cost: 3, At: now + 999_999}, {Key: "k", Cost: 1, At: now + 1_000_000}, {Key: "k", Cost: 1, At: NotStarted},
			{Key: "k", Dispatcher: 2, Cost: 3, At: now}, {Key: "k", Dispatcher: 2, Cost: 1, At: NotStarted}},
		starts(),
	)

	require.NoError(
		t,
		w.Confirm(t.Context(), []permits.Start{
			{Key: "k", Dispatcher: 2, Cost: 9, Per: per}, {Key: "k", Cost: 2, Per: per, At: now, Unrecorded: true},
		}),
	)
	require.EqualValues(t, 10, sum(), "no record is negative")
	require.Equal(t,
		[]permits.Start{{Key: "k", Cost: 5, At: now + 999_999}, {Key: "k", Cost: 1, At: now + 1_000_000}, {Key: "k", Cost: 1, At: NotStarted},
			{Key: "k", Dispatcher: 2, Cost: 3, At: now}},
		starts(),
	)
}

// A rate of 3 per 366 days becomes 3 per second, and another dispatcher takes over: the record says when the cost started, not
// when its part of the year ends.
func TestStartsOfAnOldWindowAfterTakeover(t *testing.T) {
	w := newWorld(t)
	const year = 366 * 86_400_000_000
	ago := one[int64](w, `SELECT (extract(epoch FROM now() - interval '10 s') * 1000000)::bigint`)
	require.NoError(t, w.Confirm(t.Context(), []permits.Start{{Key: "k", Cost: 3, Per: year, At: ago, Unrecorded: true}}))
	list, err := w.Starts(t.Context(), []string{"k", "x", "old"})
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.InDelta(t, 10e6, list[0].Ago, 9e6)
}

// A record is kept until its part has left each window. Cost that has not started is kept longer than any window.
func TestStartsAreKeptForAWindow(t *testing.T) {
	w := newWorld(t)
	rows := w.insert("k", 1, 1)
	const hour = 3_600_000_000
	_, err := w.Admit(t.Context(), starting(rows[0], 10, permits.Start{Key: "k", Cost: 2, Per: hour}))
	require.NoError(t, err)
	now := one[int64](w, `SELECT (extract(epoch FROM now()) * 1000000)::bigint`)
	require.NoError(t, w.Confirm(t.Context(), []permits.Start{{Key: "k", Cost: 1, Per: hour, At: now}}))
	require.True(
		t,
		one[bool](w, `SELECT bool_and(expires > part + interval '1 h' + interval '57 s') FROM dispatcherd.key_starts WHERE part < 'infinity'`),
		"a part is 56 seconds long",
	)
	require.True(t, one[bool](w, `SELECT bool_and(expires > now() + interval '366 days') FROM dispatcherd.key_starts WHERE part = 'infinity'`))
	require.Equal(t, 2, one[int](w, `SELECT count(*) FROM dispatcherd.key_starts`))
	_, err = w.Expire(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, one[int](w, `SELECT count(*) FROM dispatcherd.key_starts`))

	w.exec(`INSERT INTO dispatcherd.key_starts SELECT 'old', i, now(), 1, now() FROM generate_series(1, $1::int) i`, expireMost+1)
	list, err := w.Starts(t.Context(), []string{"k", "x", "old"})
	require.NoError(t, err)
	require.Len(t, list, 2, "old records do not count")
	more, err := w.Expire(t.Context())
	require.NoError(t, err)
	require.True(t, more)
	more, err = w.Expire(t.Context())
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, 2, one[int](w, `SELECT count(*) FROM dispatcherd.key_starts`))

	require.NoError(t, w.Confirm(t.Context(), []permits.Start{{Key: "k", Cost: 1, Per: hour, At: now}}))
	_, err = w.Expire(t.Context())
	require.NoError(t, err)
	require.Equal(t, []bool{false}, one[[]bool](w, `SELECT array_agg(part = 'infinity') FROM dispatcherd.key_starts`),
		"nothing is admitted that has not started")
}

func TestTypesAreThoseOfDispatchersThatRun(t *testing.T) {
	w := newWorld(t)
	w.exec(
		`INSERT INTO dispatcherd.dispatchers (id, name, lease, incarnation, capacity, leaving, lost_at) OVERRIDING SYSTEM VALUE VALUES
		(7, 'b', '1 s', gen_random_uuid(), '{"pdf": 3, "none": 0}', false, NULL),
		(3, 'a', '1 s', gen_random_uuid(), '{"pdf": 2, "img": 1}', false, NULL),
		(4, 'lost', '1 s', gen_random_uuid(), '{"pdf": 9}', false, now()),
		(5, 'leaves', '1 s', gen_random_uuid(), '{"pdf": 9}', true, NULL)`,
	)
	types, err := w.Types(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]Type{"pdf": {Slots: 5, Dispatchers: []int32{3, 7}}, "img": {Slots: 1, Dispatchers: []int32{3}}}, types)
}

// The controller reads permits after the end of a job on another dispatcher.
func TestEndsNotify(t *testing.T) {
	w := newWorld(t)
	conn, err := w.db.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), `LISTEN dispatcherd`)
	require.NoError(t, err)
	require.NoError(t, w.Notify(t.Context()))
	n, err := conn.Conn().WaitForNotification(t.Context())
	require.NoError(t, err)
	require.Equal(t, "keys", n.Payload)
}

// firsts leaves out what Heads says of further jobs.
func firsts(list []Waiting) (bare []Waiting) {
	for _, w := range list {
		bare = append(bare, Waiting{Class: w.Class, Job: w.Job})
	}
	return bare
}

// A takeover reads the first job of each class. Classes of few jobs are read with their jobs, and between classes of many jobs it
// descends.
func TestLoadReadsEachClassOnce(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO dispatcherd.jobs (type, keys, priority) SELECT 'a', format('k%s', i), i % 3 FROM generate_series(1, 5000) i`)
	w.exec(`INSERT INTO dispatcherd.jobs (type, keys) SELECT 'b', format('k%s', i % 7 * 100) FROM generate_series(1, 7000) i`)
	w.exec(`ANALYZE dispatcherd.jobs_live`)
	want := one[[]string](w, `SELECT array_agg(format('%s %s %s %s', keys, type, priority, id) ORDER BY keys, type, priority)
		FROM (SELECT DISTINCT ON (keys, type, priority) * FROM dispatcherd.jobs_live ORDER BY keys, type, priority, run_at, id) h`)
	for _, most := range []int{1000, 999, 3} {
		var got []string
		whole, after := 0, permits.Class{}
		for more := true; more && len(got) < 5*most; {
			list, err := w.Heads(t.Context(), after, most)
			require.NoError(t, err)
			require.LessOrEqual(t, len(list), most)
			for _, h := range list {
				if h.Whole {
					whole += 1 + len(h.Rest)
				}
				got = append(got, fmt.Sprint(h.Keys, " ", h.Type, " ", h.Priority, " ", h.ID))
				after = h.Class
			}
			more = len(list) == most
		}
		require.Equal(t, want[:min(len(got), len(want))], got)
		require.GreaterOrEqual(t, len(got), min(5*most, len(want)))
		require.Greater(t, 2*whole, len(got))
	}
}
