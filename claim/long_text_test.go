//go:build !race

package claim_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// The table accepts such rows: each takes 200 bytes there, and 1.3 MB as text. A claim and a load
// convert few of them, so neither reaches the statement timeout. With the race detector the
// checks of 25 MB of text alone take longer.
func TestClaimOfManyRowsThatAreLongAsTextIsShort(t *testing.T) {
	t.Parallel()
	db, s := joinedAlone(t)
	exec(t, db, `SET ROLE dispatcherd_producer`)
	exec(t, db, `INSERT INTO dispatcherd.jobs (type, payload) SELECT 'pdf', $1::text::jsonb FROM generate_series(1, 600)`,
		numbers("1e131071", 10))
	ids := make([]dispatcherd.JobID, 600)
	for i := range ids {
		ids[i] = dispatcherd.JobID(i + 1)
	}
	res := s.Claim(t.Context(), claimOf(ids...))
	require.Equal(t, contract.OK, res.Verdict)
	require.NotEmpty(t, res.Won)
	require.NotEmpty(t, res.Loading)
	part := s.LoadPayloads(t.Context(), contract.LoadRequest{Rows: res.Loading})
	require.Equal(t, contract.OK, part.Verdict)
	require.NotEmpty(t, part.Won)
	require.NotEmpty(t, part.Rest)
	for _, won := range slices.Concat(res.Won, part.Won) {
		require.Contains(t, won.Unfit, "a number of more than 1,024 characters")
	}
}
