package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/event"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/scoring"
)

// durationWindow is the duration window of worlds with expected durations. Executions take from milliseconds to seconds.
const durationWindow = time.Second

// expected are the expected durations of such worlds: none, and of four classes.
var expected = [...]time.Duration{0, time.Millisecond, 20 * time.Second, 5 * time.Minute, 20 * time.Hour}

// weights returns the weights of all dispatchers.
func (w *world) weights() scoring.Weights {
	own := weights
	if w.faults&Expected != 0 {
		own.DurationWindow = durationWindow
	}
	return own
}

// pickExpected decides whether jobs have expected durations. They have a random source of their own, so that existing seeds
// keep their worlds.
func (w *world) pickExpected() {
	w.durations.pcg = *rand.NewPCG(w.opt.Seed, 0x65787065)
	w.learned = map[learnedBy]contract.Durations{}
	if !w.opt.Every && w.durations.below(2) == 0 {
		w.faults &^= Expected
	}
}

// expects returns the expected duration of a new job.
func (w *world) expects() time.Duration {
	if w.faults&Expected == 0 {
		return 0
	}
	return expected[w.durations.below(int64(len(expected)))]
}

// learnedBy is the key of the table durations: a dispatcher, under its name, and what it has learned of.
type learnedBy struct {
	host  int16
	typ   string
	class dispatcherd.DurationClass
}

// shareDurations writes what the Core has learned of durations and reads what all dispatchers have, after each heartbeat.
func (h *host) shareDurations() {
	w := h.world
	if w.faults&Expected == 0 {
		return
	}
	for _, d := range h.core.Durations().Changed() {
		w.learned[learnedBy{h.id, d.Type, d.Class}] = d
	}
	var read event.DurationsRead
	others := map[learnedBy]contract.Durations{}
	for by, d := range w.learned { // order-free: sums, which are sorted below
		if by.host == h.id {
			read.Own = append(read.Own, d)
			continue
		}
		by.host = 0
		d.N, d.S = d.N+others[by].N, d.S+others[by].S
		others[by] = d
	}
	for _, d := range others { // order-free: sorted below
		read.Others = append(read.Others, d)
	}
	for _, list := range [][]contract.Durations{read.Own, read.Others} {
		slices.SortFunc(list, func(a, b contract.Durations) int {
			return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Class, b.Class))
		})
	}
	if h.shared {
		read.Own = nil
	}
	h.shared = true
	w.stats.Shared += len(read.Others)
	h.step(read)
}
