package claim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/claim/claimfake"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/stretchr/testify/require"
)

// Contiguous ids are claimed and ended by reading a range of the index.
func TestIDRangeDoesNotAffectOtherRows(t *testing.T) {
	t.Parallel()
	contractSuite(t, func(t *testing.T, w world) {
		s, other := joined(t, w), joined(t, w)
		var meant, between []dispatcherd.JobID
		for i := range 90 {
			id := w.insert(t, claimfake.Row{Type: "pdf", Payload: fmt.Appendf(nil, `{"n": %d}`, i)}, 0)
			if i%3 == 1 {
				between = append(between, id)
			} else {
				meant = append(meant, id)
			}
		}
		take(t, other, meant[7])
		res := s.Claim(t.Context(), claimOf(meant...))
		require.Equal(t, contract.OK, res.Verdict)
		require.Len(t, res.Won, len(meant)-1)
		for _, id := range between {
			require.Equal(t, dispatcherd.Pending, w.get(t, id).Status)
		}

		take(t, s, between[3]) // a row of this dispatcher with the same attempt as the jobs that end
		var items []contract.Finish
		for i, id := range meant {
			f := contract.Finish{ID: id, Attempt: 1, Outcome: contract.Succeeded}
			switch i % 3 {
			case 0:
				f.Result = fmt.Appendf(nil, `"%s"`, strings.Repeat("ü", i))
			case 1:
				f.Result = fmt.Appendf(nil, `%d`, i)
			}
			items = append(items, f)
		}
		items[20].Attempt = 2
		fin := s.Finish(t.Context(), contract.FinishRequest{Items: items})
		require.Equal(t, contract.FinishResult{Verdict: contract.OK, Stale: []dispatcherd.JobID{meant[7], meant[20]}}, fin)
		for i, id := range meant {
			r := w.get(t, id)
			if i == 7 || i == 20 {
				require.Equal(t, dispatcherd.Running, r.Status, "job %d", id)
				continue
			}
			require.Equal(t, dispatcherd.Done, r.Status, "job %d", id)
			require.Equal(t, string(items[i].Result), string(r.Result), "job %d", id)
		}
		require.Equal(t, dispatcherd.Running, w.get(t, between[3]).Status)
		require.Equal(t, dispatcherd.Pending, w.get(t, between[4]).Status)
	})
}

// Random ids, from contiguous to scattered, in one block or in the blocks of a
// share, with results of all sizes.
func TestContiguousAndScatteredIDsEndAlike(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	const n, rounds = 200, 40
	fill(t, db, n*rounds, 1, 1)
	rng := rand.New(rand.NewPCG(3, 5))
	for round := range rounds {
		var ids []dispatcherd.JobID
		for i := range n {
			own := round%2 == 0 || i/8%4 == round/2%4 // or the ids of one of four shares
			if own && rng.IntN(rounds) >= round {
				ids = append(ids, dispatcherd.JobID(round*n+i+1))
			}
		}
		var items []contract.Finish
		var stale []dispatcherd.JobID
		for _, w := range s.Claim(t.Context(), claimOf(ids...)).Won {
			f := contract.Finish{ID: w.ID, Attempt: w.Attempt, Outcome: contract.Succeeded}
			switch rng.IntN(8) {
			case 0:
				f.Attempt += 1 - 2*dispatcherd.Attempt(rng.IntN(2))
				stale = append(stale, f.ID)
			case 1, 2, 3:
				f.Result = fmt.Appendf(nil, `"%s"`, strings.Repeat("é", rng.IntN(1<<rng.IntN(16))))
			case 4:
				f.Result = []byte(`null`)
			}
			items = append(items, f)
		}
		require.Len(t, items, len(ids))
		slices.SortFunc(items, func(a, b contract.Finish) int { return int(a.ID - b.ID) })
		slices.Sort(stale)
		for _, again := range []bool{false, true} { // the answer is lost, and the request repeated
			fin := s.Finish(t.Context(), contract.FinishRequest{Items: items, Again: again})
			require.Equal(t, contract.FinishResult{Verdict: contract.OK, Stale: stale}, fin)
		}
		for _, f := range items {
			if r := row(t, db, f.ID); slices.Contains(stale, f.ID) {
				require.Equal(t, dispatcherd.Running, r.Status)
			} else {
				require.Equal(t, dispatcherd.Done, r.Status)
				require.Equal(t, string(f.Result), string(r.Result))
			}
		}
	}
}

// idsOf returns the ids in ranges. Both ends are included.
func idsOf(ranges ...[2]int64) (ids []dispatcherd.JobID) {
	for _, r := range ranges {
		for id := r[0]; id <= r[1]; id++ {
			ids = append(ids, dispatcherd.JobID(id))
		}
	}
	return ids
}

func TestIDRangeEndsWhereMoreThanThreeIDsAreMissing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ids  []dispatcherd.JobID
		want []claim.IDRange
	}{
		"neighbours": {idsOf([2]int64{1, 16}), []claim.IDRange{{1, 16, 1}}},
		"blocks of a share": {
			idsOf([2]int64{8, 15}, [2]int64{40, 47}, [2]int64{64, 71}),
			[]claim.IDRange{{8, 15, 8}, {40, 47, 32}, {64, 71, 48}},
		},
		"three missing": {idsOf([2]int64{1, 8}, [2]int64{12, 19}), []claim.IDRange{{1, 19, 1}}},
		"four missing":  {idsOf([2]int64{1, 8}, [2]int64{13, 20}), []claim.IDRange{{1, 8, 1}, {13, 20, 5}}},
		"one far away":  {idsOf([2]int64{1, 15}, [2]int64{9e18, 9e18}), []claim.IDRange{{1, 15, 1}, {9e18, 9e18, 9e18 - 15}}},
		"scattered":     {[]dispatcherd.JobID{3, 33, 44}, []claim.IDRange{{3, 3, 3}, {33, 33, 32}, {44, 44, 42}}},
		"none":          {nil, nil},
	} {
		got, _ := claim.IDRanges(c.ids)
		require.Equal(t, c.want, got, name)
	}
}

func TestPlaceOfEveryIDIsUnique(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 13))
	for range 500 {
		var ids []dispatcherd.JobID
		far := 1 + rng.IntN(30)
		for id, n := int64(1+rng.IntN(100)), 16+rng.IntN(300); len(ids) < n; id++ {
			if rng.IntN(far) == 0 {
				id += rng.Int64N(40)
			}
			ids = append(ids, dispatcherd.JobID(id))
		}
		list, places := claim.IDRanges(ids)
		require.LessOrEqual(t, places, int64(4*len(ids)))
		taken := map[int64]bool{}
		for _, id := range ids {
			for _, s := range list {
				if place := int64(id) - s.Base; s.Low <= int64(id) && int64(id) <= s.High {
					require.False(t, taken[place], "the place of %d", id)
					require.True(t, 0 <= place && place < places, "the place of %d", id)
					taken[place] = true
				}
			}
		}
		require.Len(t, taken, len(ids))
	}
}
