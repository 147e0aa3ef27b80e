package claim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/stretchr/testify/require"
)

// ledger records every attempt that a claim returned.
type ledger struct {
	mu    sync.Mutex
	taken map[string]int
}

func (l *ledger) write(w contract.Won) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken[fmt.Sprintf("%d/%d", w.ID, w.Attempt)]++
}

// Three dispatchers, each with two claims and two finishes in flight, claim
// overlapping batches in random order and end the jobs with every outcome.
// Meanwhile operators cancel jobs, and other dispatchers send heartbeats and
// release jobs.
func TestConcurrentDispatchersClaimEachAttemptOnceWithoutDeadlock(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	const jobs = 1500
	fill(t, db, jobs, 3, 2)
	book := ledger{taken: map[string]int{}}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for n := range 3 {
		s := open(t, claim.Config{DSN: dsn, Claims: 2, Finishes: 2})
		_, err := s.Join(ctx)
		require.NoError(t, err)
		for half := range 2 {
			wg.Go(func() { hammer(ctx, t, s, &book, uint64(2*n+half)) })
		}
	}
	wg.Go(func() {
		other := connect(t, dsn)
		for id := dispatcherd.JobID(1); id < jobs; id += 40 {
			_, err := claim.Jobs{DB: other}.Cancel(ctx, id)
			if refused := (*claim.StatusError)(nil); err != nil {
				require.ErrorAs(t, err, &refused)
			}
		}
	})
	wg.Wait()
	require.NoError(t, ctx.Err())
	for attempt, n := range book.taken {
		require.Equal(t, 1, n, attempt)
	}
	var ended, ids, deadlocks int
	require.NoError(t,
		db.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE status IN ('done', 'failed', 'cancelled')), count(DISTINCT id),
			(SELECT deadlocks FROM pg_stat_database WHERE datname = current_database())
		FROM dispatcherd.jobs`).Scan(&ended, &ids, &deadlocks),
	)
	require.Equal(t, jobs, ended)
	require.Equal(t, jobs, ids)
	require.Zero(t, deadlocks)
}

// hammer claims and finishes jobs until no pending job is left.
func hammer(ctx context.Context, t *testing.T, s *claim.Store, book *ledger, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	for ctx.Err() == nil {
		res := s.Fetch(ctx, contract.FetchRequest{Lanes: lanes(3, 2, 1+rng.IntN(40))})
		if len(res.Candidates) == 0 {
			return // the other dispatchers end the jobs that they run
		}
		var ids []dispatcherd.JobID
		for _, c := range res.Candidates {
			ids = append(ids, c.Key.ID)
		}
		slices.Sort(ids)
		won := s.Claim(ctx, claimOf(ids...))
		var items []contract.Finish
		for _, w := range won.Won {
			book.write(w)
			items = append(items, contract.Finish{ID: w.ID, Attempt: w.Attempt, Outcome: contract.Outcome(rng.IntN(7)), Error: "x"})
		}
		slices.SortFunc(items, func(a, b contract.Finish) int { return int(a.ID - b.ID) })
		fin := s.Finish(ctx, contract.FinishRequest{Items: items})
		if fin.Verdict != contract.OK || len(fin.Stale) > 0 {
			t.Errorf("finish: %v, stale %v", fin.Verdict, fin.Stale)
			return
		}
		if _, err := s.Heartbeat(ctx, contract.HeartbeatRequest{}); err != nil {
			t.Errorf("heartbeat: %v", err)
			return
		}
	}
}

// A dispatcher is declared lost only after its claims in flight have ended. Otherwise
// their rows would run under a dispatcher whose jobs are already released.
func TestDispatcherIsDeclaredLostAfterItsUnansweredClaims(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{"claim", "claim-contended"} {
		t.Run(statement, func(t *testing.T) {
			dsn := pgtest.New(t)
			db, inFlight := connect(t, dsn), connect(t, dsn)
			s, other := open(t, claim.Config{DSN: dsn, Identity: sender}), open(t, claim.Config{DSN: dsn})
			run, err := s.Join(t.Context())
			require.NoError(t, err)
			_, err = other.Join(t.Context())
			require.NoError(t, err)
			fill(t, db, 1, 1, 1)
			exec(t, inFlight, `BEGIN`) // the claim waits inside the server and has locked the row
			tag, err := inFlight.Exec(t.Context(), claim.Statements()[statement], claimArgs(statement, run, 77, 1)...)
			require.NoError(t, err)
			require.EqualValues(t, 1, tag.RowsAffected())
			observed := silent(t, other, run)
			res, err := other.Heartbeat(t.Context(), observed)
			require.NoError(t, err)
			require.Zero(t, res.Waiting&contract.DispatcherLost, "not lost while its claim is in flight")

			exec(t, inFlight, `COMMIT`)
			res, err = other.Heartbeat(t.Context(), observed)
			require.NoError(t, err)
			require.NotZero(t, res.Waiting&contract.DispatcherLost)
			require.Equal(t, 1, release(t, other))
		})
	}
}

// A finish that waits, here in a trigger of a user, does not delay other finishes.
func TestFinishesOfOneDispatcherRunAtTheSameTime(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, holder := connect(t, dsn), connect(t, dsn)
	exec(t, db, `CREATE FUNCTION wait_for_lock() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF NEW.id = 1 THEN PERFORM pg_catalog.pg_advisory_xact_lock(1); END IF; RETURN NEW; END $$`)
	exec(t, db, `CREATE TRIGGER wait BEFORE INSERT ON dispatcherd.jobs_done FOR EACH ROW EXECUTE FUNCTION wait_for_lock()`)
	s := open(t, claim.Config{DSN: dsn, Finishes: 2})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 2, 1, 1)
	require.Len(t, s.Claim(t.Context(), claimOf(1, 2)).Won, 2)
	exec(t, holder, `SELECT pg_advisory_lock(1)`)
	waiting := make(chan contract.FinishResult, 1)
	go func() {
		waiting <- s.Finish(t.Context(), contract.FinishRequest{Items: []contract.Finish{{ID: 1, Attempt: 1}}})
	}()
	require.Eventually(t, func() bool {
		return one[bool](t, db, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
			AND application_name LIKE 'dispatcherd finish%' AND wait_event_type = 'Lock')`)
	}, 3*time.Second, time.Millisecond)
	require.Empty(t, finish(t, s, contract.Finish{ID: 2, Attempt: 1}))
	require.Equal(t, dispatcherd.Running, row(t, db, 1).Status)
	exec(t, holder, `SELECT pg_advisory_unlock(1)`)
	require.NotEqual(t, contract.Unknown, (<-waiting).Verdict, "it ends when the lock is released, or at the lock timeout")
}

