package claim_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// store is what a dispatcher needs of a claim.Store.
type store interface {
	Join(context.Context) (int32, error)
	Heartbeat(context.Context, contract.HeartbeatRequest) (contract.HeartbeatResult, error)
	Leave(context.Context) (int, error)
	Release(context.Context) (int, error)
	Sweep(context.Context) (int, error)
	SetSubscribed(context.Context, bool) error
	Fetch(context.Context, contract.FetchRequest) contract.FetchResult
	Claim(context.Context, contract.ClaimRequest) contract.ClaimResult
	Resolve(context.Context, contract.ClaimRequest) contract.ClaimResult
	LoadPayloads(context.Context, contract.LoadRequest) contract.LoadResult
	Finish(context.Context, contract.FinishRequest) contract.FinishResult
	Adopt(context.Context, contract.AdoptRequest) contract.AdoptResult
	DeclareLost(context.Context, claim.Identity, time.Duration, time.Duration) (bool, error)
	HandOver(context.Context, time.Duration) error
	Progress(context.Context, []claim.Progress) error
	Close()
}

var (
	_ store = (*claim.Store)(nil)
	_ store = (*claimfake.Store)(nil)
)

// release releases the jobs of lost dispatchers and returns their number.
func release(t testing.TB, s interface {
	Release(ctx context.Context) (int, error)
},
) int {
	t.Helper()
	n, err := s.Release(t.Context())
	require.NoError(t, err)
	return n
}

// world is a table, real or fake, with its stores.
type world struct {
	open   func(t testing.TB, of ...claim.Identity) store                             // a store that has not joined
	insert func(t testing.TB, r claimfake.Row, dueIn time.Duration) dispatcherd.JobID // the deadline counts from now
	get    func(t testing.TB, id dispatcherd.JobID) claimfake.Row
	// operate does what operators want, as the controller does.
	operate func(t testing.TB)
	cancel  func(t testing.TB, id dispatcherd.JobID) dispatcherd.Status
	lock    func(t testing.TB, id dispatcherd.JobID) (unlock func()) // by another transaction
	lose    func(t testing.TB, dispatcher int32)                     // declares it lost, and releases nothing
	raise   func(t testing.TB, dispatcher int32)                     // raises its epoch, as a Resolve whose answer is lost
	// Makes a job that is done run again in its last claim, as a failover that loses the end.
	unend  func(t testing.TB, id dispatcherd.JobID)
	depart func(t testing.TB, dispatcher int32) // sends a hand-over for one minute and loses its answer
	keyTable
	damage
}

// contractSuite runs f on Postgres and on the fake.
func contractSuite(t *testing.T, f func(t *testing.T, w world)) {
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		f(t, realWorld(t))
	})
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		f(t, fakeWorld())
	})
}

func fakeWorld() world {
	db := claimfake.NewDatabase()
	return world{
		keyTable: fakeKeyTable(db),
		damage:   fakeDamage(db),
		open:     func(_ testing.TB, of ...claim.Identity) store { return claimfake.NewStore(db, identityOf(of)) },
		insert: func(_ testing.TB, r claimfake.Row, dueIn time.Duration) (id dispatcherd.JobID) {
			db.Do(func(t *claimfake.Table, now int64) {
				r.RunAt = now + dueIn.Microseconds()
				if r.Deadline != 0 {
					r.Deadline += now
				}
				id = t.Insert(now, r)
			})
			return id
		},
		get: func(t testing.TB, id dispatcherd.JobID) claimfake.Row {
			r, ok := db.Row(id)
			require.True(t, ok)
			return r
		},
		cancel: func(_ testing.TB, id dispatcherd.JobID) (status dispatcherd.Status) {
			db.Do(func(t *claimfake.Table, _ int64) { status = t.Cancel(id) })
			return status
		},
		lock: func(_ testing.TB, id dispatcherd.JobID) (unlock func()) {
			var holder *claimfake.Statement
			db.Do(func(t *claimfake.Table, _ int64) { holder = t.Lock(id) })
			return func() { db.Do(func(*claimfake.Table, int64) { holder.Abort() }) }
		},
		operate: func(testing.TB) {}, // a heartbeat does it
		lose: func(_ testing.TB, id int32) {
			db.Do(func(t *claimfake.Table, _ int64) { t.Lose(id) })
		},
		unend: func(_ testing.TB, id dispatcherd.JobID) {
			db.Do(func(t *claimfake.Table, _ int64) { t.Unend(id) })
		},
		raise: func(_ testing.TB, id int32) {
			db.Do(func(t *claimfake.Table, _ int64) { t.RaiseEpoch(id) })
		},
		depart: func(_ testing.TB, id int32) {
			db.Do(func(t *claimfake.Table, now int64) { t.HandOver(now, id, time.Minute) })
		},
	}
}

