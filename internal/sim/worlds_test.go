package sim

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/stretchr/testify/require"
)

var (
	seedFlag   = flag.Int64("seed", -1, "run the world of this seed alone")
	stepsFlag  = flag.Int("steps", 0, "events of that world until it is healed; 0 = the default")
	worldsFrom = flag.Uint64("from", 1_000, "first seed of TestWorlds")
)

// eventsVariable is the environment variable that says how many events
// TestWorlds lives through. What it takes is about a second for each three
// million.
const eventsVariable = "SIM_EVENTS"

func wantedEvents(t *testing.T) int {
	if text := os.Getenv(eventsVariable); text != "" {
		n, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err, eventsVariable)
		return int(n)
	}
	if raceDetector || testing.Short() {
		return 1_000_000
	}
	return 10_000_000
}

// replay is the command that runs a world again, and what to do next.
func replay(o Options) string {
	return fmt.Sprintf("go test ./internal/sim -run TestSeed -seed=%d -steps=%d -v\n\tkeep it in testdata/seeds.txt when it is mended: %[1]d %[2]d what it found",
		o.Seed, o.withDefaults().Steps)
}

// upheld fails if a world did not keep its promises, and says how to look into it.
func requireNoViolation(t *testing.T, o Options, r Result) {
	t.Helper()
	if r.Violation != nil {
		require.Fail(t, r.Violation.String(), "replay with\n\t%s", replay(o))
	}
}

// TestSeed runs one world: go test ./internal/sim -run TestSeed -seed=N -v.
// Without a seed it runs the ordinary ones, from 0 on.
func TestSeed(t *testing.T) {
	if *seedFlag >= 0 {
		o := Options{Seed: uint64(*seedFlag), Faults: All, Steps: *stepsFlag}
		r := Run(o)
		t.Logf("%d events, %v: %+v", r.Events, r.Elapsed, r.Stats)
		requireNoViolation(t, o, r)
		return
	}
	for seed := range uint64(5) {
		o := Options{Seed: seed, Faults: All}
		r := Run(o)
		requireNoViolation(t, o, r)
	}
}

// TestWorlds lives through new worlds, the same ones every time, until there
// were enough events: 10 million by default, SIM_EVENTS=1e8 for more.
func TestWorlds(t *testing.T) {
	var sum Stats
	events, worlds := 0, 0
	for want := wantedEvents(t); events < want; worlds++ {
		o := Options{Seed: *worldsFrom + uint64(worlds), Faults: All}
		r := Run(o)
		events += r.Events
		sum.Add(r.Stats)
		requireNoViolation(t, o, r)
	}
	t.Logf("%d worlds, %d events: %+v", worlds, events, sum)
	require.Equal(t, sum.Jobs, sum.Done+sum.Failed+sum.Cancelled)
	if events < 10_000_000 {
		return
	}
	for what, n := range map[string]int{
		"rows of lost dispatchers": sum.TakenOver, "leases lost": sum.Rejoined, "stale ends": sum.Stale,
		"overlapping executions": sum.Overlaps, "late statements": sum.LateStatement, "outages": sum.Unreachable,
		"lost notifications": sum.LostNotifications, "waits for a lock": sum.LockWaits, "held to the window": sum.Windows,
		"cancelled jobs": sum.Cancelled, "abandoned calls": sum.Abandoned, "adopted rows": sum.Adopted,
		"resumed executions": sum.Resumed, "executions given up": sum.Expired, "rows handed over": sum.HandedOver,
		"rows handed over that nobody took": sum.NotAdopted,
	} {
		require.Positive(t, n, "%s: these worlds are too peaceful to show anything", what)
	}
}

// TestSeedsThatFoundSomething runs the worlds that once failed. A line of
// testdata/seeds.txt is a seed, its steps and what it found.
func TestSeedsOfPastFailures(t *testing.T) {
	f, err := os.Open("testdata/seeds.txt")
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	ran := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var o Options
		o.Faults = All
		n, err := fmt.Sscanf(line, "%d %d", &o.Seed, &o.Steps)
		require.True(t, err == nil && n == 2, "%q: want a seed, the steps and what was found", line)
		for _, o.Faults = range []Faults{All, All &^ detachFaults} { // old seeds found what they found without work that is carried along
			r := Run(o)
			require.Nil(t, r.Violation, "%s\n%s: %v", line, replay(o), r.Violation)
		}
		ran++
	}
	require.Positive(t, ran)
}

// TestPollingOff: as long as every notification arrives, nothing is forgotten
// by dispatchers that never look on their own.
func TestNoRowIsMissedWithoutPolling(t *testing.T) {
	for seed := range uint64(40) {
		o := Options{Seed: 3_000 + seed, Steps: 20_000, NoPoll: true, Faults: All &^ (Notify | Stop | Shuffle)}
		r := Run(o)
		require.Nil(t, r.Violation, "seed %d: %v", o.Seed, r.Violation)
		o.Faults, o.Every, o.Dispatchers = Kill, true, 1 // nobody else rings for what comes back
		r = Run(o)
		require.Nil(t, r.Violation, "seed %d, alone: %v", o.Seed, r.Violation)
	}
}

// TestPollingOffInAStorm: producers are told not to ring while they ring all the
// time. What they insert meanwhile is found when the bell is armed again.
func TestNoRowIsMissedWhileThrottled(t *testing.T) {
	for seed := range uint64(12) {
		w := newWorld(Options{Seed: 3_100 + seed, Steps: 60_000, NoPoll: true})
		w.scale.jobMax, w.scale.insertGap = 4*millisecond, millisecond
		r := w.run()
		require.Nil(t, r.Violation, "seed %d: %v", 3_100+seed, r.Violation)
		require.GreaterOrEqual(t, r.Stats.Notified, 200, "that was no storm")
	}
}

// TestLongLooksLoseNothing: looks that last as long as under a held snapshot,
// beside every fault.
func TestSlowScansLoseNoJob(t *testing.T) {
	scans := 0
	for seed := range uint64(12) {
		r := Run(Options{Seed: 5_200 + seed, Faults: All, SlowScans: true, Steps: 30_000})
		require.Nil(t, r.Violation, "seed %d: %v", 5_200+seed, r.Violation)
		scans += r.Stats.BackfillScans
	}
	require.Greater(t, scans, 100)
}

// TestALookThatHungIsNoMeasure: a full look rests for fifty times as long as it
// took, but one that took a minute because its dispatcher stood still does not
// keep the next one away for an hour.
func TestStalledScanDoesNotDelayTheNext(t *testing.T) {
	cfg := actor.DefaultConfig()
	core := actor.New(cfg)
	fullScan := func(fx []actor.Effect) *contract.FetchRequest {
		for _, e := range fx {
			if e, ok := e.(*actor.Fetch); ok && e.Request.Lanes[0].After == (contract.Key{}) {
				return e.Request
			}
		}
		return nil
	}
	slow := fullScan(core.Step(0, actor.Registered{Session: 1, Slots: []dispatcherd.Slot{{ID: 1, Types: []string{"pdf"}}}}, nil))
	require.NotNil(t, slow)
	back := actor.Instant(time.Minute.Milliseconds())
	core.Step(back, actor.Fetched{Request: slow}, nil)
	for now := back; now <= back+actor.Instant(20*cfg.Poll.Milliseconds())+1; now = max(now+1, core.NextWake()) {
		if fullScan(core.Step(now, actor.Tick{}, nil)) != nil {
			return
		}
	}
	require.Fail(t, "no full look in twenty polls")
}
