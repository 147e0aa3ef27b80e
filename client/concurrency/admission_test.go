package concurrency

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// admission is a Semaphore or an RWLock. For an RWLock the weight of a reader is 1 and that of a
// writer 2.
type admission struct {
	most    int // the weights are 1 to most
	acquire func(ctx context.Context, weight int) error
	try     func(weight int) bool
	release func(weight int)
}

type arrival struct {
	id, weight int
	cancel     context.CancelFunc
}

// admissionHistory drives an admission and a naive queue by the same random operations. The queue
// admits its first calls while they fit beside the held ones.
type admissionHistory struct {
	t           *testing.T
	rng         *rand.Rand
	real        admission
	fits        func(held []arrival, weight int) bool
	held, queue []arrival
	returned    chan returned
	got, want   map[int]error // by id
	counts      map[string]int
}

type returned struct {
	id  int
	err error
}

// compareWithModel runs random histories, and compares after each operation which calls have
// returned and how.
func compareWithModel(t *testing.T, create func() admission, fits func(held []arrival, weight int) bool) {
	counts := map[string]int{}
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			h := &admissionHistory{
				t: t, rng: rand.New(rand.NewPCG(seed, 1)), real: create(), fits: fits, counts: counts,
				returned: make(chan returned, 1000), got: map[int]error{}, want: map[int]error{},
			}
			for id := range 200 {
				h.step(id)
				for len(h.queue) > 0 && fits(h.held, h.queue[0].weight) {
					h.held = append(h.held, h.queue[0])
					h.want[h.queue[0].id] = nil
					h.queue = h.queue[1:]
				}
				synctest.Wait()
				for len(h.returned) > 0 {
					r := <-h.returned
					h.got[r.id] = r.err
				}
				require.Equal(t, h.want, h.got, "seed %d, operation %d", seed, id)
			}
			for _, q := range h.queue {
				q.cancel()
			}
		})
	}
	for _, operation := range []string{"acquire", "taken", "not taken", "release", "cancel"} {
		require.Greater(t, counts[operation], 100, operation)
	}
}

func (h *admissionHistory) step(id int) {
	weight := 1 + h.rng.IntN(h.real.most)
	switch op := h.rng.IntN(10); {
	case op < 4:
		ctx, cancel := context.WithCancel(h.t.Context())
		h.queue = append(h.queue, arrival{id, weight, cancel})
		go func() { h.returned <- returned{id, h.real.acquire(ctx, weight)} }()
		h.counts["acquire"]++
	case op < 5:
		want := len(h.queue) == 0 && h.fits(h.held, weight)
		require.Equal(h.t, want, h.real.try(weight))
		if !want {
			h.counts["not taken"]++
			return
		}
		h.held = append(h.held, arrival{id, weight, func() {}})
		h.counts["taken"]++
	case op < 8 && len(h.held) > 0:
		i := h.rng.IntN(len(h.held))
		h.real.release(h.held[i].weight)
		h.held = slices.Delete(h.held, i, i+1)
		h.counts["release"]++
	case len(h.queue) > 0:
		i := h.rng.IntN(len(h.queue))
		h.queue[i].cancel()
		h.want[h.queue[i].id] = context.Canceled
		h.queue = slices.Delete(h.queue, i, i+1)
		h.counts["cancel"]++
	}
}

// A call whose context ends at the moment in which it is admitted either holds what it asked for
// or passes it on.
func requireNothingIsLostByCancelDuringRelease(t *testing.T, create func() admission) {
	for trial := range 300 {
		synctest.Test(t, func(t *testing.T) {
			a := create()
			require.True(t, a.try(a.most))
			ctx, cancel := context.WithCancel(t.Context())
			first, second := make(chan error, 1), make(chan error, 1)
			go func() { first <- a.acquire(ctx, a.most) }()
			synctest.Wait()
			go func() { second <- a.acquire(t.Context(), 1) }()
			synctest.Wait()
			if trial%2 == 0 {
				cancel() // mostly the first call notices it after the release
			} else {
				go cancel()
			}
			a.release(a.most)
			if err := <-first; err == nil {
				a.release(a.most)
			} else if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			require.NoError(t, <-second)
			a.release(1)
			require.True(t, a.try(a.most))
		})
	}
}
