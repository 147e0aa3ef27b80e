package exit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A driver that tries two ways and fails twice for one reason reports it twice.
func TestRepeatedLineIsRemoved(t *testing.T) {
	require.Equal(t, "tried: a", Once("tried:\n\ta\n\ta"))
	require.Equal(t, "tried:\n\ta\n\tb", Once("tried:\n\ta\n\tb\n\ta"), "different ones are all told")
}