func realWorld(t testing.TB) world {
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	jobs := claim.Jobs{DB: db}
	return world{
		keyTable: realKeyTable(db),
		damage:   realDamage(db),
		open: func(t testing.TB, of ...claim.Identity) store {
			return open(t, claim.Config{DSN: dsn, Identity: identityOf(of)})
		},
		insert: func(t testing.TB, r claimfake.Row, dueIn time.Duration) dispatcherd.JobID {
			id, err := jobs.Insert(t.Context(), claim.New{Type: r.Type, Priority: r.Priority, Payload: r.Payload,
				MaxAttempts: int(r.MaxAttempts), Timeout: r.Timeout, Expected: r.Expected, Traceparent: r.Traceparent,
				Backoff: r.Backoff})
			require.NoError(t, err)
			exec(t, db, `UPDATE dispatcherd.jobs SET run_at = now() + $2::interval WHERE id = $1`, int64(id), dueIn)
			if r.Deadline != 0 {
				exec(t, db, `UPDATE dispatcherd.jobs SET deadline = now() + $2::bigint * interval '1 microsecond' WHERE id = $1`, int64(id), r.Deadline)
			}
			if r.Keys != "" {
				exec(t, db, `UPDATE dispatcherd.jobs SET keys = $2 WHERE id = $1`, int64(id), r.Keys)
			}
			return id
		},
		get:     func(t testing.TB, id dispatcherd.JobID) claimfake.Row { return row(t, db, id) },
		operate: func(t testing.TB) { operate(t, db) },
		cancel: func(t testing.TB, id dispatcherd.JobID) dispatcherd.Status {
			status, err := jobs.Cancel(t.Context(), id)
			require.NoError(t, err)
			return status
		},
		lock: func(t testing.TB, id dispatcherd.JobID) (unlock func()) {
			holder := connect(t, dsn)
			exec(t, holder, `BEGIN`)
			exec(t, holder, `SELECT FROM dispatcherd.jobs_live WHERE id = $1 FOR UPDATE`, int64(id))
			return func() { exec(t, holder, `ROLLBACK`) }
		},
		lose:  func(t testing.TB, id int32) { lose(t, db, id) },
		unend: func(t testing.TB, id dispatcherd.JobID) { unend(t, db, id) },
		raise: func(t testing.TB, id int32) {
			exec(t, db, `UPDATE dispatcherd.dispatchers SET epoch = epoch + 1 WHERE id = $1`, id)
		},
		depart: func(t testing.TB, id int32) { exec(t, db, claim.HandOverSQL, id, time.Minute) },
	}
}

// lose declares a dispatcher lost.
func lose(t testing.TB, db *pgx.Conn, id int32) {
	t.Helper()
	exec(t, db, `UPDATE dispatcherd.dispatchers SET lost_at = now(), armed = false WHERE id = $1`, id)
}

// unend makes a job that is done run again in its last claim, and ends the connections of
// heartbeats.
func unend(t testing.TB, db *pgx.Conn, id dispatcherd.JobID) {
	t.Helper()
	exec(t, db, `WITH gone AS (DELETE FROM dispatcherd.jobs_done WHERE id = $1 RETURNING *)
		INSERT INTO dispatcherd.jobs_live (id, run_at, created_at, attempt, status, dispatcher, priority, max_attempts, type, payload,
			started_at, token)
		SELECT g.id, g.run_at, g.created_at, g.attempt, 'running', g.dispatcher, g.priority, g.max_attempts, g.type, g.payload,
			g.started_at, c.token
		FROM gone g JOIN dispatcherd.claims c ON c.dispatcher = g.dispatcher AND g.id = ANY (c.ids)`, int64(id))
	exec(t, db, `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE 'dispatcherd lease%'`)
}

