package backlog

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
	"github.com/dispatcherd/dispatcherd/slotindex"
)

// small returns a Backlog with one free slot per type. The types are "a", "b" and so on.
func small(t *testing.T, types int, change func(*Config)) *world {
	cfg := testConfig()
	if change != nil {
		change(&cfg)
	}
	w := newWorld(t, 1)
	w.index, w.types = slotindex.New(), nil
	w.b = New(cfg, w.index, w.hands, w.rng)
	w.offset = 0
	for i := range types {
		name := string(rune('a' + i))
		w.index.Release(w.index.AddTaken(dispatcherd.SlotID(i+1), []string{name}))
		typ := w.index.Hold(name)
		w.types = append(w.types, typ)
		w.b.TypeAppeared(typ, contract.Share{})
		w.b.CapacityAppeared(typ)
	}
	w.at(w.now)
	return w
}

func (w *world) at(now timing.Instant) {
	w.now = now
	w.b.Advance(now)
}

func (w *world) settleNow() {
	for w.send() > 0 {
		for len(w.reads) > 0 {
			w.answer(0, contract.OK)
		}
	}
}

func (w *world) add(typ string, key contract.Key) {
	w.rows[key.ID] = &row{key: key, typ: typ, pending: true}
}

// From the second slow backfill scan on, the pause after a scan is 50 times its
// duration, but at most maxBackfillPause, and at most five polls if fetches are
// slow as well.
func TestPauseAfterSlowScansIsBounded(t *testing.T) {
	const polls = 5_000
	longest := millis(maxBackfillPause)
	for _, c := range []struct {
		name        string
		took, fetch timing.Instant
		want        []timing.Instant
	}{
		{"four tenths of a second", 400, 2, []timing.Instant{polls, 20_000, 20_000}},
		{"ten seconds", 10_000, 2, []timing.Instant{polls, longest, longest}},
		{"a slow server", 400, 150, []timing.Instant{polls, polls, polls}},
		{"a busy machine", 60, 2, []timing.Instant{3_000, 3_000, 3_000}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := small(t, 1, nil)
			w.add("a", contract.Key{RunAt: 1, ID: 1})
			took, _ := w.b.LastScan()
			require.Zero(t, took)
			w.b.Notified()
			w.settleNow()
			for round, want := range c.want {
				w.b.SetSlow(true)
				w.at(max(w.now, w.b.backfill.next) + 10_000)
				require.Positive(t, w.send(), "round %d", round)
				scan := -1
				for i := range w.reads {
					if w.reads[i].request.Backfill {
						scan = i
					}
				}
				require.GreaterOrEqual(t, scan, 0)
				for len(w.reads) > 1 {
					w.answer((scan+1)%2, contract.OK)
					scan = 0
				}
				start := w.now
				w.at(w.now + 50)
				w.b.SetSlow(true)
				w.b.RowsMayHaveCome()
				w.b.types[0].classes[dispatcherd.NoDuration].local[1].scanned = 0 // some lane is read from its cursor in between
				w.send()
				w.at(w.now + c.fetch)
				for len(w.reads) > 1 {
					w.answer(1, contract.OK)
				}
				w.at(start + max(c.took, 50+c.fetch))
				w.answer(0, contract.OK)
				require.Equal(t, want, w.b.backfill.next-w.now, "round %d", round)
				took, age := w.b.LastScan()
				require.Equal(t, max(c.took, 50+c.fetch), millis(took))
				require.Zero(t, age)
			}
		})
	}
}

func TestScanIncludesTheRowAtTheCursor(t *testing.T) {
	for _, k := range []contract.Key{{RunAt: 5, ID: 1}, {RunAt: 5, ID: math.MaxInt64 - 1}, {RunAt: 5, ID: math.MaxInt64}} {
		require.True(t, k.Less(after(k)), "%v", k)
		require.False(t, contract.Key{RunAt: 6, ID: 1}.Less(after(k)), "%v", k)
	}
}

