package claim_test

import (
	"testing"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/stretchr/testify/require"
)

func TestStatesReturnsEveryExistingRow(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.New(t))
	jobs := claim.Jobs{DB: db}
	const n = 2500 // reads in several statements
	exec(t, db, `INSERT INTO dispatcherd.jobs (type) SELECT 'pdf' FROM generate_series(1, $1)`, n)
	cancelled, err := jobs.Cancel(t.Context(), 7)
	require.NoError(t, err)
	require.Equal(t, dispatcherd.Cancelled, cancelled)
	var ids []dispatcherd.JobID
	for id := dispatcherd.JobID(1); id <= n+10; id++ { // the last ten ids do not exist
		ids = append(ids, id)
	}
	seen := map[dispatcherd.JobID]dispatcherd.Status{}
	require.NoError(t, jobs.States(t.Context(), ids, func(s *claim.State) { seen[s.ID] = s.Status }))
	require.Len(t, seen, n)
	require.Equal(t, dispatcherd.Cancelled, seen[7])
	require.Equal(t, dispatcherd.Pending, seen[8])
	require.NoError(t, jobs.States(t.Context(), nil, func(*claim.State) { t.Error("no id was requested") }))
}

// A caller of the API inserts unique_key as it was read.
func TestUniqueKeyIsReadApartFromItsOwner(t *testing.T) {
	t.Parallel()
	db := connect(t, pgtest.New(t))
	jobs := claim.Jobs{DB: db}
	owner := one[string](t, db, `SELECT session_user`)
	plain, err := jobs.Insert(t.Context(), claim.New{Type: "pdf"})
	require.NoError(t, err)
	for _, key := range []string{"invoice 7", "/ a", "a /", "a/b"} {
		id, err := jobs.Insert(t.Context(), claim.New{Type: "pdf", UniqueKey: key})
		require.NoError(t, err)
		exec(t, db, `SET dispatcherd.owner = `+owner)
		owned, err := jobs.Insert(t.Context(), claim.New{Type: "pdf", UniqueKey: key})
		require.NoError(t, err)
		exec(t, db, `RESET dispatcherd.owner`)
		for _, want := range []struct {
			id    dispatcherd.JobID
			owner *string
		}{{id, nil}, {owned, &owner}} {
			job, err := jobs.Get(t.Context(), want.id)
			require.NoError(t, err)
			require.Equal(t, &key, job.UniqueKey)
			require.Equal(t, want.owner, job.Owner)
		}
		list, err := jobs.List(t.Context(), contract.Filter{Most: 1})
		require.NoError(t, err)
		require.Equal(t, []*string{&owner, &key}, []*string{list.Items[0].Owner, list.Items[0].UniqueKey})
	}
	job, err := jobs.Get(t.Context(), plain)
	require.NoError(t, err)
	require.Equal(t, []*string{nil, nil}, []*string{job.Owner, job.UniqueKey})
}
