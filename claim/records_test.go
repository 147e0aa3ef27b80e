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
	m := NewRecords()
	m.Add(7, wonJobs(1, 2))
	m.Remove(1)
	require.Empty(t, m.over)
	m.Remove(2)
	require.Equal(t, []int64{7}, m.over)
	m.Add(8, nil)
	require.Equal(t, []int64{7, 8}, m.over, "a claim that won nothing")
	require.Empty(t, m.running)
	require.Empty(t, m.of)
}

// A claim with an unknown outcome is resolved: the same token is added again.
// Its record must remain as long as one of its jobs runs.
func TestRecordAddedTwiceIsKept(t *testing.T) {
	t.Parallel()
	m := NewRecords()
	m.Add(7, wonJobs(1, 2))
	m.Add(7, wonJobs(1, 2))
	require.Empty(t, m.over)
	m.Remove(1)
	require.Empty(t, m.over)
	m.Remove(2)
	require.Equal(t, []int64{7}, m.over, "once")
	require.Empty(t, m.running)
}

func TestJobClaimedAgainMovesToTheNewRecord(t *testing.T) {
	t.Parallel()
	m := NewRecords()
	m.Add(7, wonJobs(1, 2))
	m.Add(8, wonJobs(1))
	m.Remove(2)
	require.Equal(t, []int64{7}, m.over)
	m.Remove(1)
	require.Equal(t, []int64{7, 8}, m.over)
}

// A renewed resume offer is about a running job. If the job ends during the
// adoption, no record is written for it.
func TestRenewedOfferOfAnEndedJobHasNoRecord(t *testing.T) {
	t.Parallel()
	m := NewRecords()
	m.Add(1, []contract.Won{{ID: 7}, {ID: 8}})
	m.Remove(8)
	asked := []contract.ResumeOffer{{ID: 7, Renewal: true}, {ID: 8, Renewal: true}, {ID: 9}}
	m.AddAdopted(2, asked, []contract.Adopted{{Won: contract.Won{ID: 7}}, {Won: contract.Won{ID: 8}}, {Won: contract.Won{ID: 9}}})
	require.Equal(t, map[dispatcherd.JobID]int64{7: 2, 9: 2}, m.of)
	require.Equal(t, []int64{1}, m.over)
	m.Remove(7)
	m.Remove(9)
	require.Equal(t, []int64{1, 2}, m.over)
}

// The answer of a renewal was lost, and when it was repeated, the row was locked. The first copy may take the row later. The row is held:
// this dispatcher runs the job under its former token.
func TestRowThatALateRenewalTakesIsHeld(t *testing.T) {
	t.Parallel()
	m := NewRecords()
	m.Add(1, []contract.Won{{ID: 7}})
	m.Ask(2)
	m.Fail(2, contract.Unknown)
	m.AddAdopted(2, []contract.ResumeOffer{{ID: 7, Renewal: true}, {ID: 8}}, nil)
	require.True(t, m.Holds(7, 2))
	require.True(t, m.Holds(7, 1))
	require.False(t, m.Holds(8, 2), "the worker was told to stop it")
	require.Empty(t, m.Unknown([]int64{2}), "the row may run under it")
	m.Remove(7)
	require.Empty(t, m.running)
	require.False(t, m.Holds(7, 2))
}

// The answer of an adoption was lost, and when it was repeated, the row was locked. The first copy may take the row later. Only the
// record of the adoption leads to it, so the record is not removed with the others, but by a comparison.
func TestRecordRemainsIfACopyOfItsAdoptionMayArrive(t *testing.T) {
	t.Parallel()
	m := NewRecords()
	m.Ask(2)
	m.Fail(2, contract.Unknown)
	m.AddAdopted(2, []contract.ResumeOffer{{ID: 7}, {ID: 8}}, []contract.Adopted{{Won: contract.Won{ID: 8}}})
	require.Empty(t, m.Unknown([]int64{2}), "a job of it runs")
	m.Remove(8)
	require.Empty(t, m.over)
	require.Equal(t, []int64{2}, m.Unknown([]int64{2}))
	require.Empty(t, m.running)
	require.Empty(t, m.copies)
}
