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
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/stretchr/testify/require"
)

// ledger records every attempt that a claim handed out.
type ledger struct {
	mu    sync.Mutex
	taken map[string]int
}

func (l *ledger) write(w dispatcherd.Won) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken[fmt.Sprintf("%d/%d", w.ID, w.Attempt)]++
}

// Three dispatchers claim overlapping batches in random order and end them in
// every way, while operators cancel and others beat and release.
func TestEveryAttemptIsHandedOutOnceAndNothingDeadlocks(t *testing.T) {
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	const jobs = 1500
	fill(t, db, jobs, 3, 2)
	book := ledger{taken: map[string]int{}}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for n := range 3 {
		s := open(t, claim.Config{DSN: dsn})
		_, err := s.Join(ctx)
		require.NoError(t, err)
		wg.Go(func() { hammer(ctx, t, s, &book, uint64(n)) })
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
	counts, err := claim.Jobs{DB: db}.Counts(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, jobs, counts[dispatcherd.Done]+counts[dispatcherd.Failed]+counts[dispatcherd.Cancelled], "%v", counts)
	var ids, deadlocks int
	require.NoError(t, db.QueryRow(t.Context(), `SELECT count(DISTINCT id), (SELECT deadlocks FROM pg_stat_database WHERE datname = current_database())
		FROM dispatcherd.jobs`).Scan(&ids, &deadlocks))
	require.Equal(t, jobs, ids)
	require.Zero(t, deadlocks)
}

// hammer works until no pending job is left.
func hammer(ctx context.Context, t *testing.T, s *claim.Store, book *ledger, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	for ctx.Err() == nil {
		res := s.Fetch(ctx, dispatcherd.FetchRequest{Lanes: lanes(3, 2, 1+rng.IntN(40))})
		if len(res.Candidates) == 0 {
			return // what others still run, they end
		}
		var ids []dispatcherd.JobID
		for _, c := range res.Candidates {
			ids = append(ids, c.Key.ID)
		}
		slices.Sort(ids)
		won := s.Claim(ctx, claimOf(ids...))
		var items []dispatcherd.Finish
		for _, w := range won.Won {
			book.write(w)
			items = append(items, dispatcherd.Finish{ID: w.ID, Attempt: w.Attempt, Outcome: dispatcherd.Outcome(rng.IntN(7)), Error: "x"})
		}
		slices.SortFunc(items, func(a, b dispatcherd.Finish) int { return int(a.ID - b.ID) })
		fin := s.Finish(ctx, dispatcherd.FinishRequest{Items: items})
		if fin.Verdict != dispatcherd.OK || len(fin.Stale) > 0 {
			t.Errorf("finish: %v, stale %v", fin.Verdict, fin.Stale)
			return
		}
		if _, err := s.Beat(ctx, nil); err != nil {
			t.Errorf("beat: %v", err)
			return
		}
	}
}

// A claim that is under way when its dispatcher is declared lost must not leave
// rows behind that nobody runs and nobody releases.
func TestAClaimInFlightIsWaitedForBeforeItsDispatcherIsLost(t *testing.T) {
	dsn := pgtest.New(t)
	db, holder := connect(t, dsn), connect(t, dsn)
	s, other := open(t, claim.Config{DSN: dsn}), open(t, claim.Config{DSN: dsn})
	run, err := s.Join(t.Context())
	require.NoError(t, err)
	_, err = other.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 1, 1, 1)

	// The claim stands still inside the server, with rows taken: its note would
	// be a duplicate of one that the holder has not committed.
	req := claimOf(1)
	exec(t, holder, `BEGIN`)
	exec(t, holder, `INSERT INTO dispatcherd.claims VALUES ($1, $2, '{}')`, run, claim.Fold(req.Token))
	answer := make(chan dispatcherd.ClaimResult, 1)
	go func() { answer <- s.Claim(context.WithoutCancel(t.Context()), req) }()
	waiting := `SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'dispatcherd claim%' AND wait_event_type = 'Lock'`
	require.Eventually(t, func() bool {
		var stuck bool
		return db.QueryRow(context.Background(), waiting).Scan(&stuck) == nil && stuck
	}, 5*time.Second, 5*time.Millisecond)
	exec(t, db, `UPDATE dispatcherd.dispatchers SET beat_at = now() - 2 * lease WHERE id = $1`, run)
	res, err := other.Beat(t.Context(), nil)
	require.NoError(t, err)
	require.False(t, res.Lost, "not while a claim of its is under way")

	exec(t, holder, `ROLLBACK`)
	require.Len(t, (<-answer).Won, 1)
	res, err = other.Beat(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, res.Lost)
	require.Equal(t, 1, res.Released)
}

// Running rows whose claim left no note are found by the sweep.
func TestSweepFindsStrays(t *testing.T) {
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
	exec(t, db, `UPDATE dispatcherd.dispatchers SET beat_at = now() - 2 * lease WHERE id = $1`, run)
	beat := func() claim.BeatResult {
		res, err := s.Beat(t.Context(), nil)
		require.NoError(t, err)
		return res
	}
	sweep := func() int {
		strays, err := s.Sweep(t.Context())
		require.NoError(t, err)
		return strays
	}
	require.Zero(t, beat().Released)
	require.Equal(t, 1, sweep())
	require.Equal(t, 1, beat().Released)
	require.Zero(t, sweep())
	require.False(t, beat().Lost)
}

// The table of notes does not grow with the jobs that are done.
func TestNotesOfFinishedClaimsAreForgotten(t *testing.T) {
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s := open(t, claim.Config{DSN: dsn})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 1000, 1, 1)
	drain(t, s, 1000, 10, lanes(1, 1, 10))
	var notes int
	require.NoError(t, db.QueryRow(t.Context(), `SELECT count(*) FROM dispatcherd.claims`).Scan(&notes))
	require.LessOrEqual(t, notes, 1)
}

// Somebody's open transaction must not stop the queue: what it has locked is
// left out, at once, and the rest goes on.
func TestALockedRowIsSkipped(t *testing.T) {
	dsn := pgtest.New(t)
	db, holder := connect(t, dsn), connect(t, dsn)
	s := open(t, claim.Config{DSN: dsn})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 5, 1, 1)
	exec(t, holder, `BEGIN; UPDATE dispatcherd.jobs_live SET priority = 9 WHERE id = 2`)
	res := s.Claim(t.Context(), claimOf(1, 2, 3))
	require.Equal(t, dispatcherd.OK, res.Verdict)
	require.Equal(t, []dispatcherd.JobID{1, 3}, wonIDs(res.Won))
	exec(t, holder, `COMMIT`)
	require.Equal(t, []dispatcherd.JobID{2, 4}, wonIDs(s.Claim(t.Context(), claimOf(2, 4)).Won))
}
