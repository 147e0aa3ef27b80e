package concurrency

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// passage is what Wait of a Barrier returned.
type passage struct {
	generation uint64
	last       bool
	err        error
	at         time.Duration
}

// Article 4, "Barrier": it blocks N operations until all of them arrive. Then all proceed at the same
// time, when the slowest has arrived.
func TestBarrierOpensForAllWhenTheSlowestArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, began, passages := NewBarrier(3), time.Now(), make(chan passage, 3)
		for n := range 3 {
			go func() {
				time.Sleep(time.Duration(n+1) * time.Second)
				generation, last, err := b.Wait(t.Context())
				passages <- passage{generation, last, err, time.Since(began)}
			}()
		}
		lasts := 0
		for range 3 {
			p := <-passages
			if p.last {
				lasts++
			}
			p.last = false
			require.Equal(t, passage{at: 3 * time.Second}, p)
		}
		require.Equal(t, 1, lasts)
	})
}

// Article 4: the party that arrives last does not wait.
func TestLastPartyOfABarrierDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, first := NewBarrier(2), make(chan bool, 1)
		go func() {
			_, last, _ := b.Wait(t.Context())
			first <- last
		}()
		synctest.Wait()
		_, last, err := b.Wait(t.Context())
		require.NoError(t, err)
		require.True(t, last)
		require.False(t, <-first)
		require.Panics(t, func() { NewBarrier(0) })
	})
}

// Article 4: the barrier is reset for reuse. A fast party that arrives again belongs to the next
// generation, even before the others of its first generation have proceeded.
func TestBarrierIsReusedWithANewGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const parties, rounds = 4, 50
		b, passages := NewBarrier(parties), make(chan passage, parties*rounds)
		for range parties {
			go func() {
				for range rounds {
					generation, last, err := b.Wait(t.Context())
					passages <- passage{generation: generation, last: last, err: err}
				}
			}()
		}
		synctest.Wait()
		seen, lasts := map[uint64]int{}, map[uint64]int{}
		for range parties * rounds {
			p := <-passages
			require.NoError(t, p.err)
			seen[p.generation]++
			if p.last {
				lasts[p.generation]++
			}
		}
		for g := range uint64(rounds) {
			require.Equal(t, parties, seen[g])
			require.Equal(t, 1, lasts[g])
		}
	})
}

// Article 4, "CancellablePromise", for a party that waits: its arrival is taken back, and the others
// wait for another party.
func TestCancelledPartyTakesItsArrivalBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx, passages := NewBarrier(3), t.Context(), make(chan passage, 3)
		wait := func(ctx context.Context) {
			generation, last, err := b.Wait(ctx)
			passages <- passage{generation: generation, last: last, err: err}
		}
		leaving, cancel := context.WithCancel(ctx)
		go wait(ctx)
		go wait(leaving)
		synctest.Wait()
		cancel()
		require.Equal(t, passage{err: context.Canceled}, <-passages)
		go wait(ctx)
		synctest.Wait()
		_, _, err := b.Wait(leaving)
		require.ErrorIs(t, err, context.Canceled, "a party whose context has ended does not arrive")
		synctest.Wait()
		require.Empty(t, passages, "two of three have arrived")
		generation, last, err := b.Wait(ctx)
		require.NoError(t, err)
		require.True(t, last)
		require.Zero(t, generation)
		require.Equal(t, passage{}, <-passages)
		require.Equal(t, passage{}, <-passages)
	})
}

// If a party is cancelled while the last one arrives, either the generation is complete for both, or
// the last one waits.
func TestCancelDuringTheLastArrivalIsConsistent(t *testing.T) {
	left := 0
	for trial := range 2000 {
		synctest.Test(t, func(t *testing.T) {
			b, first, second := NewBarrier(2), make(chan error, 1), make(chan bool, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				_, _, err := b.Wait(ctx)
				first <- err
			}()
			synctest.Wait()
			arrive := func() {
				_, last, err := b.Wait(t.Context())
				second <- last && err == nil
			}
			if trial%2 == 0 {
				cancel()
				go arrive() // mostly runs before the cancelled party does
			} else {
				go arrive()
				cancel()
			}
			synctest.Wait()
			if err := <-first; err == nil {
				require.True(t, <-second)
				return
			}
			left++
			require.Empty(t, second)
			_, last, err := b.Wait(t.Context())
			require.True(t, last && err == nil)
			require.False(t, <-second)
		})
	}
	require.NotContains(t, []int{0, 2000}, left, "both outcomes occur")
}

// The reference model is the list of the parties that wait.
func TestBarrierEqualsTheReferenceModel(t *testing.T) {
	type party struct {
		id     int
		cancel context.CancelFunc
	}
	opened, left := 0, 0
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			parties := 1 + rng.IntN(5)
			b := NewBarrier(parties)
			type named struct {
				id int
				passage
			}
			passages := make(chan named, 1000)
			var waiting []party
			var generation uint64
			got, want := map[int]passage{}, map[int]passage{}
			for id := range 200 {
				switch i := rng.IntN(3 * parties); {
				case i < len(waiting): // cancel one
					waiting[i].cancel()
					want[waiting[i].id] = passage{err: context.Canceled}
					waiting = slices.Delete(waiting, i, i+1)
					left++
				default: // arrive
					ctx, cancel := context.WithCancel(t.Context())
					waiting = append(waiting, party{id, cancel})
					go func() {
						g, last, err := b.Wait(ctx)
						passages <- named{id, passage{generation: g, last: last, err: err}}
					}()
				}
				if len(waiting) == parties {
					for i, p := range waiting {
						want[p.id] = passage{generation: generation, last: i == parties-1}
					}
					generation, waiting = generation+1, nil
					opened++
				}
				synctest.Wait()
				for len(passages) > 0 {
					p := <-passages
					got[p.id] = p.passage
				}
				require.Equal(t, want, got, "seed %d, operation %d", seed, id)
			}
			for _, p := range waiting {
				p.cancel()
			}
		})
	}
	require.Greater(t, min(opened, left), 1000)
}
