package claim_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// Two transactions have locked a row, which no claim can take then.
func TestFetchOmitsRowsThatSeveralTransactionsHaveLocked(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"SHARE", "KEY SHARE"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.New(t)
			db := connect(t, dsn)
			s := open(t, claim.Config{DSN: dsn})
			_, err := s.Join(t.Context())
			require.NoError(t, err)
			fill(t, db, 3, 1, 1)
			lane := one[string](t, db, `SELECT type FROM dispatcherd.jobs LIMIT 1`)
			priority := one[int16](t, db, `SELECT priority FROM dispatcherd.jobs LIMIT 1`)
			fetch := func() (ids []dispatcherd.JobID) {
				res := s.Fetch(
					t.Context(),
					contract.FetchRequest{Lanes: []contract.LaneQuery{{Type: lane, Priority: dispatcherd.Priority(priority), Limit: 3}}, SkipLocked: true},
				)
				require.Equal(t, contract.OK, res.Verdict)
				for _, c := range res.Candidates {
					ids = append(ids, c.Key.ID)
				}
				slices.Sort(ids)
				return ids
			}
			var holders []pgx.Tx
			for range 2 {
				tx, err := connect(t, dsn).Begin(t.Context())
				require.NoError(t, err)
				_, err = tx.Exec(t.Context(), `SELECT FROM dispatcherd.jobs_live WHERE id = 2 FOR `+mode)
				require.NoError(t, err)
				holders = append(holders, tx)
			}
			require.Equal(t, []dispatcherd.JobID{1, 3}, fetch())
			lock, err := claim.Jobs{DB: db}.Locked(t.Context(), 2)
			require.NoError(t, err)
			require.Equal(t, &claim.Lock{}, lock)
			require.NoError(t, holders[0].Rollback(t.Context()))
			require.Equal(t, []dispatcherd.JobID{1, 3}, fetch(), "the other one has locked the row")
			require.NoError(t, holders[1].Rollback(t.Context()))
			require.Equal(t, []dispatcherd.JobID{1, 2, 3}, fetch())
		})
	}
}
