package claim_test

import (
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/stretchr/testify/require"
)

var predecessorIdentity = claim.Identity{Incarnation: claim.Incarnation{15: 1}, Lock: "boot-1 8:1 4711"}

func TestDeclaredLostDispatcherLosesItsJobsWithTheNextHeartbeat(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		predecessor, successor := w.open(t, predecessorIdentity), joined(t, w)
		_, err := predecessor.Join(t.Context())
		require.NoError(t, err)
		id, other := w.insert(t, claimfake.Row{Type: "pdf"}, 0), w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		take(t, predecessor, id)

		found, err := successor.DeclareLost(t.Context(), predecessorIdentity, 0, 0)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, contract.Refused, predecessor.Claim(t.Context(), claimOf(other)).Verdict)
		res, err := predecessor.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.True(t, res.LeaseLost)

		res, err = successor.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.NotZero(t, res.Waiting&contract.DispatcherLost)
		release(t, successor)
		job := w.get(t, id)
		require.Equal(t, dispatcherd.Pending, job.Status)
		require.EqualValues(t, 1, job.Crashes)
		require.Equal(t, []dispatcherd.JobID{id}, finish(t, predecessor, contract.Finish{ID: id, Attempt: 1}), "a late report is stale")
		found, err = successor.DeclareLost(t.Context(), predecessorIdentity, 0, 0)
		require.NoError(t, err)
		require.False(t, found, "the second call finds no such dispatcher")
	})
}

func TestJobsOfADeclaredLostDispatcherCanBeAdoptedUntilTheHoldEnds(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		predecessor, successor := w.open(t, predecessorIdentity), joined(t, w)
		run, err := predecessor.Join(t.Context())
		require.NoError(t, err)
		_, err = predecessor.Heartbeat(t.Context(), contract.HeartbeatRequest{Capacity: map[string]int{"pdf": 8}})
		require.NoError(t, err)
		offered, silent := w.insert(t, claimfake.Row{Type: "pdf"}, 0), w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		req := claimOf(offered, silent)
		session := contract.Fingerprint(7 << 16)
		req.Sessions = []contract.Fingerprint{session, session}
		require.Len(t, predecessor.Claim(t.Context(), req).Won, 2)

		found, err := successor.DeclareLost(t.Context(), predecessorIdentity, time.Minute, 0)
		require.NoError(t, err)
		require.True(t, found)
		res, err := successor.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.Zero(t, release(t, successor), "the hold has not ended")
		require.Empty(t, res.OtherCapacity, "its slots are not part of the cluster capacity")
		for range 2 { // a first refusal must not set the new epoch
			require.Equal(t, contract.Refused, predecessor.Claim(t.Context(), claimOf(w.insert(t, claimfake.Row{Type: "pdf"}, 0))).Verdict)
		}
		require.Empty(t, predecessor.Resolve(t.Context(), claimOf(offered)).Won)
		require.Equal(t, contract.Refused, predecessor.Claim(t.Context(), claimOf(w.insert(t, claimfake.Row{Type: "pdf"}, 0))).Verdict)
		res, err = predecessor.Heartbeat(t.Context(), contract.HeartbeatRequest{Capacity: map[string]int{"pdf": 8}})
		require.NoError(t, err)
		require.True(t, res.LeaseLost)

		adopted := successor.Adopt(t.Context(), contract.AdoptRequest{Token: claimOf().Token,
			Jobs: []contract.ResumeOffer{{ID: offered, Attempt: 1, From: session, To: session}}})
		require.Equal(t, contract.OK, adopted.Verdict)
		require.Len(t, adopted.Jobs, 1)
		w.lose(t, run)
		_, err = successor.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.Equal(t, 1, release(t, successor))
		require.EqualValues(t, 1, w.get(t, silent).Crashes)
		require.Empty(t, finish(t, successor, contract.Finish{ID: offered, Attempt: 1}))
	})
}

