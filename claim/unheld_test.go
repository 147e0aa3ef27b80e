package claim_test

import (
	"slices"
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

// unheld returns the rows that the next heartbeat releases because its dispatcher does not
// run them.
func unheld(t *testing.T, s store) []dispatcherd.JobID {
	t.Helper()
	var res contract.HeartbeatResult
	require.Eventually(t, func() (answered bool) { // the first heartbeat may find the connection lost
		var err error
		res, err = s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		return err == nil
	}, time.Minute, time.Millisecond)
	require.False(t, res.LeaseLost)
	return res.Unheld
}

func TestRowThatItsDispatcherDoesNotRunIsReleased(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := joined(t, w)
		one, two, other := w.insert(
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
		require.Len(t, s.Claim(t.Context(), claimOf(one, two)).Won, 2)
		take(t, s, other)
		require.Empty(t, unheld(t, s))
		require.Empty(t, finish(t, s, contract.Finish{ID: one, Attempt: 1}))
		w.unend(t, one)
		require.Equal(t, []dispatcherd.JobID{one}, unheld(t, s))
		got := w.get(t, one)
		require.Equal(t, dispatcherd.Pending, got.Status)
		require.Zero(t, got.Crashes+got.Failures)
		require.Equal(t, []string{claim.WhyUnheld}, got.Errors)
		require.Empty(t, unheld(t, s))
		require.Equal(t, dispatcherd.Running, w.get(t, two).Status)
		require.Equal(t, dispatcherd.Running, w.get(t, other).Status)
		require.EqualValues(t, 2, take(t, s, one).Attempt)
		require.Empty(t, unheld(t, s))
	})
}

// A failover loses the ends of all jobs of a claim. The next heartbeat has a new connection,
// so it must not remove the record of the claim, by which the rows are found.
func TestRowsOfAnEndedClaimAreReleasedAfterAFailover(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	fill(t, db, 3, 1, 1)
	require.Len(t, s.Claim(t.Context(), claimOf(1, 2)).Won, 2)
	require.Len(t, s.Claim(t.Context(), claimOf(3)).Won, 1)
	require.Empty(t, unheld(t, s))
	require.Equal(t, 3, runningIn(t, db))
	for id := range dispatcherd.JobID(3) {
		require.Empty(t, finish(t, s, contract.Finish{ID: id + 1, Attempt: 1}))
	}
	require.Zero(t, runningIn(t, db), "the record of the claim remains")
	unend(t, db, 1)
	unend(t, db, 2)
	require.Equal(t, []dispatcherd.JobID{1, 2}, unheld(t, s))
	s.CompareAgain()
	require.Empty(t, unheld(t, s))
	require.Zero(t, one[int](t, db, `SELECT count(*)::int FROM dispatcherd.claims`), "no row of these claims runs")
}

// runningIn returns how many jobs the only dispatcher runs according to the list.
func runningIn(t *testing.T, db *pgx.Conn) int {
	list, err := claim.Jobs{DB: db}.Dispatchers(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0].Running
}

// The answer to a claim or an adoption is lost. Its rows are not released before the outcome
// is known.
func TestRowsOfAnUnansweredClaimAreHeld(t *testing.T) {
	t.Parallel()
	records := claim.NewRecords()
	records.Ask(7)
	require.True(t, records.Holds(1, 7), "the claim is in flight")
	records.Fail(7, contract.Unknown)
	require.True(t, records.Holds(1, 7))
	records.Ask(7)
	records.Fail(7, contract.Refused)
	require.True(t, records.Holds(1, 7), "an earlier copy may have been executed")
	require.Empty(t, records.Unknown([]int64{7}))
	records.Add(7, []contract.Won{{ID: 1}})
	require.True(t, records.Holds(1, 7))
	require.False(t, records.Holds(1, 8), "another claim")
	require.False(t, records.Holds(2, 7), "the claim did not win it")
	records.Ask(8)
	records.Fail(8, contract.Refused)
	require.False(t, records.Holds(2, 8))
	require.Equal(t, []int64{8}, records.Unknown([]int64{7, 8}))
}

// A trigger refuses one of three rows. The two others are released, and the comparison
// neither stops nor repeats.
func TestUnheldRowThatCannotBeReleasedStopsNoOther(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	seen := new(failures)
	s := open(t, claim.Config{DSN: dsn, Observer: seen})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 3, 1, 1)
	require.Len(t, s.Claim(t.Context(), claimOf(1, 2, 3)).Won, 3)
	for id := range dispatcherd.JobID(3) {
		require.Empty(t, finish(t, s, contract.Finish{ID: id + 1, Attempt: 1}))
		unend(t, db, id+1)
	}
	exec(t, db, `ALTER TABLE dispatcherd.jobs_live ADD CONSTRAINT stuck CHECK (id <> 2 OR status <> 'pending') NOT VALID`)
	require.Equal(t, []dispatcherd.JobID{1, 3}, unheld(t, s))
	require.Contains(t, s.WhyAside(2), "stuck")
	require.Equal(t, map[dispatcherd.JobID][]claim.Operation{2: {claim.OpHeartbeat}}, seen.refusals())
	for _, err := range seen.all() { // unend has cut the connection
		require.NotContains(t, err.Error(), "stuck", "the repetition is no failure of the heartbeat")
	}
	exec(t, db, `ALTER TABLE dispatcherd.jobs_live DROP CONSTRAINT stuck`)
	s.EndPauses()
	require.Eventually(t, func() bool {
		s.CompareAgain()
		return slices.Equal([]dispatcherd.JobID{2}, unheld(t, s))
	}, 30*time.Second, 50*time.Millisecond, "its pause ends")
}

// One statement reads a bounded portion of the claims.
func TestUnheldRowsAreFoundInPortions(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	fill(t, db, 20, 1, 1)
	for id := range dispatcherd.JobID(10) {
		require.Len(t, s.Claim(t.Context(), claimOf(2*id+1, 2*id+2)).Won, 2)
		require.Empty(t, finish(t, s, contract.Finish{ID: 2*id + 1, Attempt: 1}))
		unend(t, db, 2*id+1)
	}
	exec(t, db, `UPDATE dispatcherd.claims SET ids = ids || array_fill(-1::bigint, ARRAY[2000])`) // 16 kB each, so that three exceed a portion
	require.Len(t, s.ComparePortion(t), 3)
	require.Len(t, unheld(t, s), 7)
	require.Empty(t, unheld(t, s))
}
