package sim

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

var (
	seedFlag   = flag.Int64("seed", -1, "run the world of this seed alone")
	stepsFlag  = flag.Int("steps", 0, "events of that world until it is healed; 0 = the default")
	worldsFrom = flag.Uint64("from", 1_000, "first seed of TestWorlds")
)

// eventsVariable is the environment variable with the number of events of
// TestWorlds. A second suffices for about three million events.
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

// TestMain collects garbage more rarely: at the usual rate the collector takes a fifth of the time of a world.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// replay returns the command that runs a world again.
func replay(o Options) string {
	return fmt.Sprintf(
		"go test ./internal/sim -run TestSeed -seed=%d -steps=%d -v\n\tafter the fix, add to testdata/seeds.txt: %[1]d %[2]d what it found",
		o.Seed,
		o.withDefaults().Steps,
	)
}

// requireNoViolation fails if a run violated a guarantee, and prints the
// command of its replay.
func requireNoViolation(t *testing.T, o Options, r Result) {
	t.Helper()
	if r.Violation != nil {
		require.Fail(t, r.Violation.String(), "replay with\n\t%s", replay(o))
	}
}

// TestSeed runs one world: go test ./internal/sim -run TestSeed -seed=N -v.
// Without a seed it runs the first five.
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

// TestWorlds runs the worlds of consecutive seeds until they have had enough
// events: 10 million by default, SIM_EVENTS=1e8 for more.
func TestWorlds(t *testing.T) {
	t.Parallel()
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
		"rows of lost dispatchers": sum.TakenOver, "stale ends": sum.Stale,
		"overlapping executions": sum.Overlaps, "late statements": sum.LateStatement, "outages": sum.Unreachable,
		"lost notifications": sum.LostNotifications, "waits for a lock": sum.LockWaits, "held to the window": sum.Windows,
		"shared durations": sum.Shared,
		"cancelled jobs":   sum.Cancelled, "abandoned calls": sum.Abandoned, "adopted rows": sum.Adopted,
		"resumed executions": sum.Resumed, "executions given up": sum.Expired, "rows handed over": sum.HandedOver,
		"rows handed over and not adopted": sum.NotAdopted, "loaded payloads": sum.Loaded, "rows set aside": sum.SetAside,
		"waiting jobs": sum.Fired, "counted ends": sum.EndsCounted, "children": sum.Children, "refused members": sum.Refused,
		"jobs with keys": sum.Keyed, "controllers": sum.Terms, "locked rows": sum.RowsLocked, "rows with another lane": sum.RowsMoved,
	} {
		require.Positive(t, n, "%s: did not occur in these worlds", what)
	}
}

// local are the faults of worlds without remote workers.
const local = All &^ Remote

// TestSeedsOfPastFailures runs the worlds that once failed. A line of
// testdata/seeds.txt contains a seed, its steps, and the defect that it
// found.
func TestSeedsOfPastFailures(t *testing.T) {
	t.Parallel()
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
		// Old seeds found defects before these faults existed.
		for _, o.Faults = range []Faults{
			All, local, local &^ Expected, local &^ (Expected | Joins), local &^ (Expected | Joins | Keys),
			local &^ (Expected | Joins | Keys | Rows), local &^ (Expected | Joins | Keys | Rows | detachFaults),
		} {
			r := Run(o)
			require.Nil(t, r.Violation, "%s\n%s: %v", line, replay(o), r.Violation)
		}
		ran++
	}
	require.Positive(t, ran)
}

// While every notification arrives, dispatchers that do not poll miss no row.
func TestNoRowIsMissedWithoutPolling(t *testing.T) {
	t.Parallel()
	for seed := range sized(40) {
		o := Options{Seed: 3_000 + seed, Steps: 20_000, NoPoll: true, Faults: All &^ (Notify | Stop | Shuffle | Rows)}
		r := Run(o)
		require.Nil(t, r.Violation, "seed %d: %v", o.Seed, r.Violation)
		o.Faults, o.Every, o.Dispatchers = Kill, true, 1 // no other dispatcher notifies it of released rows
		r = Run(o)
		require.Nil(t, r.Violation, "seed %d, alone: %v", o.Seed, r.Violation)
	}
}

// Producers are throttled while they insert continuously. The rows that they
// insert without a notification are found when the gate opens.
func TestNoRowIsMissedWhileThrottled(t *testing.T) {
	t.Parallel()
	for seed := range sized(12) {
		w := newWorld(Options{Seed: 3_100 + seed, Steps: 60_000, NoPoll: true})
		w.scale.jobMax, w.scale.insertGap = 4*millisecond, millisecond
		r := w.run()
		require.Nil(t, r.Violation, "seed %d: %v", 3_100+seed, r.Violation)
		require.GreaterOrEqual(t, r.Stats.Notified, 200, "too few notifications to throttle")
	}
}

