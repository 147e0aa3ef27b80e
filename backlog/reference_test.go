package backlog

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// settle polls and answers reads at once until the backlog requests no more.
func (w *world) settle() {
	w.b.PollNow()
	for rounds := 0; w.send() > 0; rounds++ {
		require.Less(w.t, rounds, 1000, "NextRead does not terminate")
		for len(w.reads) > 0 {
			w.answer(0, contract.OK)
		}
	}
}

// heads returns the first row of each lane that is due and not in hand, according
// to the table.
func (w *world) heads() map[Lane]contract.Key {
	heads := map[Lane]contract.Key{}
	for _, x := range w.rows {
		lane := w.b.LaneOf(Lane{Type: w.typeOf(x.typ), Priority: x.priority, Class: x.class}, x.key.ID)
		if first, ok := heads[lane]; x.pending && x.key.RunAt <= w.dbNow() && w.hands[x.key.ID] == nil && (!ok || x.key.Less(first)) {
			heads[lane] = x.key
		}
	}
	return heads
}

func (w *world) checkHeads() {
	heads := w.heads()
	for _, t := range w.types {
		for level := range levels {
			p, class := dispatcherd.Priority(level%priorities), dispatcherd.DurationClass(level/priorities)
			lane := Lane{Type: t, Priority: p, Class: class}
			want, exists := heads[lane]
			if waits := w.b.types[t].classes[class].waiting&lane.bit() != 0; exists != waits {
				require.Equal(w.t, exists, waits, "lane %v, expected head %v", lane, want)
			}
			if waits := w.b.types[t].classes[class].waiting != 0; waits != (w.b.types[t].waiting&(1<<class) != 0) {
				require.Fail(w.t, "marks of classes", "lane %v", lane)
			}
			if exists {
				got, bound, ok := w.b.Head(lane)
				require.True(w.t, ok)
				require.False(w.t, bound, "everything was read")
				require.Equal(w.t, want, got)
			}
			if !w.b.Shared(t) {
				continue
			}
			for _, k := range w.b.State(Lane{t, p, true, class}).Keys {
				require.True(w.t, w.rows[k.ID].pending)
				require.True(w.t, w.b.LaneOf(lane, k.ID).NonLocal)
				require.LessOrEqual(w.t, k.RunAt, w.dbNow()-OwnerGrace.Microseconds())
			}
		}
	}
}

// TestHeadsAreThoseOfTheTableAsOfTheLastRead compares all heads with those of a
// naive table. It makes random changes, each followed by a poll: with full and
// backfill scans, short answers, changing shares, and a database clock that
// jumps.
func TestHeadsAreThoseOfTheTableAsOfTheLastRead(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		w := newWorld(t, uint64(seed))
		for range 300 {
			w.b.SetSlow(seed%3 == 0)
			w.now++
			if w.rng.IntN(3) == 0 {
				w.now += 40
			}
			w.b.Advance(w.now)
			switch w.rng.IntN(12) {
			case 0, 1, 2, 3:
				w.insert()
			case 4, 5, 6:
				w.take()
			case 7, 8:
				w.finish(ways)
			case 9:
				w.changeSlots()
			case 10:
				if seed%2 == 0 {
					w.changeShare()
				}
			case 11:
				if w.rng.IntN(5) == 0 {
					w.offset += int64(w.rng.IntN(100)-50) * 1000
				}
			}
			w.settle()
			w.checkHeads()
		}
		require.Positive(t, w.fed)
		require.Zero(t, w.lost, "seed %d", seed)
	}
}

// step advances the time and performs a random action. Reads continue
// meanwhile, and many read the table long before they are answered.
func (w *world) step(inserting bool) {
	known := w.candidates()
	w.act(inserting)
	w.send()
	w.checkKnown(known)
}

// candidates returns the local candidates by type and priority.
func (w *world) candidates() map[Lane][]contract.Key {
	all := map[Lane][]contract.Key{}
	for _, t := range w.types {
		for p := range dispatcherd.Priority(3) {
			for class := range dispatcherd.DurationClass(dispatcherd.DurationClasses) {
				r := Lane{Type: t, Priority: p, Class: class}
				all[r] = slices.Clone(w.b.State(r).Keys)
			}
		}
	}
	return all
}

