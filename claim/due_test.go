package claim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// Whatever the statement, a claim takes nothing once the lease has run out, also if
// nobody has noticed yet, and no row before it is due.
func TestEveryClaimIsOfDueRowsUnderALease(t *testing.T) {
	for _, statement := range []string{"alone", "single", "dense", "stretches", "shared"} {
		t.Run(statement, func(t *testing.T) {
			dsn := pgtest.New(t)
			db := connect(t, dsn)
			run, err := open(t, claim.Config{DSN: dsn}).Join(t.Context())
			require.NoError(t, err)
			fill(t, db, 2, 1, 1)
			exec(t, db, `UPDATE dispatcherd.jobs SET run_at = now() + interval '1 hour' WHERE id = 2`)
			takes := func(token int64) (taken int64) {
				asked := [][]any{{[]int64{1, 2}, token, run, 0, []int64{}, []int64{5, 5}}}
				switch statement {
				case "single":
					asked = [][]any{{1, token, run, 0, 5}, {2, token + 1, run, 0, 5}}
				case "dense":
					asked[0] = append(asked[0], []byte{3}, 1, 2)
				case "stretches":
					asked[0] = append(asked[0], []byte{3}, []int64{1}, []int64{2}, []int64{1})
				}
				for _, args := range asked {
					tag, err := db.Exec(t.Context(), claim.Statements()[statement], args...)
					require.NoError(t, err)
					taken += tag.RowsAffected()
				}
				return taken
			}
			exec(t, db, `UPDATE dispatcherd.dispatchers SET beat_at = now() - 2 * lease WHERE id = $1`, run)
			require.Zero(t, takes(70))
			exec(t, db, `UPDATE dispatcherd.dispatchers SET beat_at = now() WHERE id = $1`, run)
			require.EqualValues(t, 1, takes(80))
			require.Equal(t, dispatcherd.Running, row(t, db, 1).Status)
			require.Equal(t, dispatcherd.Pending, row(t, db, 2).Status)
		})
	}
}
