package ondemand

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Requests stay in the memory of one dispatcher, so slots of other dispatchers do not help.
func TestUnsupportedTypeIsSaidOfThisDispatcher(t *testing.T) {
	p := ExplainAnswer(&Answer{Kind: Unsupported, Reason: `no slot supports type "pdf"`})
	require.Contains(t, p.Detail, `no slot supports type "pdf"; only slots of this dispatcher count`)
}
