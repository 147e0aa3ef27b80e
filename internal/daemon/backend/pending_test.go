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

// portions returns the types of a table in portions of two. Each portion takes a second.
func portions(fail *bool, table ...contract.PendingType) func(context.Context, string) ([]contract.PendingType, bool, error) {
	return func(_ context.Context, after string) (part []contract.PendingType, more bool, err error) {
		<-time.After(time.Second) // in a synctest bubble
		if *fail {
			return nil, false, errors.New("no answer")
		}
		for _, t := range table {
			if t.Type > after {
				part = append(part, t)
			}
		}
		return part[:min(2, len(part))], len(part) >= 2, nil
	}
}

func TestCountOfPendingRowsTakesAFiftiethOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := false
		p := NewPending(portions(&fail, contract.PendingType{Type: "a", Rows: 1}, contract.PendingType{Type: "b", Rows: 2}, contract.PendingType{Type: "c", Rows: 3}), 0, 10)
		require.Zero(t, p.Continue(t.Context()), "the second portion follows at once")
		require.Empty(t, p.Latest().Types, "the first count is not complete")
		require.Nil(t, p.Latest().absent())
		require.Equal(t, 100*time.Second, p.Continue(t.Context()))
		count := p.Latest()
		require.Len(t, count.Types, 3)
		require.Zero(t, *count.absent())
		require.Equal(t, 2*time.Second, time.Since(count.At))

		fail = true
		require.Equal(t, 50*time.Second, p.Continue(t.Context()))
		require.Equal(t, count, p.Latest(), "a count that fails leaves the earlier one")
		require.Equal(t, 3*time.Second, time.Since(p.Latest().At), "its age grows")
		fail = false
		require.Zero(t, p.Continue(t.Context()), "the next count begins with the first type")
		p.Continue(t.Context())
		require.Len(t, p.Latest().Types, 3)
		require.Equal(t, 2*time.Second, time.Since(p.Latest().At))
	})
}

func TestPauseBetweenCountsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table []contract.PendingType
		for i := range 20 {
			table = append(table, contract.PendingType{Type: fmt.Sprintf("t%02d", i)})
		}
		p := NewPending(portions(new(bool), table...), 0, 1000)
		for range 10 {
			require.Zero(t, p.Continue(t.Context()))
		}
		require.Equal(t, maxCountPause, p.Continue(t.Context()))
		quick := NewPending(func(context.Context, string) ([]contract.PendingType, bool, error) { return nil, false, nil }, 0, 1000)
		require.Equal(t, CountInterval, quick.Continue(t.Context()))
	})
}

// A count contains a bounded number of types. It does not report 0 rows for a type that it
// left out.
func TestCountOfPendingRowsEndsAtTheLimitOfTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := []contract.PendingType{{Type: "a"}, {Type: "b"}, {Type: "c"}, {Type: "d"}}
		p := NewPending(portions(new(bool), table...), 0, 3)
		require.Zero(t, p.Continue(t.Context()))
		require.NotZero(t, p.Continue(t.Context()))
		require.Equal(t, table[:3], p.Latest().Types)
		require.Nil(t, p.Latest().absent())
	})
}
