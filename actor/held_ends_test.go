package actor

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/timing"
)

// naiveEnd is an end of the reference: a list that is searched completely.
type naiveEnd struct {
	id     dispatcherd.JobID
	due    timing.Instant
	tries  int
	again  bool
	reason string
	sent   bool
}

type naiveHeld []*naiveEnd

func (n *naiveHeld) find(id dispatcherd.JobID) *naiveEnd {
	for _, e := range *n {
		if e.id == id {
			return e
		}
	}
	return nil
}

func (n *naiveHeld) hold(id dispatcherd.JobID, reason string, again bool, now timing.Instant, rng *rand.Rand) {
	e := n.find(id)
	if e == nil {
		e = &naiveEnd{id: id}
		*n = append(*n, e)
	}
	d := int64(1000) // between half and all of 1 s, 2 s, 4 s … 1 min
	for range e.tries {
		d = min(2*d, 60_000)
	}
	e.due, e.reason, e.again, e.sent = now+timing.Instant(d/2+rng.Int64N(d/2+1)), reason, again, false
	e.tries++
}

// take returns the first 16 ends that are due, sorted by id, and whether one of them
// was sent in a statement with an unknown outcome.
func (n *naiveHeld) take(now timing.Instant) (ids []dispatcherd.JobID, again bool) {
	var due []*naiveEnd
	for _, e := range *n {
		if !e.sent && e.due <= now {
			due = append(due, e)
		}
	}
	slices.SortFunc(due, func(a, b *naiveEnd) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.id, b.id)) })
	for _, e := range due[:min(16, len(due))] {
		e.sent = true
		ids, again = append(ids, e.id), again || e.again
	}
	slices.Sort(ids)
	return ids, again
}

// wake returns the first due of the ends that wait, or Never if it has passed.
func (n *naiveHeld) wake(now timing.Instant) timing.Instant {
	first := timing.Never
	for _, e := range *n {
		if !e.sent {
			first = min(first, e.due)
		}
	}
	if first <= now {
		return timing.Never
	}
	return first
}

func TestEndsEqualAList(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	ours, theirs := rand.New(rand.NewPCG(3, 4)), rand.New(rand.NewPCG(3, 4))
	var ends heldEnds
	var want naiveHeld
	var sent *contract.FinishRequest
	now, next := timing.Instant(0), dispatcherd.JobID(0)
	hold := func(id dispatcherd.JobID, reason string) {
		again := random.IntN(8) == 0
		ends.hold(&contract.Finish{ID: id}, reason, again, now, ours)
		want.hold(id, reason, again, now, theirs)
	}
	for step := range 6_000 {
		now += timing.Instant(random.IntN(500))
		if next++; len(want) < 60 {
			hold(next, strconv.Itoa(step))
		}
		switch {
		case sent == nil:
			sent = requireSameFinish(t, &ends, &want, now)
		case random.IntN(3) == 0: // the answer: some ends are recorded, others are held again
			require.Same(t, sent, ends.sent)
			ends.sent = nil
			for _, f := range sent.Items {
				if random.IntN(4) > 0 {
					hold(f.ID, strconv.Itoa(step))
					continue
				}
				delete(ends.why, f.ID)
				want = slices.DeleteFunc(want, func(e *naiveEnd) bool { return e.id == f.ID })
			}
			sent = nil
		}
		requireSame(t, &ends, want, now, sent != nil)
	}
}

// requireSameFinish takes a finish from both implementations and compares them.
func requireSameFinish(t *testing.T, ends *heldEnds, want *naiveHeld, now timing.Instant) *contract.FinishRequest {
	t.Helper()
	r := ends.take(now)
	ids, again := want.take(now)
	if r == nil {
		require.Empty(t, ids)
		return nil
	}
	var have []dispatcherd.JobID
	for _, f := range r.Items {
		have = append(have, f.ID)
	}
	require.Equal(t, ids, have)
	require.Equal(t, again, r.Again)
	return r
}

func requireSame(t *testing.T, ends *heldEnds, want naiveHeld, now timing.Instant, sent bool) {
	t.Helper()
	require.Len(t, ends.why, len(want))
	for _, e := range want {
		require.Contains(t, ends.why, e.id)
		require.Equal(t, e.reason, ends.why[e.id].reason)
	}
	wake := want.wake(now)
	if sent {
		wake = timing.Never
	}
	require.Equal(t, wake, ends.wake(now))
}

// A finish contains at most heldBatch of the held ends, and only one such finish is in
// flight, so that a connection remains for other ends.
func TestHeldEndsAreSentInSmallBatches(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var h heldEnds
	for id := range 40 {
		h.hold(&contract.Finish{ID: dispatcherd.JobID(id + 1)}, "refused", false, 0, rng)
	}
	require.Nil(t, h.take(499))
	for _, n := range []int{heldBatch, heldBatch, 40 - 2*heldBatch} {
		r := h.take(1000)
		require.Len(t, r.Items, n)
		require.Nil(t, h.take(1000), "one finish at a time")
		require.Same(t, r, h.sent)
		h.sent = nil
	}
	require.Nil(t, h.take(1000))
}
