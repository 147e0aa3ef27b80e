package actor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/scoring"
)

func TestDefaultConfigIsValidAndHasTheArticlesWeights(t *testing.T) {
	cfg := DefaultConfig()
	require.NoError(t, cfg.Validate())
	require.Equal(t, scoring.Default(), cfg.Weights)
	require.Equal(t, 5, cfg.LostPerList, "article 1: five lost claims")
}

func TestInvalidConfigIsRejectedByNameAndValue(t *testing.T) {
	for want, change := range map[string]func(*Config){
		`weight "ageing" is 0: set it to a whole number from 1 to 1000000; without ageing nothing bounds how long a job waits`: func(c *Config) {
			c.Weights.Ageing = 0
		},
		"limit Slots is 0, must be at least 1":          func(c *Config) { c.Limits.Slots = 0 },
		"limit SlotTypes is 0, must be at least 1":      func(c *Config) { c.Limits.SlotTypes = 0 },
		"limit StepWork is 0, must be at least 1":       func(c *Config) { c.Limits.StepWork = 0 },
		"limit Types is 0, must be at least 1":          func(c *Config) { c.Limits.Types = 0 },
		"limit Requests is -1, must be at least 1":      func(c *Config) { c.Limits.Requests = -1 },
		"limit ClaimBatch is 0, must be at least 1":     func(c *Config) { c.Limits.ClaimBatch = 0 },
		"limit Claims is 0, must be at least 1":         func(c *Config) { c.Limits.Claims = 0 },
		"limit FinishBatch is 0, must be at least 1":    func(c *Config) { c.Limits.FinishBatch = 0 },
		"limit Finishes is 0, must be at least 1":       func(c *Config) { c.Limits.Finishes = 0 },
		"limit Unfinished is 0, must be at least 1":     func(c *Config) { c.Limits.Unfinished = 0 },
		"limit LaneLength is 0, must be at least 1":     func(c *Config) { c.LaneLength = 0 },
		"limit LanesPerFetch is 0, must be at least 1":  func(c *Config) { c.LanesPerFetch = 0 },
		"limit RowsPerFetch is 0, must be at least 1":   func(c *Config) { c.RowsPerFetch = 0 },
		"limit KnownRows is 0, must be at least 1":      func(c *Config) { c.KnownRows = 0 },
		"limit LostPerList is 0, must be at least 1":    func(c *Config) { c.LostPerList = 0 },
		"limit Crashes is 0, must be at least 1":        func(c *Config) { c.Limits.Crashes = 0 },
		"poll is 999µs, must be at least 1ms":           func(c *Config) { c.Poll = 999 * time.Microsecond },
		"poll-unsubscribed is 0s, must be at least 1ms": func(c *Config) { c.PollUnsubscribed = 0 },
		"patience is -1s, must be at least 1ms":         func(c *Config) { c.Patience = -time.Second },
		"penalty is 0s, must be at least 1ms":           func(c *Config) { c.Penalty = 0 },
		"penalty is 1h0m0.001s, must be at most 1h0m0s: it lengthens the time for which jobs can be overtaken": func(c *Config) {
			c.Penalty = time.Hour + time.Millisecond
		},
		"retry-base is 0s and retry-max 10m0s, must be 1ms ≤ base ≤ max ≤ 24h": func(c *Config) { c.Retry.Base = 0 },
		"retry-base is 1s and retry-max 999ms, must be 1ms ≤ base ≤ max ≤ 24h": func(c *Config) { c.Retry.Max = 999 * time.Millisecond },
		"statement-base is 50ms and statement-max 24h0m0.001s, must be 1ms ≤ base ≤ max ≤ 24h": func(c *Config) {
			c.RetryStatement.Max = 24*time.Hour + time.Millisecond
		},
	} {
		cfg := DefaultConfig()
		change(&cfg)
		require.EqualError(t, cfg.Validate(), want)
	}
}
