package actor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNewPanicsOnInvalidConfig(t *testing.T) {
	require.PanicsWithValue(t, "actor: limit slots is 0, must be at least 1", func() {
		cfg := DefaultConfig()
		cfg.Limits.Slots = 0
		New(cfg)
	})
}