// silent returns the request of a heartbeat that declares a dispatcher lost, if it sends no
// further heartbeat before.
func silent(t testing.TB, observer store, id int32) contract.HeartbeatRequest {
	t.Helper()
	res, err := observer.Heartbeat(t.Context(), contract.HeartbeatRequest{})
	require.NoError(t, err)
	i := slices.IndexFunc(res.Others, func(h contract.Heard) bool { return h.ID == id })
	require.GreaterOrEqual(t, i, 0)
	return contract.HeartbeatRequest{Silent: []contract.Silent{{ID: id, BeatAt: res.Others[i].BeatAt}}}
}

func identityOf(of []claim.Identity) claim.Identity {
	if len(of) == 0 {
		return claim.Identity{}
	}
	return of[0]
}

func open(t testing.TB, c claim.Config) *claim.Store {
	t.Helper()
	s, err := claim.Open(t.Context(), c.WithDefaults())
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t testing.TB, db *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := db.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// one reads a single value.
func one[T any](t testing.TB, db *pgx.Conn, sql string) T {
	t.Helper()
	var v T
	require.NoError(t, db.QueryRow(t.Context(), sql).Scan(&v))
	return v
}

// row reads a job as the fake table represents it.
func row(t testing.TB, db *pgx.Conn, id dispatcherd.JobID) claimfake.Row {
	t.Helper()
	job, err := claim.Jobs{DB: db}.Get(t.Context(), id)
	require.NoError(t, err)
	r := claimfake.Row{ID: id, Type: job.Type, Priority: job.Priority, RunAt: job.RunAt.UnixMicro(), Status: job.Status, Attempt: job.Attempt,
		Failures: int32(job.Failures), Crashes: int32(job.Crashes), Payload: job.Payload, Result: job.Result, Progress: job.Progress}
	require.NoError(t,
		db.QueryRow(t.Context(), `SELECT coalesce(keys, ''), coalesce(fence, 0), coalesce(admitted_to, 0)
			FROM dispatcherd.jobs WHERE id = $1`, int64(id)).
			Scan(&r.Keys, &r.Fence, &r.AdmittedTo),
	)
	if job.Dispatcher != nil {
		r.Dispatcher = int32(*job.Dispatcher)
	}
	if job.Errors != nil {
		var list []struct{ Error string }
		require.NoError(t, json.Unmarshal(job.Errors, &list))
		for _, e := range list {
			r.Errors = append(r.Errors, e.Error)
		}
	}
	return r
}

func joined(t testing.TB, w world) store {
	t.Helper()
	s := w.open(t)
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	return s
}

// joinedPair returns two dispatchers that have joined, and the id of the first one's run.
func joinedPair(t testing.TB, w world) (first, second store, run int32) {
	t.Helper()
	first, second = w.open(t), joined(t, w)
	run, err := first.Join(t.Context())
	require.NoError(t, err)
	return first, second, run
}

// joinedAlone returns a connection to a new database and a dispatcher that has joined in it.
func joinedAlone(t testing.TB) (db *pgx.Conn, s *claim.Store) {
	t.Helper()
	dsn := pgtest.New(t)
	s = open(t, claim.Config{DSN: dsn})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	return connect(t, dsn), s
}

var tokens atomic.Uint64

func claimOf(ids ...dispatcherd.JobID) contract.ClaimRequest {
	n := tokens.Add(1)
	lanes := []contract.Lane{{}, {Type: "pdf"}, {Type: "pdf", Priority: 3}}
	return contract.ClaimRequest{Token: contract.Token{0: byte(n), 1: byte(n >> 8), 2: byte(n >> 16), 15: 1}, IDs: ids,
		Sessions: make([]contract.Fingerprint, len(ids)), Lane: lanes[n%3]}
}

// take claims one job, which must be won.
func take(t testing.TB, s store, id dispatcherd.JobID) contract.Won {
	t.Helper()
	res := s.Claim(t.Context(), claimOf(id))
	require.Equal(t, contract.OK, res.Verdict)
	require.Len(t, res.Won, 1)
	return res.Won[0]
}

func finish(t testing.TB, s store, items ...contract.Finish) []dispatcherd.JobID {
	t.Helper()
	res := s.Finish(t.Context(), contract.FinishRequest{Items: items})
	require.Equal(t, contract.OK, res.Verdict)
	return res.Stale
}

func wonIDs(won []contract.Won) []dispatcherd.JobID {
	ids := []dispatcherd.JobID{}
	for _, w := range won {
		ids = append(ids, w.ID)
	}
	slices.Sort(ids)
	return ids
}

func TestClaimReturnsTheNextAttempt(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := joined(t, w)
		id := w.insert(t, claimfake.Row{Type: "pdf", Payload: []byte(`{"page": 1}`), MaxAttempts: 3, Timeout: 1500 * time.Millisecond,
			Backoff: "fixed:1s", Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, 0)
		won := take(t, s, id)
		require.Equal(
			t,
			contract.Won{
				ID: id, Type: "pdf", Attempt: 1, MaxAttempts: 3, Timeout: 1500 * time.Millisecond, Backoff: "fixed:1s",
				Delivery: contract.Delivery{Payload: []byte(`{"page": 1}`), Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
			},
			won,
		)
		require.Equal(t, dispatcherd.Running, w.get(t, id).Status)
	})
}

func TestOneOfTwoDispatchersWinsAJob(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		a, b := joined(t, w), joined(t, w)
		one, two := w.insert(t, claimfake.Row{Type: "pdf"}, 0), w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		take(t, a, one)
		res := b.Claim(t.Context(), claimOf(one, two))
		require.Equal(t, contract.OK, res.Verdict)
		require.Equal(t, []dispatcherd.JobID{two}, wonIDs(res.Won))
	})
}