// A type with idle capacity leaves the first non-local rows to their owner, which
// is about to claim them. The first row that it takes is at most the penalty
// later than the first row that it leaves. A greater difference would exceed the
// overtaking window of shared types.
func TestRowsLeftToTheirOwnerAreNotPassedByMuchLaterRows(t *testing.T) {
	w := small(t, 1, nil)
	rows := func(apart time.Duration) (list []contract.Key) {
		for n := range 10 {
			list = append(list, contract.Key{RunAt: int64(n) * apart.Microseconds(), ID: dispatcherd.JobID(n + 1)})
		}
		return list
	}
	penalty := w.b.cfg.Penalty
	for apart, left := range map[time.Duration]int{
		penalty / 100: 9, // all rows but one, for which there is a slot
		penalty / 4:   4,
		penalty:       1,
		penalty + 1e6: 0,
	} {
		require.Equal(t, left, w.b.leftToOwner(w.types[0], rows(apart)), apart)
	}
}

// A fetch asks for a bounded number of rows of lanes with known rows, and the next ones begin with the other lanes. All lanes
// without known rows are read at once.
func TestLanesWithKnownRowsAreReadInTurn(t *testing.T) {
	w := small(t, 6, func(c *Config) { c.KnownRows = 4 }) // two of each lane
	for i := range w.types {
		w.add(string(rune('a'+i)), contract.Key{RunAt: 1, ID: dispatcherd.JobID(i + 1)})
	}
	require.Equal(t, 1, w.send())
	require.Len(t, w.reads[0].request.Lanes, 6*priorities, "no row is known")
	w.answer(0, contract.OK)
	w.settleNow()
	require.Equal(t, 6, w.b.Cached())
	w.b.PollNow()
	known := map[string]int{}
	for range 3 {
		require.Equal(t, 1, w.send())
		n := 0
		for _, q := range w.reads[0].request.Lanes {
			if q.Priority == 0 {
				known[q.Type]++
				n++
			}
		}
		require.Equal(t, 2, n)
		w.answer(0, contract.OK)
	}
	require.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1}, known)
	require.Zero(t, w.send())
	took, _ := w.b.LastScan()
	require.Zero(t, took)
}

// A fetch names about a hundred lanes. So a listing of many types takes several fetches, and omits none of them.
func TestListingOmitsNoType(t *testing.T) {
	for _, slow := range []bool{false, true} {
		w := small(t, 12, nil)
		w.settleNow()
		for _, typ := range w.types {
			for p := range dispatcherd.Priority(2) {
				for c := range dispatcherd.DurationClass(dispatcherd.DurationClasses - 1) {
					w.b.use(Lane{Type: typ, Priority: p, Class: c + 1})
				}
			}
		}
		w.b.SetSlow(slow)
		w.b.listAt = w.now + 500
		w.b.PollNow()
		w.settleNow()
		for _, typ := range w.types {
			require.Equal(t, w.b.lists, w.b.types[typ].listed)
		}
		require.Equal(t, !slow, w.b.lists == w.b.schedule.scans, "a listing is rare while scans are slow")
	}
}

// A listing of a type whose lanes are all in use would name none that is not read anyway.
func TestTypeWhoseLanesAreAllInUseIsNotListed(t *testing.T) {
	w := small(t, 1, nil)
	w.settleNow()
	listed := func() bool {
		w.at(w.now + 60_000)
		require.Equal(t, 1, w.send())
		named := len(w.reads[0].request.Classes) > 0
		w.answer(0, contract.OK)
		w.settleNow()
		return named
	}
	for level := priorities; level < levels; level++ {
		require.True(t, listed(), level)
		w.b.use(Lane{Type: w.types[0], Priority: dispatcherd.Priority(level % priorities), Class: dispatcherd.DurationClass(level / priorities)})
	}
	require.False(t, listed())
	require.Equal(t, w.b.lists, w.b.types[w.types[0]].listed)
}