// A dispatcher is killed again and again, before its lease ends. Each process holds the jobs of its predecessor, and those of earlier ones
// for half as long as before, but not less than two seconds, so that some process lives long enough to release them.
func TestHoldsOfEarlierPredecessorsAreHalved(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		identity := func(n byte) claim.Identity {
			return claim.Identity{Incarnation: claim.Incarnation{15: n}, Lock: predecessorIdentity.Lock}
		}
		other := joined(t, w)
		var ids []int32
		var got [][]time.Duration
		for n := range byte(8) {
			least := 2 * time.Second
			if n == 7 {
				least = 10 * time.Second
			}
			s := w.open(t, identity(n+1))
			if n > 0 {
				found, err := s.DeclareLost(t.Context(), identity(n), 10*time.Second, least)
				require.NoError(t, err)
				require.True(t, found)
				found, err = s.DeclareLost(t.Context(), identity(n), 10*time.Second, least)
				require.NoError(t, err)
				require.False(t, found, "the answer of the first call was lost")
			}
			id, err := s.Join(t.Context())
			require.NoError(t, err)
			ids = append(ids, id)
			res, err := other.Heartbeat(t.Context(), contract.HeartbeatRequest{})
			require.NoError(t, err)
			var leases []time.Duration
			for _, id := range ids[:n] {
				for _, h := range res.Others {
					if h.ID == id {
						leases = append(leases, h.Lease)
					}
				}
			}
			got = append(got, leases)
		}
		const s = time.Second
		require.Equal(t, []time.Duration{2 * s, 2 * s, 5 * s / 2, 5 * s, 10 * s}, got[5], "of the oldest first")
		require.Equal(t, []time.Duration{2 * s, 2 * s, 2 * s, 5 * s / 2, 5 * s, 10 * s}, got[6])
		require.Equal(t, []time.Duration{2 * s, 2 * s, 2 * s, 5 * s / 2, 5 * s, 10 * s, 10 * s}, got[7], "which remote workers may still run")
	})
}

func TestLivingDispatcherIsNotDeclaredLost(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		alive, successor := w.open(t, predecessorIdentity), joined(t, w)
		_, err := alive.Join(t.Context())
		require.NoError(t, err)
		id := w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		for name, read := range map[string]claim.Identity{
			"the lock file was copied":              {Incarnation: predecessorIdentity.Incarnation, Lock: "boot-1 8:1 4712"},
			"the lock is of another host":           {Incarnation: predecessorIdentity.Incarnation, Lock: "boot-2 8:1 4711"},
			"the lock has had another holder since": {Incarnation: claim.Incarnation{15: 2}, Lock: predecessorIdentity.Lock},
		} {
			found, err := successor.DeclareLost(t.Context(), read, 0, 0)
			require.NoError(t, err, name)
			require.False(t, found, name)
		}
		res, err := alive.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.False(t, res.LeaseLost)
		take(t, alive, id)
	})
}

func TestDispatcherThatHandedOverIsNotDeclaredLost(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		predecessor, successor := w.open(t, predecessorIdentity), joined(t, w)
		_, err := predecessor.Join(t.Context())
		require.NoError(t, err)
		id := w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		take(t, predecessor, id)
		require.NoError(t, predecessor.HandOver(t.Context(), time.Minute))
		found, err := successor.DeclareLost(t.Context(), predecessorIdentity, 0, 0)
		require.NoError(t, err)
		require.False(t, found)
		_, err = successor.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.Equal(t, dispatcherd.Running, w.get(t, id).Status, "the rows are held for the time that the hand-over stated")
	})
}

func TestDispatcherWithoutALockIsNeverDeclaredLost(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := joined(t, w)
		for _, incomplete := range []claim.Identity{{}, {Lock: "boot-1 8:1 4711"}, {Incarnation: claim.Incarnation{15: 1}}} {
			found, err := s.DeclareLost(t.Context(), incomplete, 0, 0)
			require.NoError(t, err)
			require.False(t, found)
		}
		res, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
		require.NoError(t, err)
		require.False(t, res.LeaseLost)
	})
}

func TestHeartbeatOfAnotherIncarnationFails(t *testing.T) {
	t.Parallel()
	dsn := pgtest.New(t)
	s := open(t, claim.Config{DSN: dsn})
	id, err := s.Join(t.Context())
	require.NoError(t, err)
	exec(t, connect(t, dsn), `UPDATE dispatcherd.dispatchers SET incarnation = gen_random_uuid() WHERE id = $1`, id)
	res, err := s.Heartbeat(t.Context(), contract.HeartbeatRequest{})
	require.NoError(t, err)
	require.True(t, res.LeaseLost, "a restored database may give the same id to two dispatchers")
}