func TestClaimDoesNotTakeAJobBeforeItIsDue(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := joined(t, w)
		id := w.insert(t, claimfake.Row{Type: "pdf"}, time.Hour)
		res := s.Claim(t.Context(), claimOf(id))
		require.Equal(t, contract.OK, res.Verdict)
		require.Empty(t, res.Won)
		require.Equal(t, dispatcherd.Pending, w.get(t, id).Status)
	})
}

func TestFetchReturnsLanesInOrderFutureRowsIncluded(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := joined(t, w)
		late := w.insert(t, claimfake.Row{Type: "pdf"}, time.Hour)
		old := w.insert(t, claimfake.Row{Type: "pdf"}, -time.Hour)
		older := w.insert(t, claimfake.Row{Type: "pdf"}, -2*time.Hour)
		urgent := w.insert(t, claimfake.Row{Type: "pdf", Priority: 7}, 0)
		taken := w.insert(t, claimfake.Row{Type: "pdf"}, -3*time.Hour)
		take(t, s, taken)
		w.insert(t, claimfake.Row{Type: "excel"}, 0)

		res := s.Fetch(t.Context(), contract.FetchRequest{Lanes: []contract.LaneQuery{
			{Type: "pdf", Priority: 7, Limit: 5}, {Type: "none", Limit: 5}, {Type: "pdf", Limit: 5}}})
		require.Equal(t, contract.OK, res.Verdict)
		var ids []dispatcherd.JobID
		var lanes []int
		for _, c := range res.Candidates {
			ids, lanes = append(ids, c.Key.ID), append(lanes, c.Lane)
		}
		require.Equal(t, []dispatcherd.JobID{urgent, older, old, late}, ids)
		require.Equal(t, []int{0, 2, 2, 2}, lanes)
		require.Greater(t, res.Candidates[3].Key.RunAt, res.DBNow)
		require.InDelta(t, res.DBNow, res.Candidates[2].Key.RunAt, float64(3601*time.Second/time.Microsecond))

		res = s.Fetch(t.Context(), contract.FetchRequest{Lanes: []contract.LaneQuery{{Type: "pdf", After: res.Candidates[1].Key, Limit: 1}}})
		require.Len(t, res.Candidates, 1)
		require.Equal(t, old, res.Candidates[0].Key.ID)

		res = s.Fetch(t.Context(), contract.FetchRequest{})
		require.Equal(t, contract.OK, res.Verdict)
		require.Empty(t, res.Candidates)
		require.NotZero(t, res.DBNow)
	})
}

