package claim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func TestClaimTakesTheOtherRowsIfOneIsLocked(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := joined(t, w)
		locked, free := w.insert(t, claimfake.Row{Type: "pdf"}, 0), w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		unlock := w.lock(t, locked)
		res := s.Claim(t.Context(), claimOf(locked, free))
		require.Equal(t, contract.OK, res.Verdict)
		require.Equal(t, []dispatcherd.JobID{free}, wonIDs(res.Won))
		unlock()
		take(t, s, locked)
	})
}

func TestFetchOmitsLockedRows(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s := joined(t, w)
		locked, free := w.insert(t, claimfake.Row{Type: "pdf"}, 0), w.insert(t, claimfake.Row{Type: "pdf"}, time.Millisecond)
		unlock := w.lock(t, locked)
		fetch := func(skip bool) (ids []dispatcherd.JobID) {
			one := contract.FetchRequest{Lanes: []contract.LaneQuery{{Type: "pdf", Limit: 1}}, SkipLocked: skip}
			for _, c := range s.Fetch(t.Context(), one).Candidates {
				ids = append(ids, c.Key.ID)
			}
			return ids
		}
		require.Equal(t, []dispatcherd.JobID{locked}, fetch(false))
		require.Equal(t, []dispatcherd.JobID{free}, fetch(true))
		unlock()
		require.Equal(t, []dispatcherd.JobID{locked}, fetch(true))
	})
}

func TestHeartbeatSkipsLockedRowsUntilTheNextOne(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		dead, other, run := joinedPair(t, w)
		locked, free := w.insert(t, claimfake.Row{Type: "pdf"}, 0), w.insert(t, claimfake.Row{Type: "pdf"}, 0)
		take(t, dead, locked)
		take(t, dead, free)
		w.lose(t, run)
		unlock := w.lock(t, locked)
		for _, id := range []dispatcherd.JobID{free, locked} {
			_, err := other.Heartbeat(t.Context(), contract.HeartbeatRequest{})
			require.NoError(t, err)
			require.Equal(t, 1, release(t, other))
			require.Equal(t, dispatcherd.Pending, w.get(t, id).Status)
			if id == free {
				unlock()
			}
		}
	})
}