// sender is the process that sends the claims of claimArgs.
var sender = claim.Identity{Incarnation: claim.Incarnation{15: 9}}

// claimArgs returns the parameters of a claim of contiguous ids in epoch 0 by sender.
func claimArgs(statement string, dispatcher int32, token int64, ids ...int64) []any {
	args := []any{ids, token, dispatcher, claim.SmallPayload, "", 0, 0, make([]int64, len(ids)), sender.Incarnation}
	if statement == "claim" {
		args = append(args, []byte{1<<len(ids) - 1}, ids[:1], ids[len(ids)-1:], ids[:1])
	}
	return args
}

// A claim that meets a lock ends after lockPatience and is repeated with row
// locks. Between the two statements the claim holds no lock, so its dispatcher
// may be declared lost. The second statement checks the lease again and takes
// nothing.
func TestClaimRepeatedUnderContentionChecksTheLeaseAgain(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, holder, claiming := connect(t, dsn), connect(t, dsn), connect(t, dsn)
	s, other := open(t, claim.Config{DSN: dsn, Identity: sender}), open(t, claim.Config{DSN: dsn})
	run, err := s.Join(t.Context())
	require.NoError(t, err)
	_, err = other.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 2, 1, 1)
	exec(t, holder, `BEGIN; SELECT FROM dispatcherd.jobs_live WHERE id = 1 FOR UPDATE`)
	exec(t, claiming, `SET lock_timeout = 20`)
	send := func(statement string) (int64, error) {
		tag, err := claiming.Exec(t.Context(), claim.Statements()[statement], claimArgs(statement, run, 77, 1, 2)...)
		return tag.RowsAffected(), err
	}
	_, err = send("claim")
	require.ErrorContains(t, err, "lock timeout")
	res, err := other.Heartbeat(t.Context(), silent(t, other, run))
	require.NoError(t, err)
	require.NotZero(t, res.Waiting&contract.DispatcherLost, "the failed claim holds no lock")
	require.Zero(t, release(t, other))
	n, err := send("claim-contended")
	require.NoError(t, err)
	require.Zero(t, n)
	require.Equal(t, dispatcherd.Pending, row(t, db, 2).Status)
}

