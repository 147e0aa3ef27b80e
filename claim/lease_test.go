package claim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

func TestHeartbeatReadsTheHeartbeatsOfOtherDispatchers(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		other, s := w.open(t), joined(t, w)
		id, err := other.Join(t.Context())
		require.NoError(t, err)
		heard := func() contract.Heard {
			res, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
			require.NoError(t, err)
			require.Len(t, res.Others, 1)
			require.Equal(t, id, res.Others[0].ID)
			require.Equal(t, claim.DefaultLease, res.Others[0].Lease)
			return res.Others[0]
		}
		first := heard()
		require.Equal(t, first, heard())
		_, err = other.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.NotEqual(t, first.BeatAt, heard().BeatAt)
		w.lose(t, id)
		res, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.Empty(t, res.Others)
	})
}

func TestDispatcherThatSentAHeartbeatMeanwhileIsNotLost(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		other, s := w.open(t), joined(t, w)
		id, err := other.Join(t.Context())
		require.NoError(t, err)
		observed := silent(t, s, id)
		_, err = other.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		res, err := s.Heartbeat(t.Context(), observed)
		require.NoError(t, err)
		require.Zero(t, res.Waiting&contract.DispatcherLost)
	})
}

// The database clock is set back by an hour after the last heartbeat of a dispatcher, or
// forward before it. No statement decides by the clock, so neither makes the dispatcher
// lost, and a dispatcher whose heartbeat lies in the future can be declared lost.
func TestStepOfTheDatabaseClockMakesNoDispatcherLost(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	other, s := open(t, claim.Config{DSN: dsn}), open(t, claim.Config{DSN: dsn})
	id, err := other.Join(t.Context())
	require.NoError(t, err)
	_, err = s.Join(t.Context())
	require.NoError(t, err)
	fill(t, db, 2, 1, 1)
	for job, step := range []string{"- interval '1 hour'", "+ interval '1 hour'"} {
		exec(t, db, `UPDATE dispatcherd.dispatchers SET beat_at = now() `+step+` WHERE id = $1`, id)
		res, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.Zero(t, res.Waiting&contract.DispatcherLost, step)
		take(t, other, dispatcherd.JobID(job+1))
	}
	res, err := s.Heartbeat(t.Context(), silent(t, s, id))
	require.NoError(t, err)
	require.NotZero(t, res.Waiting&contract.DispatcherLost)
	require.Equal(t, 2, release(t, s))
}

// An earlier state of the table is restored while the dispatcher lives: its row is missing,
// or of an earlier heartbeat, or of another process with the same id.
func TestDispatcherJoinsAgainAfterAnEarlierStateWasRestored(t *testing.T) {
	t.Parallel()
	for name, restore := range map[string]string{
		"missing":         `TRUNCATE dispatcherd.dispatchers RESTART IDENTITY`,
		"earlier":         `UPDATE dispatcherd.dispatchers SET beats = 3`,
		"another process": `UPDATE dispatcherd.dispatchers SET incarnation = gen_random_uuid()`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.New(t)
			db := connect(t, dsn)
			s := open(t, claim.Config{DSN: dsn})
			former, err := s.Join(t.Context())
			require.NoError(t, err)
			fill(t, db, 2, 1, 1)
			take(t, s, 1)
			beat := func(n, oldest int64) contract.HeartbeatResult {
				res, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{Beat: n, OldestBeat: oldest})
				require.NoError(t, err)
				return res
			}
			require.False(t, beat(9, 0).LeaseLost)
			exec(t, db, restore)
			require.True(t, beat(10, 4).LeaseLost)
			id, err := s.Join(t.Context())
			require.NoError(t, err)
			require.NotEqual(t, former, id)
			require.False(t, beat(11, 0).LeaseLost)
			if name == "another process" {
				require.Equal(t, dispatcherd.Running, row(t, db, 1).Status, "the other process holds the row")
				return
			}
			require.NotZero(t, beat(12, 0).Waiting&contract.DispatcherLost)
			release(t, s)
			_, err = s.Sweep(t.Context()) // the records of claims may be missing, too
			require.NoError(t, err)
			release(t, s)
			got := row(t, db, 1)
			require.Equal(t, dispatcherd.Pending, got.Status)
			require.Zero(t, got.Crashes)
			require.Equal(t, []dispatcherd.JobID{1}, finish(t, s, contract.Finish{ID: 1, Attempt: 1}), "the row is of another run")
		})
	}
}

// A failover to an asynchronous standby may lose the latest heartbeats. Long jobs survive
// it: the dispatcher keeps its id.
func TestDispatcherKeepsItsIDIfOnlyTheLatestHeartbeatsAreLost(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := joined(t, w)
		for _, r := range []contract.HeartbeatRequest{{Beat: 5}, {Beat: 6, OldestBeat: 5}, {Beat: 7, OldestBeat: 6}} {
			res, err := s.Heartbeat(t.Context(), r)
			require.NoError(t, err)
			require.False(t, res.LeaseLost)
		}
		res, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{Beat: 9, OldestBeat: 8})
		require.NoError(t, err)
		require.True(t, res.LeaseLost)
		res, err = s.Heartbeat(t.Context(), contract.HeartbeatRequest{Beat: 6})
		require.NoError(t, err)
		require.True(t, res.LeaseLost, "another process with the same incarnation wrote a larger number")
	})
}

// A restore loses the row of a dead dispatcher, whose jobs run in the restored table. The
// living dispatchers join again, and the sweep of the runs that they gave up finds the jobs.
func TestJobsOfADispatcherWithoutARowAreReleased(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	dead, s := open(t, claim.Config{DSN: dsn}), open(t, claim.Config{DSN: dsn})
	for _, of := range []*claim.Store{dead, s} {
		_, err := of.Join(t.Context())
		require.NoError(t, err)
	}
	fill(t, db, 1, 1, 1)
	take(t, dead, 1)
	exec(t, db, `TRUNCATE dispatcherd.dispatchers, dispatcherd.claims`)
	res, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{Beat: 1})
	require.NoError(t, err)
	require.True(t, res.LeaseLost)
	_, err = s.Join(t.Context())
	require.NoError(t, err)
	strays, err := s.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, strays)
	_, err = s.Heartbeat(t.Context(), contract.HeartbeatRequest{Beat: 2})
	require.NoError(t, err)
	require.Equal(t, 1, release(t, s))
	require.Zero(t, row(t, db, 1).Crashes)
	strays, err = s.Sweep(t.Context())
	require.NoError(t, err)
	require.Zero(t, strays)
	require.Equal(t, 1, one[int](t, db, `SELECT count(*)::int FROM dispatcherd.dispatchers`))
}

func TestEachRunHasARandomID(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	s := open(t, claim.Config{DSN: dsn})
	ids := map[int32]bool{}
	for range 20 {
		id, err := s.Join(t.Context())
		require.NoError(t, err)
		require.Positive(t, id)
		ids[id] = true
	}
	require.Len(t, ids, 20)
	require.NotContains(t, ids, int32(1), "a sequence would begin with 1")
}
