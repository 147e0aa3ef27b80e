package actor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// A hungry dispatcher leaves the first rows to their owner, who is about to claim
// them, but not one that would be passed by a row which came later by more than the
// handicap: the window of a shared type is longer by that, and by nothing else.
func TestRowsLeftToTheirOwnerArePassedByNoneThatCameMuchLater(t *testing.T) {
	c := New(DefaultConfig())
	c.Step(1, Registered{Session: 1, Worker: "w", Slots: []dispatcherd.Slot{{ID: 1, Types: []string{"pdf"}}}}, nil)
	pdf, ok := c.index.Lookup("pdf")
	require.True(t, ok)
	rows := func(apart time.Duration) (list []contract.Candidate) {
		for n := range 10 {
			list = append(list, contract.Candidate{Key: contract.Key{RunAt: int64(n) * apart.Microseconds(), ID: dispatcherd.JobID(n + 1)}})
		}
		return list
	}
	handicap := c.cfg.Handicap
	for apart, left := range map[time.Duration]int{
		handicap / 100: 9, // all but one, for which there is a slot
		handicap / 4:   4,
		handicap:       1,
		handicap + 1e6: 0,
	} {
		require.Equal(t, left, c.leaveToOwner(pdf, rows(apart)), apart)
	}
}