func TestEveryOutcomeSetsStatusCountersAndErrors(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := joined(t, w)
		outcomes := []contract.Outcome{contract.Succeeded, contract.Retry, contract.FailedFinal, contract.Cancelled,
			contract.Released, contract.Crashed, contract.Quarantined, contract.Isolated}
		var items []contract.Finish
		before := map[contract.Outcome]claimfake.Row{}
		for _, o := range outcomes {
			id := w.insert(t, claimfake.Row{Type: "pdf"}, -time.Minute)
			before[o] = w.get(t, id)
			item := contract.Finish{ID: id, Attempt: take(t, s, id).Attempt, Outcome: o}
			switch o {
			case contract.Succeeded:
				item.Result = []byte(`{"pages":7}`)
			case contract.Retry:
				item.Delay, item.Error = time.Hour, "no paper"
			case contract.Isolated:
				item.Delay, item.Error = time.Hour, "isolated"
			case contract.Released:
			default:
				item.Error = o.String()
			}
			items = append(items, item)
		}
		require.Empty(t, finish(t, s, items...), "all outcomes in one request")
		require.Len(t, finish(t, s, items...), len(items), "and never twice")
		for i, o := range outcomes {
			want := map[contract.Outcome]claimfake.Row{
				contract.Succeeded:   {Status: dispatcherd.Done, Result: []byte(`{"pages":7}`)},
				contract.Retry:       {Status: dispatcherd.Pending, Failures: 1, Errors: []string{"no paper"}},
				contract.FailedFinal: {Status: dispatcherd.Failed, Failures: 1, Errors: []string{"failed"}},
				contract.Cancelled:   {Status: dispatcherd.Cancelled, Errors: []string{"cancelled"}},
				contract.Released:    {Status: dispatcherd.Pending},
				contract.Crashed:     {Status: dispatcherd.Pending, Crashes: 1, Errors: []string{"crashed"}},
				contract.Isolated:    {Status: dispatcherd.Pending, Crashes: 1, Errors: []string{"isolated"}},
				contract.Quarantined: {Status: dispatcherd.Failed, Crashes: 1, Errors: []string{"quarantined"}},
			}[o]
			got := w.get(t, items[i].ID)
			require.Equal(t, want.Status, got.Status, o)
			require.Equal(t, want.Failures, got.Failures, o)
			require.Equal(t, want.Crashes, got.Crashes, o)
			require.Equal(t, want.Errors, got.Errors, o)
			require.Equal(t, string(want.Result), string(got.Result), o)
			require.EqualValues(t, 1, got.Attempt, o)
			if o == contract.Retry || o == contract.Isolated {
				require.InDelta(t, (61 * time.Minute).Microseconds(), got.RunAt-before[o].RunAt, 30e6)
			} else {
				require.Equal(t, before[o].RunAt, got.RunAt, "%s keeps the order", o)
			}
		}
	})
}

func TestOnlyTheLastTenErrorsAreKept(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := joined(t, w)
		id := w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		for i := range 12 {
			won := take(t, s, id)
			require.Empty(t, finish(t, s, contract.Finish{ID: id, Attempt: won.Attempt, Outcome: contract.Crashed, Error: string(rune('a' + i))}))
		}
		require.Equal(t, []string{"c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}, w.get(t, id).Errors)
		require.EqualValues(t, 12, take(t, s, id).Crashes)
	})
}

func TestFinishOfAFormerOwnerIsStale(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		a, b := joined(t, w), joined(t, w)
		id := w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		first := take(t, a, id)
		require.Empty(t, finish(t, a, contract.Finish{ID: id, Attempt: first.Attempt, Outcome: contract.Crashed}))
		second := take(t, b, id)
		require.EqualValues(t, 2, second.Attempt)
		for _, o := range []contract.Outcome{contract.Succeeded, contract.Retry, contract.Cancelled} {
			require.Equal(t, []dispatcherd.JobID{id}, finish(t, a, contract.Finish{ID: id, Attempt: 1, Outcome: o}), "old attempt")
			require.Equal(t, []dispatcherd.JobID{id}, finish(t, a, contract.Finish{ID: id, Attempt: 2, Outcome: o}), "not its dispatcher")
			require.Equal(t, []dispatcherd.JobID{id}, finish(t, b, contract.Finish{ID: id, Attempt: 1, Outcome: o}),
				"an earlier attempt of the right dispatcher")
		}
		require.NoError(t, a.Progress(t.Context(), []claim.Progress{{ID: id, Attempt: 1, JSON: `1`}}))
		require.Empty(t, w.get(t, id).Progress)
		require.NoError(t, b.Progress(t.Context(), []claim.Progress{{ID: id, Attempt: 2, JSON: `0.5`}}))
		require.Equal(t, "0.5", string(w.get(t, id).Progress))
		require.Empty(t, finish(t, b, contract.Finish{ID: id, Attempt: 2}))
		require.Equal(t, dispatcherd.Done, w.get(t, id).Status)
	})
}

