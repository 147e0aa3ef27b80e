package quota

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUserWithoutAFreePlaceWaitsAndOthersDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPlaces(2)
		enter := func(user string) func() {
			leave, err := p.Enter(t.Context(), user)
			require.NoError(t, err)
			return leave
		}
		first, second := enter("a"), enter("a")
		var third atomic.Pointer[func()]
		go func() { third.Store(new(enter("a"))) }()
		synctest.Wait()
		require.Nil(t, third.Load())
		require.Equal(t, 3, p.Largest())
		enter("b")()
		first()
		synctest.Wait()
		(*third.Load())()
		second()
		require.Zero(t, p.Largest())
		require.Empty(t, p.users)
	})
}

func TestWaitForAPlaceEndsWithItsContext(t *testing.T) {
	p := NewPlaces(0) // at least one
	leave, err := p.Enter(t.Context(), "a")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Enter(ctx, "a")
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, p.Largest())
	leave()
	require.Empty(t, p.users)
}

// While the places of a user are taken, its small texts and all texts of other users are parsed.
func TestLargeTextsOfAUserAreParsedOnHalfOfTheProcessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		each := Processors.each
		require.Equal(t, max(1, runtime.GOMAXPROCS(0)/2), each)
		goOn := make(chan bool)
		var parsing, parsed atomic.Int64
		for range each + 1 {
			go Parse("a", freeParse+1, func() {
				parsing.Add(1)
				<-goOn
				parsed.Add(1)
			})
		}
		synctest.Wait()
		require.EqualValues(t, each, parsing.Load())
		Parse("a", freeParse, func() { parsed.Add(1) })
		Parse("b", 1<<20, func() { parsed.Add(1) })
		require.EqualValues(t, 2, parsed.Load())
		close(goOn)
		synctest.Wait()
		require.EqualValues(t, each+3, parsed.Load())
	})
}

func TestContextNamesItsUser(t *testing.T) {
	require.Empty(t, UserOf(t.Context()))
	require.Equal(t, "uid 7", UserOf(WithUser(t.Context(), "uid 7")))
}

// With one of two processors for parsing alone, Postgres and the other users would share what remains.
func TestProcessorRestsAfterALongTextAsLongAsItWasParsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		Processors = NewPlaces(1)
		defer func() { Processors = NewPlaces(runtime.GOMAXPROCS(0) / 2) }()
		parse := func() { time.Sleep(10 * time.Millisecond) }
		waits := func() time.Duration {
			begun := time.Now()
			Parse("a", freeParse+1, func() {})
			return time.Since(begun)
		}
		Parse("a", longParse, parse)
		require.Zero(t, waits())
		Parse("a", longParse+1, parse)
		Parse("b", longParse+1, func() {})
		require.Equal(t, 10*time.Millisecond, waits())
	})
}

func TestConnectionsOfAUserRestOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { Rest("a", 2) })
		}
		Rest("b", 1)
		require.Equal(t, restForOne, time.Since(begun))
		all.Wait()
		require.Equal(t, 40*restForOne, time.Since(begun))
		begun = time.Now()
		Rest("a", 1000)
		require.Equal(t, restAtMost, time.Since(begun))
		leave, err := Refusals.Enter(t.Context(), "a")
		require.NoError(t, err)
		defer leave()
		begun = time.Now()
		Rest("a", 1)
		require.Equal(t, restWait, time.Since(begun))
	})
}
