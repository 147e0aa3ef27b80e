package migrations_test

import (
	"testing"

	"github.com/dispatcherd/dispatcherd/internal/pgtest"
	"github.com/stretchr/testify/require"
)

// During a rolling upgrade, daemons of schema 12 or earlier call these two
// functions.
func TestFunctionsCanBeCalledByTheirFormerNames(t *testing.T) {
	conn := connect(t, pgtest.New(t))
	for _, role := range []string{"dispatcherd_dispatcher", "dispatcherd_operator"} {
		for _, call := range []string{
			`SELECT made, dropped, blocked, more FROM dispatcherd.keep_leaves('done', 1, '1 year')`,
			`SELECT dispatcherd.rest_vacuum(true)`,
		} {
			if err := attempt(t, conn, role, call); role == "dispatcherd_dispatcher" {
				require.NoError(t, err, call)
			} else {
				require.ErrorContains(t, err, "permission denied", call)
			}
		}
	}
	require.Equal(t, 2, one[int](t, conn, `SELECT made FROM dispatcherd.keep_leaves('failed', 5, '1 year')`), "days 4 and 5")
	require.True(t, one[bool](t, conn, `SELECT dispatcherd.rest_vacuum(true)`))
	require.False(t, one[bool](t, conn, `SELECT dispatcherd.pause_vacuum(false)`))
}