func TestStaleItemDoesNotAffectOtherItems(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := joined(t, w)
		one, two := w.insert(t, claimfake.Row{Type: "pdf"}, 0), w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		take(t, s, one)
		take(t, s, two)
		stale := finish(t, s, contract.Finish{ID: one, Attempt: 9}, contract.Finish{ID: two, Attempt: 1},
			contract.Finish{ID: two + 1000, Attempt: 1})
		require.Equal(t, []dispatcherd.JobID{one, two + 1000}, stale)
		require.Equal(t, dispatcherd.Running, w.get(t, one).Status)
		require.Equal(t, dispatcherd.Done, w.get(t, two).Status)
	})
}

func TestRepeatedFinishCountsEndedItemsAsExecuted(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s, other := joined(t, w), joined(t, w)
		outcomes := []contract.Outcome{
			contract.Succeeded,
			contract.Retry,
			contract.FailedFinal,
			contract.Cancelled,
			contract.Released,
			contract.Crashed,
		}
		var items []contract.Finish
		for _, o := range outcomes {
			id := w.insert(t, claimfake.Row{Type: "pdf"}, 0)
			items = append(items, contract.Finish{ID: id, Attempt: take(t, s, id).Attempt, Outcome: o})
		}
		require.Empty(t, finish(t, s, items[:4]...), "the answer is lost, and only some items were executed")
		foreign := w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		take(t, other, foreign)
		require.Empty(t, finish(t, other, contract.Finish{ID: foreign, Attempt: 1}))
		items = append(items, contract.Finish{ID: foreign, Attempt: 1})

		res := s.Finish(t.Context(), contract.FinishRequest{Items: items, Again: true})
		require.Equal(t, contract.OK, res.Verdict)
		require.Equal(t, []dispatcherd.JobID{foreign}, res.Stale)
		require.EqualValues(t, 1, w.get(t, items[1].ID).Failures, "once")
		require.EqualValues(t, 1, w.get(t, items[5].ID).Crashes)
	})
}

func TestUnknownClaimIsResolvedByItsToken(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s, rival := joined(t, w), joined(t, w)
		one, two, three := w.insert(
			t,
			claimfake.Row{Type: "pdf"},
			0,
		), w.insert(
			t,
			claimfake.Row{Type: "pdf"},
			0,
		), w.insert(
			t,
			claimfake.Row{Type: "pdf"},
			0,
		)
		take(t, rival, one)
		lost := claimOf(one, two)
		require.Equal(t, contract.OK, s.Claim(t.Context(), lost).Verdict, "the test ignores this answer as if it were lost")
		take(t, s, three)

		res := s.Resolve(t.Context(), lost)
		require.Equal(t, contract.OK, res.Verdict)
		require.Equal(t, []dispatcherd.JobID{two}, wonIDs(res.Loading), "the payloads are loaded afterwards")
		require.EqualValues(t, 1, res.Loading[0].Attempt)
		res = s.Resolve(t.Context(), claimOf(three))
		require.Equal(t, contract.OK, res.Verdict)
		require.Zero(t, res.Rows(), "the row was claimed with another token")
	})
}

func TestLeaveReleasesInOrderWithoutCountingACrash(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := joined(t, w)
		id := w.insert(t, claimfake.Row{Type: "pdf"}, -time.Hour)
		before := w.get(t, id)
		won := take(t, s, id)
		n, err := s.Leave(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		after := w.get(t, id)
		before.Attempt = 1
		require.Equal(t, before, after)
		require.Equal(t, []dispatcherd.JobID{id}, finish(t, s, contract.Finish{ID: id, Attempt: won.Attempt}))
		require.Equal(t, contract.Refused, s.Claim(t.Context(), claimOf(id)).Verdict)

		_, err = s.Join(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, take(t, s, id).Attempt)
	})
}

