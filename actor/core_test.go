package actor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/actor/config"
)

func TestNewPanicsOnInvalidConfig(t *testing.T) {
	require.PanicsWithValue(t, "actor: limit slots is 0, must be at least 1", func() {
		cfg := config.Default()
		cfg.Limits.Slots = 0
		New(cfg)
	})
}
