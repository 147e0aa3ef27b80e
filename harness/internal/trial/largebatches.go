package trial

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dispatcherd/dispatcherd/harness/internal/history"
	"github.com/dispatcherd/dispatcherd/harness/internal/judge"
	"github.com/dispatcherd/dispatcherd/harness/internal/stage"
)

// largeFill is an array of 80,000 numbers, which takes 960 kB as jsonb.
var largeFill = "[1000" + strings.Repeat(",2357", 79_999) + "]"

// largeBatch is the number of large payloads of one transaction, by Size.
var largeBatch = [3]int{250, 250, 700}

var largeBatches = Trial{
	Name:  "large-batches",
	About: fmt.Sprintf("hundreds of jobs with payloads of 960 kB become due at once, and each has a free slot: jobs of another type start within %v (p99)", promptly),
	Setup: stage.Setup{
		Daemons: 1, Workers: 2, Offers: []stage.Offer{{Slots: 350, Types: []string{"large"}}, {Slots: 4, Types: []string{"small"}}},
		Mix: func(n int64) history.Work { return history.Work{N: n, Type: "small", Ms: 5} }, Types: []string{"large", "small"}, Rate: 100,
	},
	Jobs:  [3]int{500, 1000, 5000},
	Least: [3]time.Duration{8 * time.Second, 10 * time.Second, time.Minute},
	Before: func(ctx context.Context, s *Scene) error {
		if err := s.Exec(ctx, `ALTER TABLE dispatcherd.jobs ALTER COLUMN payload SET STORAGE EXTERNAL`); err != nil { // a compression takes longer than the insertion
			return err
		}
		large := func(n int64) history.Work { return history.Work{N: n, Type: "large", Ms: 5} }
		return s.Producer.Burst(ctx, largeBatch[s.Size], large, largeFill)
	},
	Verify: func(s *Scene, h *history.History, r *judge.Report) []string {
		return append(untroubled(s, h, r), s.checkOthers(h, r, "large")...)
	},
}
