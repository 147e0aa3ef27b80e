package ondemand

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A request goes to another dispatcher that has a slot, so none has one.
func TestUnsupportedTypeSaysWhatToDo(t *testing.T) {
	p := ExplainAnswer(&Answer{Kind: Unsupported, Reason: `no slot supports type "pdf"`})
	require.Contains(t, p.Detail, `no slot supports type "pdf": start a worker for the type`)
}
