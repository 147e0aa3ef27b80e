package sim

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// unfinished matches the violations of a job that does not run.
const unfinished = "is lost|waits for|overtakes job"

// A control is a world without one safeguard, and the violation that it must
// cause.
type control struct {
	options   Options
	seeds     uint64       // one of that many worlds causes the violation
	violation string       // regular expression
	change    func(*world) // changes the parameters of the worlds, or nil
}

var controls = []control{
	{options: Options{Break: WithoutFence, Faults: All &^ Remote}, seeds: 80, violation: "a stale end of job"},
	{options: Options{Break: WithoutStatus, Faults: All &^ Remote, Dispatchers: 3}, seeds: 3, violation: "two leases overlap"},
	{options: Options{Break: WithoutPoll, Faults: Nothing}, seeds: 20, violation: unfinished},
	{
		options:   Options{Break: WithoutLease, Faults: Stop | Crash, Every: true, Dispatchers: 3},
		seeds:     40,
		violation: "although it was declared lost",
	},
	{options: Options{Break: WithoutReturn, Faults: Kill, Every: true, Dispatchers: 1, NoPoll: true}, seeds: 200, violation: unfinished},
	{options: Options{Break: WithoutEpoch, Faults: Unknown, Every: true}, seeds: 20, violation: unfinished + "|is released although"},
	{options: Options{Break: WithoutTakeover, Faults: Crash, Every: true}, seeds: 5, violation: unfinished},
	{options: Options{Break: WithoutRelease, Faults: Kill, Every: true}, seeds: 5, violation: unfinished},
	{options: Options{Break: WithoutEnd, Faults: Kill, Every: true}, seeds: 5, violation: unfinished},
	{
		options:   Options{Break: WithoutFingerprint, Faults: Resume, Every: true},
		seeds:     20,
		violation: "is adopted for worker|was not sent|is resumed on worker",
	},
	{options: Options{Break: WithoutAttempt, Faults: Resume, Every: true}, seeds: 40, violation: "was adopted, while attempt"},
	{options: Options{Break: WithoutGeneration, Faults: Resume | Unknown | Crash, Every: true, Dispatchers: 3, Steps: 20_000}, seeds: 80,
		violation: "for an earlier generation", change: changingHosts},
	{
		options:   Options{Break: WithoutMembership, Faults: Resume | HandOver | Stop | Unknown, Every: true, Dispatchers: 3},
		seeds:     40,
		violation: "declared lost or has left",
	},
	{options: Options{Break: WithoutHold, Faults: HandOver, Every: true}, seeds: 10, violation: "is released at once"},
	{options: Options{Break: WithoutGrace, Faults: HandOver, Every: true}, seeds: 10, violation: "the grace is"},
	{options: Options{Break: WithoutDeadline, Faults: Nothing}, seeds: 10, violation: "after its deadline"},
	{options: Options{Break: WithoutPermit, Faults: Keys | Kill | Crash, Every: true, Dispatchers: 3}, seeds: 20, violation: "key over"},
	{
		options:   Options{Break: WithoutNumber, Faults: Keys | Unknown | Stop, Every: true, Dispatchers: 3, Steps: 40_000},
		seeds:     120,
		violation: "key o",
		change:    busyKeys,
	},
	{options: Options{Break: WithoutHeld, Faults: Keys | Crash, Every: true, Dispatchers: 3}, seeds: 10, violation: "key o"},
	{options: Options{Break: WithoutRecord, Faults: Joins, Every: true, Steps: 20_000}, seeds: 20, violation: "is lost|wrong outcome"},
	{
		options:   Options{Break: WithoutCounted, Faults: Joins | Unknown | Slow, Every: true, Dispatchers: 3, Steps: 20_000},
		seeds:     40,
		violation: "joined early|is lost",
	},
	{
		options:   Options{Break: WithoutRecorded, Faults: Joins | Slow | Unknown | Stop, Every: true, Steps: 20_000},
		seeds:     20,
		violation: "joined early",
	},
	{options: Options{Break: WithoutLinked, Faults: Joins | Slow, Every: true, Steps: 20_000}, seeds: 60, violation: "joined early"},
	{options: Options{Break: WithoutRunWhen, Faults: Joins, Every: true, Steps: 20_000}, seeds: 10, violation: "wrong outcome"},
	{options: Options{Break: WithoutChildren, Faults: Joins, Every: true, Steps: 20_000}, seeds: 20, violation: "orphan"},
	{options: Options{Break: WithoutParent, Faults: Joins | Slow | Unknown, Every: true, Steps: 20_000}, seeds: 60, violation: "orphan"},
	{
		options:   Options{Break: WithoutEnds, Faults: Joins | Crash | Resume, Every: true, Steps: 10_000},
		seeds:     60,
		violation: "is lost|orphan",
		change:    rareJoins,
	},
	{
		options: Options{Break: WithoutGuard, Faults: Remote | Resume, Every: true, Dispatchers: 3, Steps: 20_000}, seeds: 10, violation: twice,
		change: longJobs,
	},
	{
		options: Options{Break: WithoutParting, Faults: Remote | Resume, Every: true, Dispatchers: 3, Steps: 20_000}, seeds: 10, violation: twice,
		change: longJobs,
	},
}

const twice = "executed twice at one time"

// longJobs makes executions outlast the faults of the network.
func longJobs(w *world) {
	w.scale.jobMin, w.scale.jobMax, w.scale.insertGap, w.remote.gap = 3*second, 8*second, 3*second, second/10
}

// changingHosts makes workers change their dispatcher often, so that several
// resume offers of one execution are in flight.
func changingHosts(w *world) {
	w.detach.window, w.detach.otherHost, w.detach.gap, w.detach.handshake, w.detach.reconnectLate = 12*second, 9000, second/10, second/4, 0
	w.scale.jobMax = 10 * second
}

// busyKeys makes most jobs need a few keys, so that many admissions are in flight.
func busyKeys(w *world) {
	w.keys.share, w.scale.jobMax = 8000, 4*millisecond
}

// rareJoins makes most nodes depend on jobs outside of their flow, and flows so rare that often no other end causes a settlement.
func rareJoins(w *world) { w.joins.rate, w.joins.outside, w.joins.spawning = 200, 8000, 0 }

// run runs one of the worlds.
func (c *control) run(o Options) Result {
	w := newWorld(o)
	if c.change != nil {
		c.change(w)
	}
	return w.run()
}

// Each control shows that the checks can fail: it causes its violation, and the
// same world with the safeguard causes none.
func TestEachMissingSafeguardIsDetected(t *testing.T) {
	t.Parallel()
	for _, c := range controls {
		t.Run(strings.ReplaceAll(c.options.Break.String(), " ", "-"), func(t *testing.T) {
			for seed := range c.seeds {
				o := c.options
				o.Seed = seed
				broken := c.run(o)
				if broken.Violation == nil {
					continue
				}
				t.Logf("seed %d: %v", o.Seed, broken.Violation)
				require.Regexp(t, c.violation, broken.Violation.What)
				o.Break = Intact
				intact := c.run(o)
				require.Nil(t, intact.Violation, "with the safeguard: %v", intact.Violation)
				return
			}
			require.Failf(t, "undetected", "%v caused no violation in %d worlds", c.options.Break, c.seeds)
		})
	}
}

// Every safeguard that can be removed has a control.
func TestEachSafeguardHasAControl(t *testing.T) {
	t.Parallel()
	for b := Intact + 1; int(b) < len(breakNames); b++ {
		require.True(t, slices.ContainsFunc(controls, func(c control) bool { return c.options.Break == b }), "%v", b)
	}
}
