package admission

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitstore"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// delay makes each statement of an operation take a time.
func (f *tables) delay(operation string, d time.Duration) {
	f.update(func() {
		f.fault = func(op string) (f fault) {
			if op == operation {
				f.delay = d
			}
			return f
		}
	})
}

// Each admitted job starts at once, so that further ones always have room. A pause applies nevertheless, and questions are answered.
func TestPauseAppliesWhileJobsStartAtOnce(t *testing.T) {
	run(t, func(w *world) {
		w.setLimit(permits.Limit{Key: "k", Capacity: permits.Unlimited})
		w.pass(1)
		w.Announce = func(rows []contract.RowNotification) {
			for i := range rows {
				w.begin(int64(rows[i].Key.ID))
			}
			if w.calls("admit") == 3 {
				w.setLimit(permits.Limit{Key: "k"})
			}
		}
		w.delay("admit", 10*time.Millisecond)
		ids := w.insert(k, 3000)
		w.heard()
		require.True(t, w.ask(func(*permits.Book) {}))
		require.LessOrEqual(t, w.calls("admit"), 2*decideMost)
		w.pass(5)
		require.LessOrEqual(t, w.calls("admit"), 2*decideMost)
		require.NotEqual(t, ids, w.holders())
		w.setLimit(permits.Limit{Key: "k", Capacity: permits.Unlimited})
		w.pass(10)
		require.Equal(t, ids, w.holders())
	})
}

// Many portions of jobs or of old records are read or deleted. Between two of them, a job that ends hands on its permit.
func TestPortionsDelayNoHandOff(t *testing.T) {
	for operation, begin := range map[string]func(w *world){
		"arrived": func(w *world) {
			w.insert(permits.Class{Keys: "many", Type: "x"}, 4*arriveMost)
			w.notify(contract.KeysChanged)
		},
		"expire": func(w *world) {
			w.update(func() { w.old = 50 })
			w.pass(60)
		},
	} {
		run(t, func(w *world) {
			ids := w.insert(k, 2)
			w.heard()
			fence := w.begin(ids[0])
			w.pass(1)
			w.delay(operation, 500*time.Millisecond)
			begin(w)
			last := w.insert(permits.Class{Keys: "last", Type: "x"}, 1)
			<-time.After(2 * notifyPause) // the first portion is being read
			w.end(ids[0], fence, contract.Succeeded, 0)
			<-time.After(1200 * time.Millisecond)
			synctest.Wait()
			require.Contains(t, w.holders(), ids[1], operation)
			w.pass(5)
			require.Contains(t, w.holders(), last[0], operation)
			w.pass(30)
			require.Zero(t, w.old)
		})
	}
}

// The only job is paused. It is not read all the time whether others arrive, but soon after a notification.
func TestJobThatWaitsLongCostsFewReads(t *testing.T) {
	run(t, func(w *world) {
		w.setLimit(permits.Limit{Key: "k"})
		w.insert(k, 1)
		w.pass(5)
		before := w.calls("arrived")
		w.pass(60)
		require.LessOrEqual(t, w.calls("arrived")-before, 180, "for each heartbeat, after a pause, and late ones")
		ids := w.insert(permits.Class{Keys: "other", Type: "x"}, 1)
		w.notify(contract.KeysChanged)
		<-time.After(notifyPause)
		synctest.Wait()
		require.Equal(t, ids, w.holders())
		next := w.insert(permits.Class{Keys: "another", Type: "x"}, 1)
		<-time.After(arrivePause)
		synctest.Wait()
		require.Equal(t, append(ids, next...), w.holders(), "without a notification, soon after another one")
	})
}

// A read takes 0.3 s. It is repeated every three seconds.
func TestReadsTakeATenthOfTheTime(t *testing.T) {
	for _, operation := range []string{"held", "heads"} {
		run(t, func(w *world) {
			w.insert(k, 2)
			w.pass(1)
			w.delay(operation, 300*time.Millisecond)
			before := w.calls(operation)
			w.pass(300)
			require.InDelta(t, 100, w.calls(operation)-before, 5, operation)
		})
	}
}

// A read waits for a connection. The next one follows within the longest pause.
func TestOneSlowReadDelaysTheNextOneByABoundedTime(t *testing.T) {
	for _, operation := range []string{"held", "heads"} {
		run(t, func(w *world) {
			w.insert(k, 2)
			w.pass(1)
			w.once(operation, fault{delay: 3500 * time.Millisecond})
			w.pass(2)
			before := w.calls(operation)
			<-time.After(3500*time.Millisecond + slowMost)
			w.pass(1)
			require.Greater(t, w.calls(operation), before, operation)
		})
	}
}

// Any session may notify. Notifications cause a bounded number of reads.
func TestForgedNotificationsCostFewStatements(t *testing.T) {
	run(t, func(w *world) {
		w.insert(k, 2)
		w.heard()
		before := w.calls("arrived")
		for range 10_000 {
			w.notify(contract.KeysChanged)
			<-time.After(100 * time.Microsecond)
		}
		require.LessOrEqual(t, w.calls("arrived")-before, int(time.Second/notifyPause)+50)
		w.delay("held", time.Second)
		before = w.calls("held")
		for range 20_000 {
			w.notify(contract.KeysChanged)
			<-time.After(time.Millisecond)
		}
		require.LessOrEqual(t, w.calls("held")-before, 11, "a read of all permits that takes a second")
	})
}

// A load ends when the book is full. The other classes are read while jobs are admitted.
func TestLoadReadsNoMoreClassesThanTheBookHasRoomFor(t *testing.T) {
	run(t, func(w *world) {
		w.MaxClasses = headsMost / 2
		for i := range 3 * headsMost {
			w.insert(permits.Class{Keys: fmt.Sprintf("k%04d", i), Type: "x"}, 1)
		}
		before := len(w.operations())
		w.elect()
		synctest.Wait()
		require.Equal(t, []string{"heads", "held"}, w.operations()[before+6:before+8])
		for range 60 {
			w.pass(1)
			for _, id := range w.holders() {
				w.end(id, w.begin(id), contract.Succeeded, 0)
			}
		}
		require.Empty(t, w.rows)
	})
}

// A type gets its first slot, and the heartbeat that follows publishes it. A job with keys that waits for the slot is admitted at once.
func TestJobIsAdmittedAfterTheHeartbeatThatPublishesItsSlot(t *testing.T) {
	run(t, func(w *world) {
		ids := w.insert(permits.Class{Keys: "k", Type: "new"}, 1)
		w.pass(3)
		require.Empty(t, w.holders())
		w.update(func() { w.types["new"] = limitstore.Type{Slots: 1, Dispatchers: []int32{1}} })
		<-time.After(200 * time.Millisecond)
		w.heard()
		require.Equal(t, ids, w.holders())
	})
}
