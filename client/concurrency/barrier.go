package concurrency

import (
	"context"
	"fmt"
	"sync"
)

// Barrier blocks a fixed number of parties until all of them have arrived. Then all proceed, and
// the barrier serves the next generation (article 4, "Barrier"). A party whose context ends takes its
// arrival back, so the others wait until as many parties have arrived as if it had never come. Use
// [NewBarrier].
type Barrier struct {
	parties    int
	mu         sync.Mutex
	arrived    int           // in the current generation, less than parties
	generation uint64        // number of generations that are complete
	complete   chan struct{} // closed when the current generation is complete
}

// NewBarrier returns a barrier for a number of parties, at least 1.
func NewBarrier(parties int) *Barrier {
	if parties < 1 {
		panic(fmt.Sprintf("client: a barrier of %d parties never opens", parties))
	}
	return &Barrier{parties: parties, complete: make(chan struct{})}
}

// Wait arrives and waits until all parties of this generation have arrived. It returns the number of
// the generation, from 0. For the party that arrived last it returns true, without waiting: exactly
// one party of a generation may do what is to be done once. If ctx ends first, Wait returns its
// error, and the party has not arrived. If the last party arrives in the same moment, the generation
// is complete for all its parties, and Wait returns no error.
func (b *Barrier) Wait(ctx context.Context) (generation uint64, last bool, err error) {
	if ctx.Err() != nil {
		return 0, false, ctx.Err()
	}
	b.mu.Lock()
	generation = b.generation
	b.arrived++
	if b.arrived == b.parties {
		b.arrived = 0
		b.generation++
		close(b.complete)
		b.complete = make(chan struct{})
		b.mu.Unlock()
		return generation, true, nil
	}
	complete := b.complete
	b.mu.Unlock()
	select {
	case <-complete:
		return generation, false, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.generation != generation {
		return generation, false, nil // the other parties have proceeded, counting this one
	}
	b.arrived--
	return 0, false, ctx.Err()
}
