package aside

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// naiveRow is a row of the reference: a list that is searched from the beginning.
type naiveRow struct {
	id      dispatcherd.JobID
	until   timing.Instant
	refused int
	reason  string
}

type naive []naiveRow

func (n *naive) add(u contract.Unclaimable, now timing.Instant, rng *rand.Rand) {
	for i := range *n {
		if r := &(*n)[i]; r.id == u.ID {
			r.until, r.reason = now+naiveDelay(r.refused, rng), u.Reason
			r.refused++
			return
		}
	}
	*n = append(*n, naiveRow{u.ID, now + naiveDelay(0, rng), 1, u.Reason})
}

// naiveDelay is between half and all of 1 s, 2 s, 4 s … 5 min, in milliseconds.
func naiveDelay(refused int, rng *rand.Rand) timing.Instant {
	d := int64(1000)
	for range refused {
		d = min(2*d, 300_000)
	}
	return timing.Instant(d/2 + rng.Int64N(d/2+1))
}

func (n *naive) remove(gone func(naiveRow) bool) {
	var kept naive
	for _, r := range *n {
		if !gone(r) {
			kept = append(kept, r)
		}
	}
	*n = kept
}

func (n *naive) reason(id dispatcherd.JobID, now timing.Instant) (string, bool) {
	for _, r := range *n {
		if r.id == id && now < r.until {
			return r.reason, true
		}
	}
	return "", false
}

func TestRowsEqualAList(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	ours, theirs := rand.New(rand.NewPCG(3, 4)), rand.New(rand.NewPCG(3, 4))
	var rows Rows
	var want naive
	now := timing.Instant(0)
	for step := range 4_000 {
		now += timing.Instant(random.IntN(20_000))
		id := dispatcherd.JobID(random.IntN(40))
		switch random.IntN(4) {
		case 0:
			rows.Remove(id)
			want.remove(func(r naiveRow) bool { return r.id == id })
		case 1, 2:
			u := contract.Unclaimable{ID: id, Reason: strconv.Itoa(step)}
			require.Equal(t, 1, rows.Add([]contract.Unclaimable{u}, now, ours))
			want.remove(func(r naiveRow) bool { return now > r.until+600_000 })
			want.add(u, now, theirs)
		}
		require.Equal(t, len(want), rows.Len())
		for id := range dispatcherd.JobID(40) {
			reason, aside := rows.Reason(id, now)
			wantReason, wantAside := want.reason(id, now)
			require.Equal(t, wantAside, aside)
			require.Equal(t, wantReason, reason)
		}
	}
}

// A known row gets a longer pause although there is no room for further rows.
func TestAtMostMaxRowsAreSetAside(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var rows Rows
	require.Zero(t, rows.Add(nil, 0, rng))
	refused := make([]contract.Unclaimable, Max+10)
	for i := range refused {
		refused[i] = contract.Unclaimable{ID: dispatcherd.JobID(i + 1), Reason: "refused"}
	}
	require.Equal(t, Max, rows.Add(refused, 0, rng))
	require.Equal(t, Max, rows.Len())
	_, aside := rows.Reason(Max+1, 1)
	require.False(t, aside, "it is claimed again when a scan finds it")
	require.Equal(t, Max, rows.Add(refused, 1, rng))
	_, aside = rows.Reason(1, timing.Instant(0).After(999*time.Millisecond))
	require.True(t, aside, "the second pause is at least a second")
}

func TestManyRowsAreClaimedAgainAtABoundedRate(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	var rows Rows
	for id := range dispatcherd.JobID(1000) {
		rows.Add([]contract.Unclaimable{{ID: id + 1, Reason: strings.Repeat("ä", maxReason)}}, 0, rng)
	}
	reason, aside := rows.Reason(1000, timing.Instant(0).After(999*share-time.Millisecond))
	require.True(t, aside)
	require.Len(t, reason, maxReason)
	_, aside = rows.Reason(1000, timing.Instant(0).After(1000*share))
	require.False(t, aside)
}

func TestPauseOfARowGrowsToItsBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	var rows Rows
	now := timing.Instant(0)
	for n := range 20 {
		rows.Add([]contract.Unclaimable{{ID: 1, Reason: "no"}}, now, rng)
		wait := rows.rows[1].until - now
		bound := min(timing.Instant(1000)<<n, 300_000)
		require.GreaterOrEqual(t, wait, bound/2)
		require.LessOrEqual(t, wait, bound)
		now += wait
		_, aside := rows.Reason(1, now)
		require.False(t, aside, "the pause is over")
	}
	rows.Remove(1)
	require.Zero(t, rows.Len())
}