// Full scans and backfill scans that take as long as under a held snapshot lose
// no job, whatever the fault.
func TestSlowScansLoseNoJob(t *testing.T) {
	t.Parallel()
	scans := 0
	seeds := []uint64{5_265} // a slow fetch let a job pass unread rows that were a window older
	for seed := range uint64(12) {
		seeds = append(seeds, 5_200+seed)
	}
	for _, seed := range seeds {
		r := Run(Options{Seed: seed, Faults: All, SlowScans: true, Steps: 30_000})
		require.Nil(t, r.Violation, "seed %d: %v", seed, r.Violation)
		scans += r.Stats.BackfillScans
	}
	require.Greater(t, scans, 100)
}

// Most jobs need a few keys, so that statements with an unknown outcome and lost controllers concern many admissions.
func TestMostJobsNeedKeys(t *testing.T) {
	t.Parallel()
	var sum Stats
	for seed := range sized(30) {
		o := Options{Seed: 7_000 + seed, Faults: Keys | Crash | Stop | Unknown | Unreachable | Kill | Late, Every: true, Steps: 20_000}
		w := newWorld(o)
		busyKeys(w)
		r := w.run()
		require.Nil(t, r.Violation, "seed %d: %v", o.Seed, r.Violation)
		sum.Add(r.Stats)
	}
	require.Greater(t, sum.Keyed, 160*int(sized(30)))
	require.Greater(t, sum.Terms, int(sized(30)))
}

// Producers insert a flow or batch for each other insert, and many executions insert children. Jobs are often cancelled, and
// rows are locked.
func TestMostJobsWaitForOthers(t *testing.T) {
	t.Parallel()
	var sum Stats
	for seed := range sized(30) {
		faults := []Faults{
			All,
			All &^ Keys,
			Joins | Crash | Stop | Unknown | Slow | Unreachable | Kill | Late | Rows,
			Joins | Unknown | Notify | Resume | HandOver,
		}
		o := Options{Seed: 9_000 + seed, Faults: faults[seed%4], Every: true, Steps: 20_000}
		w := newWorld(o)
		w.joins.rate, w.joins.outside, w.joins.spawning, w.scale.cancelGap = 1, 3000, 1500, second/50
		r := w.run()
		require.Nil(t, r.Violation, "seed %d: %v", o.Seed, r.Violation)
		sum.Add(r.Stats)
	}
	require.Greater(t, sum.Fired, 600*int(sized(30)))
	require.Greater(t, sum.Children, 30*int(sized(30)))
	require.Greater(t, sum.Refused, int(sized(30)))
}

// Transactions commit up to two seconds after they drew their ids. Most jobs need one of few keys, so that many of a class wait. No
// later job passes one that was committed two seconds ago.
func TestJobsThatAreCommittedLateKeepTheirOrder(t *testing.T) {
	t.Parallel()
	for seed := range sized(20) {
		o := Options{Seed: 7_100 + seed, Faults: Keys | Late, Every: true, Steps: 20_000}
		w := newWorld(o)
		busyKeys(w)
		w.keys.share, w.scale.types, w.scale.priorities = 10_000, 1, w.scale.priorities[:1]
		r := w.run()
		require.Nil(t, r.Violation, "seed %d: %v", o.Seed, r.Violation)
	}
}

// A full scan is followed by a pause of fifty times its duration. A scan that
// took a minute because its dispatcher was suspended does not delay the next
// one by an hour.
func TestStalledScanDoesNotDelayTheNext(t *testing.T) {
	t.Parallel()
	cfg := actor.DefaultConfig()
	core := actor.New(cfg)
	fullScan := func(fx []effect.Effect) *contract.FetchRequest {
		for _, e := range fx {
			if e, ok := e.(*effect.Fetch); ok && e.Request.Lanes[0].After == (contract.Key{}) {
				return e.Request
			}
		}
		return nil
	}
	slow := fullScan(core.Step(0, actor.Registered{Session: 1, Slots: []dispatcherd.Slot{{ID: 1, Types: []string{"pdf"}}}}, nil))
	require.NotNil(t, slow)
	back := timing.Instant(time.Minute.Milliseconds())
	core.Step(back, actor.Fetched{Request: slow}, nil)
	for now := back; now <= back+timing.Instant(20*cfg.Poll.Milliseconds())+1; now = max(now+1, core.NextWake()) {
		if fullScan(core.Step(now, actor.Tick{}, nil)) != nil {
			return
		}
	}
	require.Fail(t, "no full scan in twenty polls")
}