// Row locks are expensive. The next hundred claims use them after a claim has
// lost more than a twentieth of its rows.
func TestRowLocksAreUsedForAHundredClaimsAfterContention(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	fill(t, db, 300, 1, 1)
	next := dispatcherd.JobID(1)
	take := func(n, lost int) { // claims n rows; the first rows are not claimable
		t.Helper()
		var ids []dispatcherd.JobID
		for range n {
			ids = append(ids, next)
			next++
		}
		exec(t, db, `UPDATE dispatcherd.jobs_live SET run_at = now() + '1 hour' WHERE id < $1 AND id >= $2`,
			ids[0]+dispatcherd.JobID(lost), ids[0])
		require.Len(t, s.Claim(t.Context(), claimOf(ids...)).Won, n-lost)
	}
	take(20, 0)
	require.Zero(t, s.Contention())
	take(20, 1)
	require.Zero(t, s.Contention(), "a loss of a twentieth is usual with shares")
	take(40, 3)
	require.Equal(t, 100, s.Contention())
	for range 60 {
		take(1, 0)
	}
	require.Equal(t, 40, s.Contention())
	take(20, 1)
	require.Equal(t, 39, s.Contention())
	take(1, 1)
	require.Equal(t, 100, s.Contention(), "the count starts again")
	for range 100 {
		take(1, 0)
	}
	require.Zero(t, s.Contention())
}

// The sweep finds running rows that no record names.
func TestSweepReleasesRowsWithoutARecord(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s := open(t, claim.Config{DSN: dsn})
	dead := open(t, claim.Config{DSN: dsn})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	run, err := dead.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 1, 1, 1)
	require.Len(t, dead.Claim(t.Context(), claimOf(1)).Won, 1)
	exec(t, db, `DELETE FROM dispatcherd.claims`)
	lose(t, db, run)
	beat := func() contract.HeartbeatResult {
		res, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		return res
	}
	sweep := func() int {
		strays, err := s.Sweep(t.Context())
		require.NoError(t, err)
		return strays
	}
	require.Zero(t, release(t, s))
	require.Equal(t, 1, sweep())
	require.Equal(t, 1, release(t, s))
	require.Zero(t, sweep())
	require.Zero(t, beat().Waiting&contract.DispatcherLost)
}

func TestHeartbeatRemovesTheRecordsOfEndedClaims(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s := open(t, claim.Config{DSN: dsn})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 1001, 1, 1)
	take(t, s, 1)
	drain(t, s, 1000, 10, lanes(1, 1, 10))
	_, err = s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
	require.NoError(t, err)
	require.Equal(t, 1, one[int](t, db, `SELECT count(*)::int FROM dispatcherd.claims`), "only the record of the running job remains")
}

// A claim skips rows that an open transaction has locked.
func TestClaimSkipsLockedRows(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db, holder := connect(t, dsn), connect(t, dsn)
	s := open(t, claim.Config{DSN: dsn})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 5, 1, 1)
	exec(t, holder, `BEGIN; UPDATE dispatcherd.jobs_live SET priority = 9 WHERE id = 2`)
	res := s.Claim(t.Context(), claimOf(1, 2, 3))
	require.Equal(t, contract.OK, res.Verdict)
	require.Equal(t, []dispatcherd.JobID{1, 3}, wonIDs(res.Won))
	exec(t, holder, `COMMIT`)
	require.Equal(t, []dispatcherd.JobID{2, 4}, wonIDs(s.Claim(t.Context(), claimOf(2, 4)).Won))
}
