package actor

import (
	"fmt"
	"reflect"
	"time"

	"github.com/dispatcherd/dispatcherd/backlog"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// Config contains the settings. The zero value is not valid; see DefaultConfig.
type Config struct {
	backlog.Config

	Weights scoring.Weights
	Limits  Limits
	Retry   timing.Backoff // retries of failed attempts
	// CancelGrace is the time that a worker has to end a job after a cancel. After
	// this time the session of the worker is ended.
	CancelGrace time.Duration
	// Resume is how long a detached job waits until its worker resumes it; 0 = jobs
	// are not detached.
	Resume time.Duration
	// RemoteResume is the same for jobs of remote workers, which are detached in any case.
	RemoteResume time.Duration
	// ReconnectGrace is the time that a worker has to reconnect. Afterwards
	// requests that only this worker could serve are rejected. Requests with Wait
	// are not rejected. The default is the longest pause of the SDK between two
	// connections.
	ReconnectGrace time.Duration
	// Timeouts are the timeouts of attempts, by type, for rows that have no timeout
	// of their own. Types that are not in the map have no timeout. The core does
	// not change the map.
	Timeouts map[string]time.Duration
	// DrainOnViolation says what an impossible transition of a job causes: an
	// effect if true, a panic if false. The daemon sets DrainOnViolation. Tests and
	// simulations do not set it, so that they fail at once.
	DrainOnViolation bool
	// Seed is the seed of tokens and jitter. No two dispatchers may use the same
	// seed.
	Seed [2]uint64
}

// Limits are the bounds of everything that can grow.
type Limits struct {
	Slots       int // registered slots
	SlotTypes   int // types, added up over the registered slots
	Types       int // types known at the same time
	Requests    int // waiting on-demand requests
	ClaimBatch  int // rows of one claim
	Claims      int // claims in flight, each on its own connection
	FinishBatch int // rows of one finish
	Finishes    int // finish statements in flight, each on its own connection
	Unfinished  int // ended attempts that are not recorded in Postgres; at this limit no queued job is placed
	Crashes     int // crashes after which a job is quarantined
	Spawns      int // statements in flight that insert children, each on its own connection; one user has all but one
	OpenSpawns  int // spawns without an answer
	StepWork    int // work of one part of a step, in types of slots; the rest waits for the next step
}

// maxPenalty bounds the penalty, because the penalty lengthens the overtaking
// window.
const maxPenalty = time.Hour

// DefaultConfig returns the weights of article 1 and the documented limits. The defaults
// have four claims and two finishes in flight. With a round trip of 0 to 5 ms to
// Postgres, this reaches 1.5 times the rate of one claim and one finish.
func DefaultConfig() Config {
	return Config{
		Config: backlog.Config{
			Poll:             time.Second,
			PollUnsubscribed: 200 * time.Millisecond,
			Patience:         100 * time.Millisecond,
			Penalty:          scoring.Penalty,
			RetryStatement:   timing.Backoff{Base: 50 * time.Millisecond, Max: 250 * time.Millisecond},
			LaneLength:       4096,
			LanesPerFetch:    1024,
			RowsPerFetch:     65_536,
			KnownRows:        256,
			LostPerList:      5,
			Departures:       20_000,
		},
		Weights: scoring.Default(),
		Limits: Limits{
			Slots:       200_000,
			SlotTypes:   4_000_000,
			Types:       10_000,
			Requests:    10_000,
			ClaimBatch:  1000,
			Claims:      4,
			FinishBatch: 1000,
			Finishes:    2,
			Unfinished:  20_000,
			Crashes:     3,
			Spawns:      3,
			OpenSpawns:  256,
			StepWork:    10_000,
		},
		Retry:          timing.Backoff{Base: time.Second, Max: 10 * time.Minute},
		CancelGrace:    10 * time.Second,
		RemoteResume:   15 * time.Second,
		ReconnectGrace: 5 * time.Second,
	}
}

// Validate returns an error for the first invalid value.
func (c Config) Validate() error {
	if err := c.Weights.Validate(); err != nil {
		return err
	}
	for _, limits := range []any{c.Limits, c.Config} {
		v := reflect.ValueOf(limits)
		for i := range v.NumField() {
			if n, is := reflect.TypeAssert[int](v.Field(i)); is && n < 1 {
				return fmt.Errorf("limit %s is %d, must be at least 1", v.Type().Field(i).Name, n)
			}
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"poll", c.Poll}, {"poll-unsubscribed", c.PollUnsubscribed}, {"patience", c.Patience}, {"penalty", c.Penalty},
		{"cancel-grace", c.CancelGrace}, {"reconnect-grace", c.ReconnectGrace},
	} {
		if d.value < time.Millisecond {
			return fmt.Errorf("%s is %v, must be at least 1ms", d.name, d.value)
		}
	}
	if c.Penalty > maxPenalty {
		return fmt.Errorf("penalty is %v, must be at most %v: it lengthens the time for which jobs can be overtaken", c.Penalty, maxPenalty)
	}
	if err := c.Retry.Validate("retry"); err != nil {
		return err
	}
	return c.RetryStatement.Validate("statement")
}