// While a listing of a type is in flight, a lane that is not in use may have a better row. So a notified row is not placed at once.
func TestNotifiedRowWaitsForAListing(t *testing.T) {
	w := small(t, 1, nil)
	w.settleNow()
	w.add("a", contract.Key{RunAt: 1, ID: 1})
	w.rows[1].priority, w.rows[1].class = 10, 3
	w.at(w.now + 60)
	w.b.Notified()
	require.Equal(t, 1, w.send())
	for _, l := range w.b.local(w.types[0]) { // the lanes are read by another fetch: this one only lists
		l.reading = false
	}
	w.b.fetch.lanes = w.b.fetch.lanes[:0]
	w.reads[0].request.Lanes = w.reads[0].request.Lanes[:0]
	require.Equal(t, []string{"a"}, w.reads[0].request.Classes)
	n := &contract.RowNotification{Type: "a", Key: contract.Key{RunAt: int64(w.now) * 1000, ID: 2}}
	w.rows[2] = &row{key: n.Key, typ: "a", pending: true}
	w.b.RowNotified(n, true)
	require.Zero(t, w.b.Cached())
	w.answer(0, contract.OK)
	w.settleNow()
	require.Equal(t, 2, w.b.Cached())
}

// A lane is in use because a non-local row was notified, and a listing in flight names its local row. The next fetch reads it.
func TestListedLaneWithNonLocalRowsIsRead(t *testing.T) {
	w := small(t, 1, nil)
	share := contract.ShareOf(2, contract.Others{SmallerIDs: 1, Least: 1})
	w.b.SetShare(w.types[0], share)
	w.settleNow()
	mine, theirs := dispatcherd.JobID(1), dispatcherd.JobID(1)
	for ; !share.Owns(mine); mine++ {
	}
	for ; share.Owns(theirs); theirs++ {
	}
	w.at(w.now + 2000)
	w.add("a", contract.Key{RunAt: int64(w.now-1000) * 1000, ID: mine})
	w.rows[mine].priority, w.rows[mine].class = 10, 3
	require.Equal(t, 1, w.send())
	require.Equal(t, []string{"a"}, w.reads[0].request.Classes)
	w.reads[0].done, w.reads[0].result = true, w.fetch(w.reads[0].request)
	w.b.RowNotified(
		&contract.RowNotification{Type: "a", Priority: 10, Class: 3, Key: contract.Key{RunAt: int64(w.now) * 1000, ID: theirs}},
		true,
	)
	w.answer(0, contract.OK)
	w.settleNow()
	require.Equal(t, 1, w.b.Cached())
}

// A part of a full scan that fails does not say how long a scan takes.
func TestFailedPartOfAScanDoesNotCount(t *testing.T) {
	w := small(t, 2, func(c *Config) { c.LanesPerFetch = 11 })
	require.Equal(t, 1, w.send())
	w.at(w.now + 1000)
	w.answer(0, contract.Unknown)
	for took := time.Duration(0); took == 0; took, _ = w.b.LastScan() {
		w.at(w.now + 300)
		if w.send() > 0 {
			w.at(w.now + 1)
			w.answer(0, contract.OK)
		}
	}
	took, _ := w.b.LastScan()
	require.Less(t, took, 100*time.Millisecond)
	require.False(t, w.b.schedule.slow)
}

// A type is known although no slot supports it, because a request waits for a worker. Its rows are not read.
func TestNotifiedRowOfATypeWithoutSlotsIsNotRead(t *testing.T) {
	w := small(t, 1, nil)
	w.settleNow()
	w.b.TypeAppeared(w.index.Hold("z"), contract.Share{})
	key := contract.Key{RunAt: 1, ID: 7}
	w.add("z", key)
	w.rows[7].priority, w.rows[7].class = 1, 3
	w.b.RowNotified(&contract.RowNotification{Type: "z", Priority: 1, Class: 3, Key: key}, true)
	w.settleNow() // judges each request
	require.Zero(t, w.b.Cached())
}

// While no slot supported a type, its lanes were not listed.
func TestTypeThatGetsASlotIsListed(t *testing.T) {
	w := small(t, 1, nil)
	w.settleNow()
	w.b.CapacityAppeared(w.types[0])
	require.Equal(t, 1, w.send())
	require.Equal(t, []string{"a"}, w.reads[0].request.Classes)
}

