package claim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/pgtest"
)

// No claim takes a row before the row is due. Without the lease or for another process
// it takes no row. The time of the last heartbeat does not matter, because the database
// clock may be set.
func TestClaimTakesOnlyDueRowsUnderALease(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{"claim", "claim-contended"} {
		t.Run(statement, func(t *testing.T) {
			dsn := pgtest.New(t)
			db := connect(t, dsn)
			run, err := open(t, claim.Config{DSN: dsn, Identity: sender}).Join(t.Context())
			require.NoError(t, err)
			fill(t, db, 2, 1, 1)
			exec(t, db, `UPDATE dispatcherd.jobs SET run_at = now() + interval '1 hour' WHERE id = 2`)
			takes := func(token int64) (taken int64) {
				tag, err := db.Exec(t.Context(), claim.Statements()[statement], claimArgs(statement, run, token, 1, 2)...)
				require.NoError(t, err)
				return tag.RowsAffected()
			}
			for _, change := range []string{"lost_at = now()", "leaving = true", "incarnation = NULL", "incarnation = gen_random_uuid()"} {
				exec(t, db, `BEGIN; UPDATE dispatcherd.dispatchers SET `+change)
				require.Zero(t, takes(70), change)
				exec(t, db, `ROLLBACK`)
			}
			exec(t, db, `UPDATE dispatcherd.dispatchers SET beat_at = now() - interval '1 hour'`)
			require.EqualValues(t, 1, takes(80))
			require.Equal(t, dispatcherd.Running, row(t, db, 1).Status)
			require.Equal(t, dispatcherd.Pending, row(t, db, 2).Status)
		})
	}
}