// checkKnown requires that no earlier candidate is forgotten: it is still a
// candidate, or the head of its lane is an upper bound that ranks before it. A scan that
// read the table while another dispatcher had a row forgets the row.
func (w *world) checkKnown(known map[Lane][]contract.Key) {
	for lane, keys := range known {
		s := w.b.State(lane)
		for _, k := range keys {
			r := w.rows[k.ID]
			if r == nil || !r.pending || r.theirs || r.key != k || w.hands[k.ID] != nil || k.RunAt > w.dbNow() || w.b.LaneOf(lane, k.ID) != lane {
				continue
			}
			switch {
			case len(s.Keys) > 0:
				require.False(w.t, k.Less(s.Keys[0]), "lane %v: %v is overtaken by %v", lane, k, s.Keys[0])
			default:
				require.True(w.t, s.More && s.Cursor.Less(k), "lane %v: %v is forgotten", lane, k)
			}
		}
	}
}

func (w *world) act(inserting bool) {
	w.now++
	if w.rng.IntN(4) == 0 {
		w.now += 15
	}
	w.b.Advance(w.now)
	switch k := w.rng.IntN(20); {
	case k < 4 && inserting:
		w.insert()
	case k < 9:
		w.take()
	case k < 15:
		w.finish(2 * ways)
	case k == 15:
		w.changeSlots()
	case k == 16 && w.rng.IntN(10) == 0 && inserting:
		w.changeShare()
	case k == 17 && w.rng.IntN(20) == 0:
		w.b.ListenerChanged(w.rng.IntN(2) == 0)
	case k == 18 && w.rng.IntN(20) == 0:
		w.b.SetSlow(w.rng.IntN(2) == 0)
	case k == 19 && w.rng.IntN(20) == 0 && inserting:
		w.offset -= int64(w.rng.IntN(30)) * 1000
	}
	for i := range w.reads {
		if r := w.reads[i]; !r.done && w.rng.IntN(2) == 0 {
			r.done, r.result = true, w.fetch(r.request)
		}
	}
	if n := len(w.reads); n > 0 && w.rng.IntN(w.latency) == 0 {
		v := contract.OK
		if w.rng.IntN(15) == 0 {
			v = contract.Refused
		}
		w.answer(w.rng.IntN(n), v)
	}
}

// checkWake requires that the backlog wakes for its next read if no read is in
// flight.
func (w *world) checkWake() {
	wake := w.b.Wake(false)
	if len(w.reads) > 0 {
		return
	}
	require.LessOrEqual(w.t, wake, w.now.After(maxBackfillPause), "the backlog must wake for its next read")
	require.Greater(w.t, wake, w.now-1)
}

// TestNoRowIsLost takes rows while reads are answered late or refused and
// attempts end in every way. In the end every row is taken, with or without
// notifications. Without another dispatcher only pending rows are offered.
func TestNoRowIsLost(t *testing.T) {
	seeds := 48
	if testing.Short() {
		seeds = 12
	}
	for seed := range seeds {
		w := newWorld(t, uint64(seed)+1000)
		w.silent = seed%4 == 0
		w.latency = 2 + seed%5*8
		w.b.SetSlow(seed%3 == 0)
		w.b.ListenerChanged(!w.silent)
		for range 1500 {
			w.step(true)
			w.checkWake()
		}
		for steps := 0; len(w.rows) > 0; steps++ {
			require.Less(t, steps, 60_000, "seed %d: rows are never found: %v", seed, w.rows)
			w.step(false)
		}
		require.Positive(t, w.fed)
		require.Zero(t, w.lost, "seed %d: a row was offered that was not pending", seed)
	}
}

// TestLostClaimsDelayNoRow takes rows while another dispatcher takes rows at
// random and releases some of them.
func TestLostClaimsDelayNoRow(t *testing.T) {
	lost := 0
	for seed := range 16 {
		w := newWorld(t, uint64(seed)+5000)
		var theirs []*row
		for turn := range 1500 {
			w.step(true)
			all := w.sortedRows()
			if len(all) > 0 && turn%3 == 0 {
				if r := all[w.rng.IntN(len(all))]; r.pending {
					r.pending, r.theirs = false, true
					theirs = append(theirs, r)
				}
			}
			if len(theirs) > 0 && turn%4 == 0 {
				r := theirs[0]
				theirs = slices.Delete(theirs, 0, 1)
				if r.pending, r.theirs = w.rng.IntN(3) == 0, len(w.reads) > 0; !r.pending {
					delete(w.rows, r.key.ID)
				}
			}
		}
		for _, r := range theirs {
			r.pending, r.theirs = true, len(w.reads) > 0
		}
		for steps := 0; len(w.rows) > 0; steps++ {
			require.Less(t, steps, 60_000, "seed %d: rows are never found", seed)
			w.step(false)
		}
		lost += w.lost
	}
	require.Positive(t, lost)
}
