package admission

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// A waiting job is cancelled. It holds up no other job, however long the execution takes for which it waited.
func TestCancelledJobHoldsUpNoOther(t *testing.T) {
	cancel := func(w *world, id int64) { w.update(func() { delete(w.rows, id) }) }
	one := func(w *world, keys string, priority int16) int64 {
		return w.insert(permits.Class{Keys: keys, Type: "x", Priority: priority}, 1)[0]
	}
	for name, test := range map[string]func(w *world) (want []int64){
		"only job of its class": func(w *world) []int64 {
			reader, writer := one(w, "cache", 0), one(w, "cache*all", 0)
			w.heard()
			w.begin(reader)
			second := one(w, "cache", 0)
			w.heard()
			require.Equal(t, []int64{reader}, w.holders())
			cancel(w, writer)
			return []int64{reader, second}
		},
		"first job of its class": func(w *world) []int64 {
			reader, writer := one(w, "cache", 0), one(w, "cache*all", 0)
			w.heard()
			w.begin(reader)
			second := one(w, "cache", 0)
			one(w, "cache*all", 0)
			w.heard()
			cancel(w, writer)
			return []int64{reader, second}
		},
		"retry": func(w *world) []int64 {
			w.setLimit(permits.Limit{Key: "cache", Capacity: 1, OnRetry: permits.Wait})
			first, second := one(w, "cache", 0), one(w, "cache", 0)
			w.heard()
			w.end(first, w.begin(first), contract.Retry, time.Hour)
			w.pass(2)
			require.Empty(t, w.holders())
			cancel(w, first)
			return []int64{second}
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				w.setLimit(permits.Limit{Key: "cache", Capacity: 3})
				want := test(w)
				w.pass(3)
				require.Equal(t, want, w.holders())
			})
		})
	}
}

// A returned row is locked, so it keeps its fence, and a read of all first jobs does not show it. The controller does not forget it: no
// younger job passes it.
func TestReturnedJobThatIsLockedIsNotForgotten(t *testing.T) {
	for name, younger := range map[string]permits.Class{
		"of its class": {Keys: "k", Type: "x", Priority: 1}, "of another class": {Keys: "k", Type: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(w *world) {
				w.setLimit(permits.Limit{Key: "k", Capacity: 2})
				first := w.insert(permits.Class{Keys: "k", Type: "x", Priority: 1}, 1)[0]
				second := w.insert(k, 1)[0]
				w.heard()
				fence, other := w.begin(first), w.begin(second)
				w.setLimit(permits.Limit{Key: "k", Capacity: 1})
				w.insert(younger, 1)
				w.pass(1)
				w.update(func() { w.fault = func(op string) fault { return fault{locked: op == "withdraw"} } })
				w.end(first, fence, contract.Crashed, 0)
				w.pass(3)
				require.Equal(t, []int64{second}, w.holders())
				w.end(second, other, contract.Succeeded, 0)
				w.heard()
				require.Equal(t, []int64{first}, w.holders())
			})
		})
	}
}

// The book forgets keys whose jobs have ended, and reads their starts again when they are needed. Their records count them.
func TestForgottenKeysKeepTheirRates(t *testing.T) {
	run(t, func(w *world) {
		w.MaxClasses = 50
		w.elect()
		w.setLimit(permits.Limit{Key: "day*", Capacity: permits.Unlimited, Rate: 1, Per: 24 * time.Hour.Microseconds()})
		class := func(i int) permits.Class { return permits.Class{Keys: fmt.Sprint("day", i), Type: "x"} }
		for i := range 10 {
			id := w.insert(class(i), 1)[0]
			w.pass(2)
			w.end(id, w.begin(id), contract.Succeeded, 0)
		}
		w.pass(3)
		require.False(t, w.Book().Knows("day0"))
		again := w.insert(class(0), 1)[0]
		w.pass(3)
		require.True(t, w.Book().Knows("day0"))
		require.Zero(t, w.rows[again].fence)
		w.judgeRates()
	})
}

// A window that is shorter than the time between two records has passed, so the book has forgotten the key. Its next job comes before the
// start is recorded: the start is recorded once.
func TestStartIsRecordedOnceIfItsKeyComesBack(t *testing.T) {
	run(t, func(w *world) {
		w.setLimit(permits.Limit{Key: "k", Capacity: permits.Unlimited, Rate: 1, Per: (200 * time.Millisecond).Microseconds()})
		for range 4 {
			id := w.insert(k, 1)[0]
			w.notify(contract.KeysChanged)
			<-time.After(20 * time.Millisecond)
			synctest.Wait()
			w.end(id, w.begin(id), contract.Succeeded, 0)
			<-time.After(250 * time.Millisecond)
			synctest.Wait()
			require.False(t, w.Book().Knows("k"))
		}
		w.pass(3)
		started, admitted := w.sum("k")
		require.Equal(t, [2]int64{4, 0}, [2]int64{started, admitted})
	})
}
