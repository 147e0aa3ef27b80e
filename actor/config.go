package actor

import (
	"fmt"
	"time"

	"github.com/dispatcherd/dispatcherd/backlog"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// Instant is local monotonic time in milliseconds from an arbitrary zero. Core
// never sees the wall clock.
type Instant = timing.Instant

// Never is the instant that does not come.
const Never = timing.Never

// Backoff spaces repetitions.
type Backoff = timing.Backoff

// Config holds what an operator may choose. The zero value is not usable; see
// DefaultConfig.
type Config struct {
	Weights scoring.Weights
	Limits  Limits
	Retry   Backoff // of failed attempts
	Outage  Backoff // of statements that Postgres refused or did not answer
	// Poll is the time between two full looks at the lanes: the truth that
	// does not need NOTIFY.
	Poll time.Duration
	// PollDeaf is the time between two looks for new rows while NOTIFY does not
	// work.
	PollDeaf time.Duration
	// Patience bounds how long a decision waits for a fetch that may bring a
	// better candidate than the ones at hand.
	Patience time.Duration
	// Handicap is what rows of other dispatchers' shares count as younger. It
	// is longer than Poll, so that what a poll read of them has been read again
	// before it is preferred to the own rows that came after it: meanwhile their
	// owner has them done. The overtaking window grows by it.
	Handicap time.Duration
	// CancelGrace is how long a worker has to end a job that it was told to stop,
	// until its session is ended.
	CancelGrace time.Duration
	// Resume is how long a job whose worker was cut off stays as it is, for the
	// worker to bring it along on its next connection; 0 = not at all.
	Resume time.Duration
	// Comeback is the time that a worker has to connect anew before requests that
	// it alone could serve, and that do not want to wait for one, are turned away.
	// Its default is the longest pause between two tries of the SDK.
	Comeback time.Duration
	// Timeouts limits the attempts of a type whose rows name no limit; types that
	// are not named have none. It is read only.
	Timeouts map[string]time.Duration
	// Seed makes tokens and jitter. Two dispatchers must not share one.
	Seed [2]uint64
}

// Limits bounds everything that could grow.
type Limits struct {
	Slots         int // registered slots
	Types         int // types known at a time
	Requests      int // on-demand requests waiting
	ClaimBatch    int // rows of one claim
	Claims        int // claims in flight
	FinishBatch   int // rows of one finish
	Finishes      int // finish statements in flight
	Unfinished    int // ended attempts whose end is not yet in Postgres; at the bound no queued job is placed
	LaneLength    int // candidates asked for at a time, per lane
	LanesPerFetch int
	LostPerList   int // lost claims after which a fetched list is thrown away (article 1: five)
	Crashes       int // attempts that may end in the death of their worker before the job is quarantined
}

// maxHandicap bounds what the overtaking window grows by among several
// dispatchers.
const maxHandicap = time.Hour

// DefaultConfig returns the article's weights and the documented bounds.
func DefaultConfig() Config {
	return Config{
		Weights: scoring.Default(),
		Limits: Limits{
			Slots: 200_000, Types: 10_000, Requests: 10_000,
			ClaimBatch: 1000, Claims: 1, FinishBatch: 1000, Finishes: 1, Unfinished: 20_000,
			LaneLength: 4096, LanesPerFetch: 1024, LostPerList: 5, Crashes: 3,
		},
		Retry:       Backoff{Base: time.Second, Max: 10 * time.Minute},
		Outage:      Backoff{Base: 50 * time.Millisecond, Max: 5 * time.Second},
		Poll:        time.Second,
		PollDeaf:    200 * time.Millisecond,
		Patience:    100 * time.Millisecond,
		CancelGrace: 10 * time.Second,
		Comeback:    5 * time.Second,
		Handicap:    scoring.Handicap,
	}
}

// Validate names the first value that cannot work.
func (c Config) Validate() error {
	if err := c.Weights.Validate(); err != nil {
		return err
	}
	for _, b := range c.Limits.named() {
		if b.value < 1 {
			return fmt.Errorf("limit %s is %d, must be at least 1", b.name, b.value)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"poll", c.Poll}, {"poll-deaf", c.PollDeaf}, {"patience", c.Patience}, {"handicap", c.Handicap}, {"cancel-grace", c.CancelGrace}, {"comeback", c.Comeback}} {
		if d.value < time.Millisecond {
			return fmt.Errorf("%s is %v, must be at least 1ms", d.name, d.value)
		}
	}
	if c.Handicap > maxHandicap {
		return fmt.Errorf("handicap is %v, must be at most %v: nothing that waits may be overtaken for longer", c.Handicap, maxHandicap)
	}
	if err := c.Retry.Validate("retry"); err != nil {
		return err
	}
	return c.Outage.Validate("outage")
}

// backlog returns the part that concerns the pending rows.
func (c Config) backlog() backlog.Config {
	return backlog.Config{
		Poll: c.Poll, PollUnsubscribed: c.PollDeaf, Patience: c.Patience, Penalty: c.Handicap, Backoff: c.Outage,
		LaneLength: c.Limits.LaneLength, LanesPerFetch: c.Limits.LanesPerFetch,
		LostPerBatch: c.Limits.LostPerList, Departures: c.Limits.Unfinished,
	}
}

type bound struct {
	name  string
	value int
}

func (l Limits) named() []bound {
	return []bound{
		{"slots", l.Slots}, {"types", l.Types}, {"requests", l.Requests},
		{"claim-batch", l.ClaimBatch}, {"claims", l.Claims},
		{"finish-batch", l.FinishBatch}, {"finishes", l.Finishes}, {"unfinished", l.Unfinished},
		{"lane-length", l.LaneLength}, {"lanes-per-fetch", l.LanesPerFetch},
		{"lost-per-list", l.LostPerList}, {"crashes", l.Crashes},
	}
}
