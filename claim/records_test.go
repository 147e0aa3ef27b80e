package claim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func wonJobs(ids ...dispatcherd.JobID) (won []contract.Won) {
	for _, id := range ids {
		won = append(won, contract.Won{ID: id})
	}
	return won
}

func TestRecordIsRemovedWithTheLastJobOfItsClaim(t *testing.T) {
	t.Parallel()
	m := newRecords()
	m.add(7, wonJobs(1, 2))
	m.remove(1)
	require.Empty(t, m.over)
	m.remove(2)
	require.Equal(t, []int64{7}, m.over)
	m.add(8, nil)
	require.Equal(t, []int64{7, 8}, m.over, "a claim that won nothing")
	require.Empty(t, m.running)
	require.Empty(t, m.of)
}

// A claim with an unknown outcome is resolved: the same token is added again.
// Its record must remain as long as one of its jobs runs.
func TestRecordAddedTwiceIsKept(t *testing.T) {
	t.Parallel()
	m := newRecords()
	m.add(7, wonJobs(1, 2))
	m.add(7, wonJobs(1, 2))
	require.Empty(t, m.over)
	m.remove(1)
	require.Empty(t, m.over)
	m.remove(2)
	require.Equal(t, []int64{7}, m.over, "once")
	require.Empty(t, m.running)
}

func TestJobClaimedAgainMovesToTheNewRecord(t *testing.T) {
	t.Parallel()
	m := newRecords()
	m.add(7, wonJobs(1, 2))
	m.add(8, wonJobs(1))
	m.remove(2)
	require.Equal(t, []int64{7}, m.over)
	m.remove(1)
	require.Equal(t, []int64{7, 8}, m.over)
}

// A renewed resume offer is about a running job. If the job ends during the
// adoption, no record is written for it.
func TestRenewedOfferOfAnEndedJobHasNoRecord(t *testing.T) {
	t.Parallel()
	m := newRecords()
	m.add(1, []contract.Won{{ID: 7}, {ID: 8}})
	m.remove(8)
	asked := []contract.ResumeOffer{{ID: 7, Renewal: true}, {ID: 8, Renewal: true}, {ID: 9}}
	m.adopted(2, asked, []contract.Adopted{{Won: contract.Won{ID: 7}}, {Won: contract.Won{ID: 8}}, {Won: contract.Won{ID: 9}}})
	require.Equal(t, map[dispatcherd.JobID]int64{7: 2, 9: 2}, m.of)
	require.Equal(t, []int64{1}, m.over)
	m.remove(7)
	m.remove(9)
	require.Equal(t, []int64{1, 2}, m.over)
}