// A notification names a row of a lane that is not in use, and the row must not be placed at once. The next fetch reads the lane.
func TestNotifiedLaneIsReadSoon(t *testing.T) {
	w := small(t, 1, nil)
	w.settleNow()
	r := Lane{Type: w.types[0], Priority: 10, Class: 3}
	w.b.RowNotified(&contract.RowNotification{Type: "a", Priority: r.Priority, Class: r.Class, Key: contract.Key{RunAt: 1, ID: 7}}, false)
	_, ok := w.b.FirstUnread(r.Type)
	require.False(t, ok, "it was never read, so it says nothing of unread rows")
	require.Equal(t, 1, w.send())
	require.True(t, slices.ContainsFunc(w.reads[0].request.Lanes, func(q contract.LaneQuery) bool {
		return q.Priority == r.Priority && q.Class == r.Class
	}))
}

// The duration of a full scan is that of all its fetches.
func TestScanInSeveralFetchesIsAsLongAsAllOfThem(t *testing.T) {
	w := small(t, 2, func(c *Config) { c.LanesPerFetch = 11 })
	start := w.now
	for range 2 {
		require.Equal(t, 1, w.send())
		w.at(w.now + 8)
		w.answer(0, contract.OK)
	}
	took, age := w.b.LastScan()
	require.Equal(t, 16*time.Millisecond, took)
	require.Zero(t, age)
	require.Equal(t, start+millis(scanPause)+scanFactor*16, w.b.schedule.nextScan)
}

// Lanes that always run low leave room in each fetch for the round of all
// lanes.
func TestLowLanesLeaveRoomForTheRound(t *testing.T) {
	for _, limit := range []func(*Config){
		func(c *Config) { c.LanesPerFetch = 4 },
		func(c *Config) { c.RowsPerFetch = 8 }, // two of each lane
	} {
		w := small(t, 2, limit)
		for p := range dispatcherd.MaxPriority + 1 {
			w.b.Rescan(Lane{Type: w.types[0], Priority: p})
		}
		w.b.round.from = levels // the first lane of type b
		require.Equal(t, 1, w.send())
		names := map[string]int{}
		for _, q := range w.reads[0].request.Lanes {
			names[q.Type]++
		}
		require.Equal(t, map[string]int{"a": 2, "b": 2}, names)
	}
}

// If a batch is discarded while a full scan of its lane is in flight, the lane
// is read again, because the answer would be merged into a batch that no longer
// exists.
func TestScanOfADiscardedBatchIsNotMerged(t *testing.T) {
	w := small(t, 1, func(c *Config) { c.LostPerList = 1 })
	for id := range dispatcherd.JobID(3) {
		w.add("a", contract.Key{RunAt: int64(id), ID: id + 1})
	}
	w.settleNow()
	lane := Lane{Type: w.types[0]}
	_, batch := w.b.Pop(lane)
	w.b.PollNow()
	require.Equal(t, 1, w.send())
	require.True(t, w.b.Lost(lane, batch), "the rest of the batch is discarded")
	key, bound, ok := w.b.Head(lane)
	require.Equal(t, contract.Key{RunAt: 1, ID: 1}, key)
	require.True(t, bound)
	require.True(t, ok, "decisions wait for the answer of the scan")
	w.answer(0, contract.OK)
	require.Zero(t, w.b.Cached(), "the answer is not merged")
	require.Equal(t, 1, w.send())
	require.Zero(t, w.reads[0].request.Lanes[0].After, "the lane is read from its beginning")
}

// A decision waits for a fetch at most for Config.Patience. It does not wait
// while Postgres does not answer.
func TestUpperBoundExpires(t *testing.T) {
	w := small(t, 1, func(c *Config) { c.LaneLength = 1 })
	w.add("a", contract.Key{RunAt: 1, ID: 1})
	w.settleNow()
	lane := Lane{Type: w.types[0]}
	w.b.Pop(lane)
	w.b.PollNow()
	w.send()
	require.True(t, w.b.Waits(w.types[0]))
	_, bound, ok := w.b.Head(lane)
	require.True(t, bound && ok)
	require.Equal(t, w.now+100, w.b.Wake(true))
	w.at(w.now + 100)
	_, _, ok = w.b.Head(lane)
	require.False(t, ok)
	w.answer(0, contract.Refused)
	require.True(t, w.b.Failing())
	_, _, ok = w.b.Head(lane)
	require.False(t, ok)
	require.Empty(t, w.due(), "the circuit breaker is open")
	require.LessOrEqual(t, w.b.Wake(true), w.now+50)
}

