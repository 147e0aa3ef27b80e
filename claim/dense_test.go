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
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/stretchr/testify/require"
)

// Neighbours are claimed and ended by reading the stretch of the index that
// they lie in. What lies between them is left alone, whatever its state.
func TestAStretchLeavesAloneWhatLiesBetween(t *testing.T) {
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

		take(t, s, between[3]) // as the dispatcher's own, under the same attempt as those about to end
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

// Whether ids are a stretch changes what a claim and a finish cost and nothing
// else: random ids, from dense to scattered, whole or in blocks, with results of all sizes.
func TestStretchesAndScatteredIdsEndAlike(t *testing.T) {
	dsn := pgtest.New(t)
	db := connect(t, dsn)
	s := open(t, claim.Config{DSN: dsn})
	_, err := s.Join(t.Context())
	require.NoError(t, err)
	const n, rounds = 200, 40
	fill(t, db, n*rounds, 1, 1)
	rng := rand.New(rand.NewPCG(3, 5))
	for round := range rounds {
		var ids []dispatcherd.JobID
		for i := range n {
			own := round%2 == 0 || i/8%4 == round/2%4 // or as one of four dispatchers would have them
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
