package sim

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// unfinished is said of a job that nobody takes.
const unfinished = "is lost|waits for|passes job"

// control is a world in which one safeguard is missing, and what must be noticed
// about it.
type control struct {
	options Options
	seeds   uint64 // it is noticed in one of that many worlds
	notice  string // what is said about it
}

var controls = []control{
	{Options{Break: WithoutFence, Faults: All}, 20, "a stale end of job"},
	{Options{Break: WithoutStatus, Faults: All, Dispatchers: 3}, 3, "two leases overlap"},
	{Options{Break: WithoutPoll, Faults: Nothing}, 20, unfinished},
	{Options{Break: WithoutLease, Faults: Stop | Crash, Every: true, Dispatchers: 3}, 40, "although it was declared lost"},
	{Options{Break: WithoutReturn, Faults: Kill, Every: true, Dispatchers: 1, NoPoll: true}, 200, unfinished},
	{Options{Break: WithoutEpoch, Faults: Unknown, Every: true}, 20, unfinished},
	{Options{Break: WithoutTakeover, Faults: Crash, Every: true}, 5, unfinished},
	{Options{Break: WithoutRelease, Faults: Kill, Every: true}, 5, unfinished},
	{Options{Break: WithoutEnd, Faults: Kill, Every: true}, 5, unfinished},
	{Options{Break: WithoutMark, Faults: Resume, Every: true}, 20, "is adopted for worker|was not handed|goes on at worker"},
	{Options{Break: WithoutAttempt, Faults: Resume, Every: true}, 40, "was adopted, while attempt"},
	{Options{Break: WithoutStanding, Faults: Resume | HandOver | Stop | Unknown, Every: true, Dispatchers: 3}, 40, "declared lost or has left"},
	{Options{Break: WithoutHold, Faults: HandOver, Every: true}, 10, "is given back at once"},
	{Options{Break: WithoutGrace, Faults: HandOver, Every: true}, 10, "the grace is"},
}

// TestEveryMissingSafeguardIsNoticed is the evidence that the checks can fail:
// each control is caught, and the same worlds are fine with the safeguard.
func TestEveryMissingSafeguardIsNoticed(t *testing.T) {
	for _, c := range controls {
		t.Run(strings.ReplaceAll(c.options.Break.String(), " ", "-"), func(t *testing.T) {
			for seed := range c.seeds {
				o := c.options
				o.Seed = seed
				broken := Run(o)
				if broken.Violation == nil {
					continue
				}
				t.Logf("seed %d: %v", seed, broken.Violation)
				require.Regexp(t, c.notice, broken.Violation.What)
				o.Break = Intact
				whole := Run(o)
				require.Nil(t, whole.Violation, "with nothing missing: %v", whole.Violation)
				return
			}
			require.Failf(t, "unnoticed", "%v was not noticed in %d worlds", c.options.Break, c.seeds)
		})
	}
}

// No safeguard can be taken out without a world that shows what it is for.
func TestEverySafeguardHasItsControl(t *testing.T) {
	for b := Intact + 1; int(b) < len(breakNames); b++ {
		require.True(t, slices.ContainsFunc(controls, func(c control) bool { return c.options.Break == b }), "%v", b)
	}
}