// After 200 notifications within a second the gate is throttled for a second. Meanwhile
// the lanes are read in a fifth of the time, every 2 to 10 ms while a slot is free.
func TestGateIsThrottledByManyNotifications(t *testing.T) {
	w := small(t, 1, nil)
	w.settleNow()
	require.True(t, w.b.Subscribed())
	for range 200 {
		w.b.Notified()
	}
	subscribe, changed := w.b.NextGate()
	require.True(t, changed && !subscribe)
	w.b.GateAnswered(false, contract.OK)
	w.settleNow()
	require.Equal(t, w.now+2, w.b.Wake(false))
	w.at(w.now + 2)
	require.Equal(t, 1, w.send())
	w.at(w.now + 1)
	w.answer(0, contract.OK)
	require.Equal(t, w.now+4, w.b.Wake(false), "polls take a fifth of the time")
	w.takeSlot(w.types[0])
	require.Equal(t, w.now+9, w.b.Wake(false), "no slot is free")
	w.b.gate.found = throttleKeep // reads return many rows, so throttling goes on
	w.at(w.now + 997)
	_, changed = w.b.NextGate()
	require.False(t, changed)
	w.at(w.now + 1000)
	subscribe, changed = w.b.NextGate()
	require.True(t, changed && subscribe)
	w.b.GateAnswered(true, contract.Refused)
	require.False(t, w.b.Subscribed())
	_, changed = w.b.NextGate()
	require.False(t, changed, "the circuit breaker is open")
	w.at(w.now + 100)
	_, changed = w.b.NextGate()
	require.True(t, changed)
	w.b.GateAnswered(true, contract.OK)
	w.b.GateReset()
	require.False(t, w.b.Subscribed())
}

// An idle dispatcher that receives notifications polls five times less often
// until it takes a job.
func TestIdlePollsAreRare(t *testing.T) {
	w := small(t, 1, nil)
	w.b.ListenerChanged(true)
	w.settleNow()
	w.at(w.now + 20_000)
	w.settleNow()
	require.Equal(t, w.now+5_000, w.b.Wake(false))
	w.b.JobTaken()
	require.Equal(t, w.now+1_000, w.b.Wake(false))
	w.b.ListenerChanged(false)
	w.settleNow()
	require.Equal(t, w.now+200, w.b.Wake(false), "without a listener the lanes are read more often")
}

// If no slot is free and a fetch could not contain every lane, a pause of nine
// times its duration follows.
func TestFullFetchesBackOffWithoutAFreeSlot(t *testing.T) {
	for _, limit := range []func(*Config){
		func(c *Config) { c.LanesPerFetch = 11 },
		func(c *Config) { c.RowsPerFetch = 21 },
	} {
		w := small(t, 3, limit)
		for _, typ := range w.types {
			w.takeSlot(typ)
		}
		require.Equal(t, 1, w.send())
		w.at(w.now + 10)
		w.answer(0, contract.OK)
		require.Zero(t, w.send())
		require.Equal(t, w.now+90, w.b.Wake(false))
		w.at(w.now + 90)
		require.Equal(t, 1, w.send())
	}
}

