package actor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

func TestNewPanicsOnInvalidConfig(t *testing.T) {
	require.PanicsWithValue(t, "actor: limit Slots is 0, must be at least 1", func() {
		cfg := DefaultConfig()
		cfg.Limits.Slots = 0
		New(cfg)
	})
}

// wonAsPlaced is the row of a job whose claim is in flight, as it was placed.
func (c *Core) wonAsPlaced(id dispatcherd.JobID) contract.Won {
	j := c.jobs[id]
	return contract.Won{ID: id, Type: c.index.Name(j.Type), Priority: j.Priority, Attempt: 1, MaxAttempts: 3}
}
