package daemon

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// count returns how many of n connections of a user are admitted at an instant.
func count(l *connectionLimit, uid, n int, now time.Time) (admitted int) {
	for range n {
		if l.admit(strconv.Itoa(uid), now) {
			admitted++
		}
	}
	return admitted
}

func TestUserMayOpenTwoSecondsOfConnectionsAtOnce(t *testing.T) {
	l, now := newConnectionLimit(100), time.Now()
	require.Equal(t, 200, count(l, 7, 1000, now))
	require.Equal(t, 0, count(l, 7, 1, now.Add(5*time.Millisecond)))
	require.Equal(t, 50, count(l, 7, 1000, now.Add(500*time.Millisecond)))
	require.Equal(t, 200, count(l, 7, 1000, now.Add(time.Hour)), "the allowance does not grow further")
}

func TestUserThatConnectsTooFastDoesNotAffectOtherUsers(t *testing.T) {
	l, now := newConnectionLimit(100), time.Now()
	require.Equal(t, 200, count(l, 7, 1000, now))
	require.Equal(t, 200, count(l, 8, 200, now))
}

func TestNumberOfCountedUsersIsBounded(t *testing.T) {
	l, now := newConnectionLimit(100), time.Now()
	for uid := range maxUsers {
		require.True(t, l.admit(strconv.Itoa(uid), now))
	}
	require.False(t, l.admit(strconv.Itoa(maxUsers), now))
	require.True(t, l.admit("0", now), "counted users may continue")
	later := now.Add(20 * time.Millisecond)
	require.True(t, l.admit(strconv.Itoa(maxUsers), later), "users with their complete allowance are forgotten")
	require.Len(t, l.paid, 1)
}