func TestSilentDispatcherLosesItsJobs(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		dead, other, run := joinedPair(t, w)
		one, two := w.insert(t, claimfake.Row{Type: "pdf"}, 0), w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		take(t, dead, one)
		take(t, dead, two)
		require.Empty(t, finish(t, dead, contract.Finish{ID: two, Attempt: 1}))

		res, err := other.Heartbeat(t.Context(), silent(t, other, run))
		require.NoError(t, err)
		require.Equal(t, 1, release(t, other))
		require.NotZero(t, res.Waiting&contract.DispatcherLost)
		require.EqualValues(t, 1, w.get(t, one).Crashes)
		require.Zero(t, w.get(t, one).Failures)
		require.Equal(t, dispatcherd.Done, w.get(t, two).Status)

		zombie, err := dead.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.True(t, zombie.LeaseLost)
		require.Equal(t, contract.Refused, dead.Claim(t.Context(), claimOf(one)).Verdict, "no lease, no claim")
		require.Equal(t, []dispatcherd.JobID{one}, finish(t, dead, contract.Finish{ID: one, Attempt: 1}))
		strays, err := other.Sweep(t.Context())
		require.NoError(t, err)
		require.Zero(t, strays)
		res, err = other.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.Zero(t, res.Waiting&contract.DispatcherLost, "forgotten")
		require.Zero(t, release(t, other))
	})
}

func TestHeartbeatReturnsTheCapacityOfOtherDispatchers(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		byID := map[int32]store{}
		for range 4 {
			s := w.open(t)
			id, err := s.Join(t.Context())
			require.NoError(t, err)
			byID[id] = s
		}
		ids := slices.Sorted(maps.Keys(byID))
		a, b, c, none := byID[ids[0]], byID[ids[1]], byID[ids[2]], byID[ids[3]]
		for s, slots := range map[store]map[string]int{a: {"pdf": 200, "excel": 1}, b: {"pdf": 60}, c: {"pdf": 1000}, none: {"pdf": 0}} {
			_, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{Capacity: slots})
			require.NoError(t, err)
		}
		res, err := c.Heartbeat(t.Context(), contract.HeartbeatRequest{Capacity: map[string]int{"pdf": 1000}})
		require.NoError(t, err)
		require.Equal(t, map[string]int{"pdf": 260, "excel": 1}, res.OtherCapacity)
		require.Equal(t, map[string]contract.Share{"pdf": contract.ShareOf(1000, contract.Others{SmallerIDs: 260, Least: 60})}, res.Shares)
		res, err = a.Heartbeat(t.Context(), contract.HeartbeatRequest{Capacity: map[string]int{"pdf": 200, "excel": 1}})
		require.NoError(t, err)
		require.Equal(t, map[string]contract.Share{"pdf": contract.ShareOf(200, contract.Others{LargerIDs: 1060, Least: 60})},
			res.Shares, "no other dispatcher supports excel")
	})
}

func TestFetchOfAShareReturnsItsExactTop(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := w.open(t)
		var ids []dispatcherd.JobID
		for n := range 300 {
			ids = append(ids, w.insert(t, claimfake.Row{Type: "pdf"}, -time.Duration(1000-n)*time.Second))
		}
		read := func(lane contract.LaneQuery) (got []dispatcherd.JobID, last contract.Key) {
			lane.Type = "pdf"
			res := s.Fetch(t.Context(), contract.FetchRequest{Lanes: []contract.LaneQuery{{Type: "excel", Limit: 5}, lane}})
			require.Equal(t, contract.OK, res.Verdict)
			for _, c := range res.Candidates {
				require.Equal(t, 1, c.Lane)
				got, last = append(got, c.Key.ID), c.Key
			}
			return got, last
		}
		for i := range 4 {
			share, foreign := contract.Share{From: 15_000, To: 36_000, Block: uint8(3 + i/2*2)}, i%2 == 0
			var want []dispatcherd.JobID
			for _, id := range ids {
				if share.Owns(id) != foreign {
					want = append(want, id)
				}
			}
			require.Greater(t, len(want), 50)
			first, last := read(contract.LaneQuery{Limit: 20, Share: share, NonLocal: foreign})
			require.Equal(t, want[:20], first)
			next, _ := read(contract.LaneQuery{Limit: 1000, After: last, Share: share, NonLocal: foreign})
			require.Equal(t, want[20:], next)
		}
		all, _ := read(contract.LaneQuery{Limit: 1000})
		require.Equal(t, ids, all, "the zero share contains every id")
	})
}

