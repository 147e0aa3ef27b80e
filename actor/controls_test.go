package actor

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// workerOf names the worker of a session.
func workerOf(s dispatcherd.SessionID) string { return fmt.Sprintf("w%d", s) }

// paused reports whether a job must not start because its type is paused.
func (ref *reference) isPaused(j *referenceJob) bool {
	p := ref.paused[j.typ]
	return p != nil && (j.id < 0 && p.Requests() || j.id > 0 && p.Queued())
}

// randomControls pauses some types and drains some workers, and ends all earlier pauses and drains. Some pauses have an end, before which
// no later step of the history begins.
func (h *history) randomControls() Event {
	ev := Controlled{Version: h.core.controls.Version + 1, Clock: time.UnixMicro(h.table.now)}
	ref := h.reference
	ref.paused, ref.drained = map[string]*contract.Pause{}, map[dispatcherd.SessionID]bool{}
	for _, typ := range referenceTypes {
		if h.rng.IntN(4) > 0 {
			continue
		}
		what := []string{contract.PauseAll, contract.PauseQueued, contract.PauseRequests}[h.rng.IntN(3)]
		p := contract.Pause{Type: typ, What: what}
		if h.rng.IntN(3) == 0 {
			p.Until = new(ev.Clock.Add(1000 * time.Hour)) // the end is far away
		}
		ev.Pauses = append(ev.Pauses, p)
		ref.paused[typ] = &p
	}
	for _, s := range h.sessions {
		if h.rng.IntN(4) == 0 {
			ev.Drains = append(ev.Drains, contract.Drain{Worker: workerOf(s)})
			ref.drained[s] = true
		}
	}
	for id, s := range ref.slots { // order-free: each slot by itself
		s.draining = ref.drained[h.owner[id]]
	}
	maps.DeleteFunc(ref.waiting, func(_ dispatcherd.JobID, j *referenceJob) bool { return ref.drained[j.pin] })
	h.note("controls %+v", ev)
	return ev
}

// control pauses random types and drains the only worker, or some of its types, at random.
func (w *randomWalk) control() {
	ev := Controlled{Version: int64(w.turns), Clock: time.UnixMicro(int64(w.now) * 1000)}
	for _, typ := range walkTypes {
		switch w.rng.IntN(6) {
		case 0:
			ev.Pauses = append(ev.Pauses, contract.Pause{Type: typ, What: contract.PauseAll, Until: new(ev.Clock.Add(100 * time.Millisecond))})
		case 1:
			ev.Pauses = append(ev.Pauses, contract.Pause{Type: typ, What: contract.PauseQueued})
		}
	}
	d := contract.Drain{Worker: "w"}
	switch w.rng.IntN(6) {
	case 0:
		ev.Drains = append(ev.Drains, d)
	case 1, 2:
		d.Types = []string{walkTypes[w.rng.IntN(len(walkTypes))], walkTypes[w.rng.IntN(len(walkTypes))]}
		ev.Drains = append(ev.Drains, d)
	}
	w.feed(ev)
}

// While anything is paused or drained, no job of a paused type and no type of a drained worker is sent to a worker.
func TestRandomControlsAreKept(t *testing.T) {
	for seed := range uint64(20) {
		w := newRandomWalk(seed, nil)
		w.watch = func(_ Event, fx []effect.Effect) {
			for _, e := range fx {
				send, ok := e.(*effect.Send)
				if !ok {
					continue
				}
				p := w.core.controls.paused[send.Type]
				require.False(t, send.Mode == dispatcherd.Queued && p.rows() || send.Mode == dispatcherd.OnDemand && p.requests(), "seed %d", seed)
				for _, d := range w.core.controls.Drains {
					require.NotNil(t, d.Types, "seed %d: a drained worker has got a job", seed)
					require.NotContains(t, d.Types, send.Type, "seed %d", seed)
				}
			}
		}
		for range 4_000 {
			if w.rng.IntN(30) == 0 {
				w.control()
			}
			w.turn()
			require.NoError(t, w.core.Check(), "seed %d", seed)
		}
	}
}
