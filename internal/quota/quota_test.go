package quota

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// fill lets a user take as much as it may.
func fill(q *Quota, user string) int {
	q.Add(user, q.Most(user)-q.Of(user))
	return q.Of(user)
}

func TestEighthStaysFreeForTheNextUser(t *testing.T) {
	q := New(200_000)
	for i, most := range []int{175_000, 21_875, 2735, 342, 42, 6, 0} {
		require.Equal(t, most, fill(q, strconv.Itoa(i)))
		require.False(t, q.Fits(strconv.Itoa(i), 1))
	}
	user, held := q.Largest()
	require.Equal(t, "0", user)
	require.Equal(t, 175_000, held)
}

func TestSmallBoundsReserveNothing(t *testing.T) {
	require.Equal(t, 1, New(1).Most("u"))
	require.Equal(t, 7, New(7).Most("u"))
	require.Equal(t, 7, New(8).Most("u"))
	for n := range 1000 {
		require.GreaterOrEqual(t, New(For(n)).Most("u"), n)
	}
}

func TestObjectionNamesUserAndNumbers(t *testing.T) {
	q := New(16)
	q.Add("uid 7", 14)
	require.Equal(t,
		"too many slots: uid 7 has 14, wants 3 more and may have 14, while all users have 14 of 16: use fewer, or another dispatcher",
		q.Objection("uid 7", 3, "slots"))
	require.Contains(t, q.Objection("", 1, "slots"), "a user without a name has 0, wants 1 more and may have 2,")
}

// In random histories the numbers equal those of a naive list of all units. Whatever one user
// does, another one that holds nothing may take a part of what the others leave.
func TestQuotaEqualsNaiveCount(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		limit := 1 + rng.IntN(300)
		q, units := New(limit), []string{}
		count := func(user string) (n int) {
			for _, u := range units {
				if u == user {
					n++
				}
			}
			return n
		}
		for range 200 {
			user := strconv.Itoa(rng.IntN(4))
			if n := 1 + rng.IntN(20); rng.IntN(3) > 0 {
				mine := count(user)
				left := limit - (len(units) - mine)
				require.Equal(t, 8*(mine+n) <= 7*left+(left%8), q.Fits(user, n))
				if q.Fits(user, n) {
					q.Add(user, n)
					for range n {
						units = append(units, user)
					}
				}
			} else if len(units) > 0 {
				at := rng.IntN(len(units))
				q.Add(units[at], -1)
				units = append(units[:at], units[at+1:]...)
			}
			_, largest := q.Largest()
			most := 0
			for u := range 4 {
				require.Equal(t, count(strconv.Itoa(u)), q.Of(strconv.Itoa(u)))
				most = max(most, count(strconv.Itoa(u)))
			}
			require.Equal(t, most, largest)
			require.Equal(t, len(units), q.Held())
			require.LessOrEqual(t, q.Held(), limit)
			free := limit - len(units)
			require.GreaterOrEqual(t, q.Most("new"), free-free/8)
		}
	}
}
