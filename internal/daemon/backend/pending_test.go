package backend

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
)

// portions returns the types of a table in portions of two, and then keyed ones in one portion. Each portion takes a second.
func portions(fail *bool, keyed []contract.PendingType, table ...contract.PendingType) CountPortion {
	return func(_ context.Context, from contract.PendingCursor, _ []string) (
		part []contract.PendingType, next contract.PendingCursor, err error,
	) {
		<-time.After(time.Second) // in a synctest bubble
		if *fail {
			return nil, next, errors.New("no answer")
		}
		if from.Keyed {
			return keyed, next, nil
		}
		for _, t := range table {
			if t.Type > from.Type {
				part = append(part, t)
			}
		}
		if part = part[:min(2, len(part))]; len(part) < 2 {
			return part, contract.PendingCursor{Keyed: true}, nil
		}
		return part, contract.PendingCursor{Type: part[1].Type}, nil
	}
}

func TestCountOfPendingRowsTakesAFiftiethOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := false
		p := NewPending(
			portions(&fail, nil, contract.PendingType{Type: "a", Rows: 1}, contract.PendingType{Type: "b", Rows: 2},
				contract.PendingType{Type: "c", Rows: 3}),
			0,
			10,
		)
		require.Zero(t, p.Continue(t.Context()), "the second portion follows at once")
		require.Zero(t, p.Continue(t.Context()), "then the portion of jobs with keys")
		require.Empty(t, p.Latest().Types, "the first count is not complete")
		require.Nil(t, p.Latest().absent())
		require.Equal(t, 150*time.Second, p.Continue(t.Context()))
		count := p.Latest()
		require.Len(t, count.Types, 3)
		require.Zero(t, *count.absent())
		require.Equal(t, 3*time.Second, time.Since(count.At))

		fail = true
		require.Equal(t, 50*time.Second, p.Continue(t.Context()))
		require.Equal(t, count, p.Latest(), "a count that fails leaves the earlier one")
		require.Equal(t, 4*time.Second, time.Since(p.Latest().At), "its age grows")
		fail = false
		require.Zero(t, p.Continue(t.Context()), "the next count begins with the first type")
		require.Zero(t, p.Continue(t.Context()))
		p.Continue(t.Context())
		require.Len(t, p.Latest().Types, 3)
		require.Equal(t, 3*time.Second, time.Since(p.Latest().At))
	})
}

// Rows of a type that wait for permits are added to those of its lanes, up to the limit.
func TestCountOfPendingRowsAddsThoseWithKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := []contract.PendingType{{Type: "a", Rows: 9_000, Oldest: 3}, {Type: "b", Rows: 9_000}, {Type: "c", Rows: 5}}
		keyed := []contract.PendingType{
			{Type: "b", Rows: 1_001, Keyed: 4},
			{Type: "a", Rows: 1_000, Keyed: 5},
			{Type: "d", Rows: 1},
			{Type: "d", Rows: 1, Keyed: 1},
		}
		p := NewPending(portions(new(bool), keyed, table...), time.Second, 9)
		for p.Continue(t.Context()) == 0 {
		}
		require.Equal(t,
			[]contract.PendingType{
				{Type: "a", Rows: 10_000, Oldest: 3, Keyed: 5},
				{Type: "b", Rows: 10_001, Keyed: 4},
				{Type: "c", Rows: 5},
				{Type: "d", Rows: 2, Keyed: 1},
			},
			p.Latest().Types,
		)
		require.Equal(t, []string{"b"}, p.full())
	})
}

// The number of classes in a count is bounded. Then a type that is missing may have rows.
func TestCountOfPendingRowsEndsAtTheLimitOfClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPending(func(_ context.Context, from contract.PendingCursor, _ []string) ([]contract.PendingType, contract.PendingCursor, error) {
			return []contract.PendingType{{Type: "a", Rows: 1}}, contract.PendingCursor{Keyed: true, Classes: from.Classes + maxCountClasses/4}, nil
		}, time.Second, 9)
		for range 3 {
			require.Zero(t, p.Continue(t.Context()))
		}
		require.NotZero(t, p.Continue(t.Context()))
		require.Equal(t, []contract.PendingType{{Type: "a", Rows: 4}}, p.Latest().Types)
		require.Nil(t, p.Latest().absent())
	})
}

func TestPauseBetweenCountsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table []contract.PendingType
		for i := range 20 {
			table = append(table, contract.PendingType{Type: fmt.Sprintf("t%02d", i)})
		}
		p := NewPending(portions(new(bool), nil, table...), time.Second, 1000)
		for range 11 {
			require.Zero(t, p.Continue(t.Context()))
		}
		require.Equal(t, maxCountPause, p.Continue(t.Context()))
		var types []contract.PendingType
		quick := NewPending(
			func(context.Context, contract.PendingCursor, []string) (_ []contract.PendingType, next contract.PendingCursor, err error) {
				return types, next, nil
			},
			time.Second, 1000,
		)
		require.Equal(t, idleCounts*quick.interval, quick.Continue(t.Context()), "no row is pending")
		types = []contract.PendingType{{Type: "x", Rows: 1}}
		require.Equal(t, quick.interval, quick.Continue(t.Context()))
	})
}

// A count contains a bounded number of types. It does not report 0 rows for a type that it
// left out.
func TestCountOfPendingRowsEndsAtTheLimitOfTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := []contract.PendingType{{Type: "a"}, {Type: "b"}, {Type: "c"}, {Type: "d"}, {Type: "e"}, {Type: "f"}}
		p := NewPending(portions(new(bool), []contract.PendingType{{Type: "b", Rows: 2}, {Type: "z", Rows: 2}}, table...), time.Second, 3)
		require.Zero(t, p.Continue(t.Context()))
		require.Zero(t, p.Continue(t.Context()))
		require.NotZero(t, p.Continue(t.Context()), "the types that follow are not read")
		require.Equal(t, []contract.PendingType{{Type: "a"}, {Type: "b", Rows: 2}, {Type: "c"}}, p.Latest().Types)
		require.Nil(t, p.Latest().absent())
	})
}