// If a type loses its last slot, its candidates are forgotten and a later
// answer about it is ignored.
func TestTypeGoneForgetsItsLanes(t *testing.T) {
	w := small(t, 2, nil)
	w.add("a", contract.Key{RunAt: 1, ID: 1})
	w.settleNow()
	require.Equal(t, 1, w.b.Cached())
	w.b.SetShare(w.types[0], contract.ShareOf(1, contract.Others{LargerIDs: 1, Least: 1}))
	w.b.SetSlow(true)
	w.b.PollNow()
	w.send()
	w.b.TypeGone(w.types[0])
	for len(w.reads) > 0 {
		w.answer(0, contract.OK)
	}
	require.Zero(t, w.b.Cached())
	require.False(t, w.b.Waits(w.types[0]))
	w.b.PutBack(Lane{Type: w.types[0]}, contract.Key{RunAt: 1, ID: 1})
	require.Zero(t, w.b.Cached())
	require.NoError(t, w.b.Check())
}

// Producers do not notify a dispatcher that receives no notifications.
func TestGateIsSubscribedOnlyWhileNotificationsArrive(t *testing.T) {
	w := small(t, 1, nil)
	w.settleNow()
	w.b.ListenerChanged(false)
	subscribe, changed := w.b.NextGate()
	require.True(t, changed && !subscribe)
	w.b.GateAnswered(false, contract.OK)
	w.b.ListenerChanged(true)
	subscribe, changed = w.b.NextGate()
	require.True(t, changed && subscribe)
}

// While Postgres was away, the listener and the gate failed. Then the listener was back before the gate was asked again.
func TestFailureOfAChangeOfTheGateThatIsNotWantedAnyMoreDoesNotCount(t *testing.T) {
	w := small(t, 1, nil)
	w.settleNow()
	w.b.ListenerChanged(false)
	_, changed := w.b.NextGate()
	require.True(t, changed)
	w.b.GateAnswered(false, contract.Refused)
	require.True(t, w.b.Failing())
	w.b.ListenerChanged(true)
	_, changed = w.b.NextGate()
	require.False(t, changed)
	require.False(t, w.b.Failing())
}

// With 2,000 types, a row that is admitted after the cursor of its lane costs a read of that lane only.
func TestAdmittedRowReadsItsLaneOnly(t *testing.T) {
	w := small(t, 2_000, nil)
	w.settleNow()
	w.at(w.now + 10_000)
	w.settleNow()
	key := contract.Key{RunAt: w.b.DBNow() * 1000, ID: 7}
	typ := w.index.Name(w.types[1_234])
	w.add(typ, key)
	w.b.RowAdmitted(&contract.RowNotification{Type: typ, Key: key})
	require.Equal(t, 1, w.send())
	require.Len(t, w.reads[0].request.Lanes, 1)
	require.Equal(t, typ, w.reads[0].request.Lanes[0].Type)
	w.answer(0, contract.OK)
	require.Zero(t, w.send(), "no round over the other types begins")
}

// A drained backlog reads nothing and closes the gate.
func TestDrainEndsReading(t *testing.T) {
	w := small(t, 1, nil)
	w.settleNow()
	w.b.Drain()
	w.b.Notified()
	require.Empty(t, w.due())
	subscribe, changed := w.b.NextGate()
	require.True(t, changed && !subscribe)
	require.Equal(t, timing.Never, w.b.Wake(true))
}

func TestCheckDetectsEveryInconsistency(t *testing.T) {
	for name, damage := range map[string]func(*Backlog){
		"order": func(b *Backlog) {
			l := &b.types[0].classes[dispatcherd.NoDuration].local[0]
			l.keys[0], l.keys[1] = l.keys[1], l.keys[0]
		},
		"mark":           func(b *Backlog) { b.types[0].waiting = 0 },
		"mark of a lane": func(b *Backlog) { b.types[0].classes[dispatcherd.NoDuration].waiting = 0 },
		"cached":         func(b *Backlog) { b.cached++ },
		"shared types":   func(b *Backlog) { b.nonLocal.types++ },
		"head":           func(b *Backlog) { b.types[0].classes[dispatcherd.NoDuration].heads[0].ID++ },
		"bound":          func(b *Backlog) { b.types[0].classes[dispatcherd.NoDuration].bounds = 1 },
		"cursor":         func(b *Backlog) { b.types[0].classes[dispatcherd.NoDuration].local[0].cursor = contract.Key{} },
	} {
		t.Run(name, func(t *testing.T) {
			w := small(t, 1, nil)
			w.add("a", contract.Key{RunAt: 1, ID: 1})
			w.add("a", contract.Key{RunAt: 2, ID: 2})
			w.settleNow()
			require.NoError(t, w.b.Check())
			damage(w.b)
			require.Error(t, w.b.Check())
		})
	}
}

