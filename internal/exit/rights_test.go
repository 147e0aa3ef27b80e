package exit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The error names the least role with the missing right.
func TestErrorNamesTheLeastSufficientRole(t *testing.T) {
	for command, role := range map[string]string{
		"dispatcherd trace export": "dispatcherd_reader",
		"dispatcherd serve":        "dispatcherd_dispatcher",
		"dispatcherd migrate up":   "use the owner of the schema",
	} {
		require.Contains(t, WhatToGrant("postgres://anna@/app", command), role, command)
	}
	require.Contains(t, WhatToGrant("postgres://anna@/app", "dispatcherd serve"), `'GRANT dispatcherd_dispatcher TO "anna";'`)
}
