package jobstate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStatesAndEventsHaveNames(t *testing.T) {
	for s := NotInHand; s < States; s++ {
		require.NotEmpty(t, s.String())
	}
	for ev := range Events {
		require.NotEmpty(t, ev.String())
	}
}

func TestEveryStateCanBeLeft(t *testing.T) {
	for s := NotInHand; s < States; s++ {
		left := false
		for ev := range Events {
			next, _ := Next(s, ev)
			left = left || next != 0 && next != s
		}
		require.True(t, left, "%v", s)
	}
}

func TestNoWorkerExecutesAJobWhoseClaimIsPending(t *testing.T) {
	for s := NotInHand; s < States; s++ {
		require.False(t, s.ClaimPending() && s.Executing(), "%v", s)
	}
}
