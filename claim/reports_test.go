package claim_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// Reports are read in the order in which they were written, and each once. Any JSON may be a part of an output, also null.
func TestReportsAreReadInTheirOrder(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.New(t))
	jobs := claim.Jobs{DB: db}
	var all []claim.DistantReport
	for i := range 250 {
		all = append(all, claim.DistantReport{Job: dispatcherd.JobID(1 + i%2), Attempt: 1, Name: "partial", Data: json.RawMessage("null")})
	}
	all[0].Data = json.RawMessage(`{"a":"\u00e4 \"b\""}`)
	require.NoError(t, jobs.Tell(t.Context(), all))
	after := []int64{0}
	var read []claim.DistantReport
	for {
		some, err := jobs.Reports(t.Context(), []dispatcherd.JobID{1}, after)
		require.NoError(t, err)
		read = append(read, some...)
		if len(some) < claim.MaxReports {
			break
		}
		after[0] = some[len(some)-1].ID
	}
	require.Len(t, read, 125)
	require.Equal(t, string(all[0].Data), string(read[0].Data))
	for i := range read[1:] {
		require.Less(t, read[i].ID, read[i+1].ID)
		require.Equal(t, "null", string(read[i+1].Data))
	}
	exec(t, db, `UPDATE dispatcherd.reports SET made_at = now() - interval '61 seconds'`)
	require.NoError(t, jobs.Tell(t.Context(), all[:1]))
	require.Equal(t, 1, one[int](t, db, `SELECT count(*)::int FROM dispatcherd.reports`), "old ones are deleted")
}
