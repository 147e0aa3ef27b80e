package actor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStatesAndEventsHaveNames(t *testing.T) {
	for s := stateNotInHand; s < stateCount; s++ {
		require.NotEmpty(t, s.String())
	}
	for ev := range eventCount {
		require.NotEmpty(t, ev.String())
	}
}

func TestEveryStateCanBeLeft(t *testing.T) {
	for s := stateNotInHand; s < stateCount; s++ {
		left := false
		for ev := range eventCount {
			next := transitions[s][ev].next
			left = left || next != 0 && next != s
		}
		require.True(t, left, "%v", s)
	}
}

func TestNoWorkerExecutesAJobWhoseClaimIsPending(t *testing.T) {
	for s := stateNotInHand; s < stateCount; s++ {
		require.False(t, s.claimPending() && s.executing(), "%v", s)
	}
}
