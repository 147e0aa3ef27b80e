package quota

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"

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
		each := Processors.Each()
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
