package actor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/backlog"
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
		"limit slots is 0, must be at least 1":           func(c *Config) { c.Limits.Slots = 0 },
		"limit slot-types is 0, must be at least 1":      func(c *Config) { c.Limits.SlotTypes = 0 },
		"limit step-work is 0, must be at least 1":       func(c *Config) { c.Limits.StepWork = 0 },
		"limit types is 0, must be at least 1":           func(c *Config) { c.Limits.Types = 0 },
		"limit requests is -1, must be at least 1":       func(c *Config) { c.Limits.Requests = -1 },
		"limit claim-batch is 0, must be at least 1":     func(c *Config) { c.Limits.ClaimBatch = 0 },
		"limit claims is 0, must be at least 1":          func(c *Config) { c.Limits.Claims = 0 },
		"limit finish-batch is 0, must be at least 1":    func(c *Config) { c.Limits.FinishBatch = 0 },
		"limit finishes is 0, must be at least 1":        func(c *Config) { c.Limits.Finishes = 0 },
		"limit unfinished is 0, must be at least 1":      func(c *Config) { c.Limits.Unfinished = 0 },
		"limit lane-length is 0, must be at least 1":     func(c *Config) { c.LaneLength = 0 },
		"limit lanes-per-fetch is 0, must be at least 1": func(c *Config) { c.LanesPerFetch = 0 },
		"limit rows-per-fetch is 0, must be at least 1":  func(c *Config) { c.RowsPerFetch = 0 },
		"limit known-rows is 0, must be at least 1":      func(c *Config) { c.KnownRows = 0 },
		"limit lost-per-list is 0, must be at least 1":   func(c *Config) { c.LostPerList = 0 },
		"limit crashes is 0, must be at least 1":         func(c *Config) { c.Limits.Crashes = 0 },
		"poll is 999µs, must be at least 1ms":            func(c *Config) { c.Poll = 999 * time.Microsecond },
		"poll-unsubscribed is 0s, must be at least 1ms":  func(c *Config) { c.PollUnsubscribed = 0 },
		"patience is -1s, must be at least 1ms":          func(c *Config) { c.Patience = -time.Second },
		"penalty is 0s, must be at least 1ms":            func(c *Config) { c.Penalty = 0 },
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

func TestEveryLimitHasAName(t *testing.T) {
	names := map[string]bool{}
	cfg := Config{
		Config: backlog.Config{LaneLength: 10, LanesPerFetch: 11, RowsPerFetch: 12, KnownRows: 13, LostPerList: 14},
		Limits: Limits{1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 18},
	}
	for i, b := range cfg.bounds() {
		require.Equal(t, i+1, b.value, "%s stands for another limit", b.name)
		names[b.name] = true
	}
	require.Len(t, names, 18)
}