func TestBackfillScanEndsBeforeItsBound(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := w.open(t)
		var ids []dispatcherd.JobID
		for n := range 40 {
			ids = append(ids, w.insert(t, claimfake.Row{Type: "pdf"}, -time.Duration(1000-n)*time.Second))
		}
		keys := map[dispatcherd.JobID]contract.Key{}
		read := func(look bool, lane contract.LaneQuery) (got []dispatcherd.JobID) {
			lane.Type, lane.Limit = "pdf", max(lane.Limit, 1)
			res := s.Fetch(t.Context(), contract.FetchRequest{Lanes: []contract.LaneQuery{{Type: "excel", Limit: 5}, lane}, Backfill: look})
			require.Equal(t, contract.OK, res.Verdict)
			require.NotZero(t, res.DBNow)
			for _, c := range res.Candidates {
				require.Equal(t, 1, c.Lane)
				keys[c.Key.ID] = c.Key
				got = append(got, c.Key.ID)
			}
			return got
		}
		require.Equal(t, ids, read(false, contract.LaneQuery{Limit: 100}))
		bound := keys[ids[10]]
		require.Equal(t, ids[:10], read(true, contract.LaneQuery{Limit: 100, Before: bound}))
		require.Equal(t, ids[:3], read(true, contract.LaneQuery{Limit: 3, Before: bound}))
		require.Equal(t, ids[5:10], read(true, contract.LaneQuery{Limit: 100, After: keys[ids[4]], Before: bound}))
		require.Empty(t, read(true, contract.LaneQuery{Limit: 100}))
		bound.ID++
		require.Equal(t, ids[:11], read(true, contract.LaneQuery{Limit: 100, Before: bound}))
		share := contract.ShareOf(2, contract.Others{SmallerIDs: 1, LargerIDs: 3})
		for _, foreign := range []bool{false, true} {
			var want []dispatcherd.JobID
			for _, id := range ids[:11] {
				if share.Owns(id) != foreign {
					want = append(want, id)
				}
			}
			require.Equal(t, want, read(true, contract.LaneQuery{Limit: 100, Before: bound, Share: share, NonLocal: foreign}))
		}
	})
}

func TestCancelEndsAPendingJobAndAsksForARunningOne(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s, other := joined(t, w), joined(t, w)
		waiting, running := w.insert(t, claimfake.Row{Type: "pdf"}, 0), w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		take(t, s, running)
		require.Equal(t, dispatcherd.Cancelled, w.cancel(t, waiting))
		require.Equal(t, dispatcherd.Running, w.cancel(t, running))
		require.Empty(t, s.Claim(t.Context(), claimOf(waiting)).Won)

		res, err := other.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.Empty(t, res.Cancels, "another dispatcher runs it")
		for range 2 {
			res, err = s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
			require.NoError(t, err)
			require.Equal(t, []dispatcherd.JobID{running}, res.Cancels, "as long as it runs")
		}
		require.Empty(t, finish(t, s, contract.Finish{ID: running, Attempt: 1, Outcome: contract.Cancelled}))
		res, err = s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.Empty(t, res.Cancels)
	})
}

func TestCancelRequestSurvivesACrash(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := joined(t, w)
		id := w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		take(t, s, id)
		require.Equal(t, dispatcherd.Running, w.cancel(t, id))
		require.Empty(t, finish(t, s, contract.Finish{ID: id, Attempt: 1, Outcome: contract.Crashed}))
		_, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		w.operate(t)
		require.Equal(t, dispatcherd.Cancelled, w.get(t, id).Status)
	})
}

// The epoch may have been raised for another claim. The row is still pending, and
// Postgres answers.
func TestClaimWithAnOldEpochIsRefusedOnce(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s, _, run := joinedPair(t, w)
		id := w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		w.raise(t, run)
		require.Equal(t, contract.ClaimResult{Verdict: contract.Refused, OldEpoch: true}, s.Claim(t.Context(), claimOf(id)))
		take(t, s, id)
		w.raise(t, run)
		w.lose(t, run)
		require.Equal(t, contract.ClaimResult{Verdict: contract.Refused}, s.Claim(t.Context(), claimOf(id)), "the lease is lost")
	})
}