// If a backfill scan cannot return all rows up to the cursor, the cursor moves
// back to the last returned row. The rest is then read without another scan.
func TestFullBackfillScanMovesTheCursorBack(t *testing.T) {
	w := small(t, 1, func(c *Config) { c.LaneLength = 2 })
	w.add("a", contract.Key{RunAt: 100, ID: 1})
	w.settleNow()
	for id := range dispatcherd.JobID(9) {
		w.add("a", contract.Key{RunAt: int64(id) + 1, ID: id + 2})
	}
	w.b.SetSlow(true)
	w.b.PollNow()
	w.settleNow()
	lane := Lane{Type: w.types[0]}
	for n := range 9 {
		key, _, _ := w.b.Head(lane)
		require.Equal(t, int64(n)+1, key.RunAt)
		w.b.Pop(lane)
		w.rows[key.ID].pending = false
		w.settleNow()
	}
}

// A row that was committed later than its successors is found by the next read after the
// cursor. Only a transaction that took longer than overlap needs a full scan. A row that
// its worker returned waits for a scan in any case.
func TestReadsAfterTheCursorFindLateCommits(t *testing.T) {
	for _, c := range []struct {
		name  string
		age   timing.Instant
		event func(*Backlog)
		found bool
	}{
		{"late commit", 90, func(*Backlog) {}, true},
		{"long transaction", 110, func(*Backlog) {}, false},
		{"returned row", 90, (*Backlog).GivenBack, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := small(t, 1, nil)
			lane := Lane{Type: w.types[0]}
			w.add("a", contract.Key{RunAt: w.dbNow(), ID: 2})
			w.settleNow()
			w.b.Pop(lane)
			delete(w.rows, 2)
			w.add("a", contract.Key{RunAt: w.dbNow() - int64(c.age)*1000, ID: 1})
			c.event(w.b)
			w.at(w.now + 1)
			w.b.RowsMayHaveCome()
			w.settleNow()
			require.Equal(t, c.found, w.b.State(lane).Contains(contract.Key{RunAt: w.dbNow() - int64(c.age+1)*1000, ID: 1}))
		})
	}
}

// A non-local row that was just committed is left to its owner. It is read again after
// OwnerGrace, and then it is a candidate, whether or not its owner lives. Neither its
// notification nor the wait makes local lanes be read.
func TestIdleCapacityTakesNonLocalRowsAfterTheGrace(t *testing.T) {
	w := small(t, 1, nil)
	share := contract.ShareOf(1, contract.Others{LargerIDs: 1, Least: 1})
	w.b.SetShare(w.types[0], share)
	w.settleNow()
	id := dispatcherd.JobID(1)
	for share.Owns(id) {
		id++
	}
	for _, age := range []timing.Instant{0, 50, 5_000} { // a transaction may take long
		w.at(w.now + 100)
		w.settleNow()
		row := contract.Key{RunAt: w.dbNow() - int64(age)*1000, ID: id}
		w.add("a", row)
		committed := w.now
		w.b.RowNotified(&contract.RowNotification{Type: "a", Key: row}, true)
		lane := Lane{Type: w.types[0], NonLocal: true}
		for !w.b.State(lane).Contains(row) {
			require.LessOrEqual(t, w.now, committed+9, "age %d", age)
			require.False(t, w.send() > 0 && w.now < committed+5, "age %d at %d", age, w.now-committed)
			for len(w.reads) > 0 {
				for _, q := range w.reads[0].request.Lanes {
					require.True(t, q.NonLocal)
				}
				w.answer(0, contract.OK)
			}
			w.at(w.now + 1)
		}
		w.b.Pop(lane)
		delete(w.rows, id)
		id += 8 * 65536
	}
}
