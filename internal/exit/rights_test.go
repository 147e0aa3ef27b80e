package exit

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// The error names the least role with the missing right.
func TestErrorNamesTheLeastSufficientRole(t *testing.T) {
	for command, role := range map[string]string{
		"dispatcherd trace export": "dispatcherd_reader",
		"dispatcherd serve":        "dispatcherd_dispatcher",
		"dispatcherd migrate up":   "use the owner of the schema",
	} {
		require.Contains(t, WhatToGrant(nil, "postgres://anna@/app", command), role, command)
	}
	require.Contains(t, WhatToGrant(nil, "postgres://anna@/app", "dispatcherd serve"), `'GRANT dispatcherd_dispatcher TO "anna";'`)
}

// No grant cures a wrong setting.
func TestErrorNamesTheSettingOfTheOwner(t *testing.T) {
	err := fmt.Errorf("open: %w", &pgconn.PgError{Code: "42501", ConstraintName: contract.OwnerRule})
	require.Equal(t, contract.CorrectOwner, WhatToGrant(err, "postgres://anna@/app", "dispatcherd serve"))
	require.Equal(t, Usage, CodeOf(t.Context(), err))
}
