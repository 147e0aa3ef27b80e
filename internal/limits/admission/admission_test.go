package admission

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/limits/limitstore"
	"github.com/dispatcherd/dispatcherd/internal/limits/permits"
)

// once makes the next statement of an operation have a fault.
func (f *tables) once(operation string, what fault) {
	f.update(func() {
		f.fault = func(op string) fault {
			if op != operation {
				return fault{}
			}
			f.fault = nil
			return what
		}
	})
}

// sum returns the recorded cost of a key: what has started, and what is admitted.
func (f *tables) sum(key string) (started, admitted int64) {
	f.update(func() {
		for p, cost := range f.starts {
			switch {
			case p.key != key:
			case p.at == limitstore.NotStarted:
				admitted += cost
			default:
				started += cost
			}
		}
	})
	return started, admitted
}

func TestASecondWithoutKeyedWorkCostsNoStatement(t *testing.T) {
	run(t, func(w *world) {
		before := w.calls() - w.calls("expire")
		for range 3600 {
			w.pass(1)
			w.notify(contract.JobsArrived)
		}
		require.Equal(t, before, w.calls()-w.calls("expire"))
		require.LessOrEqual(t, w.calls("expire"), 61)
	})
}

// An edit beside many limits reads the limit that it concerns, so its cost does not depend on the number of limits. Many edits together
// read all limits once.
func TestEditReadsOnlyTheEditedLimits(t *testing.T) {
	run(t, func(w *world) {
		w.insert(k, 4)
		w.pass(1100)
		before := w.calls("limits")
		for i := range int64(3) {
			w.setLimit(permits.Limit{Key: "k", Capacity: 2 + i})
			w.notify(contract.KeysChanged)
			w.pass(100)
			require.Len(t, w.holders(), int(2+i))
		}
		require.Equal(t, before, w.calls("limits"))
		for i := range editsMost + 1 {
			w.setLimit(permits.Limit{Key: fmt.Sprint("other", i), Capacity: 1})
		}
		w.notify(contract.KeysChanged)
		w.pass(100)
		require.Equal(t, before+1, w.calls("limits"))
	})
}

// The first job with keys is admitted after its notification, without a heartbeat.
func TestFirstJobAfterANotificationIsAdmittedAtOnce(t *testing.T) {
	run(t, func(w *world) {
		w.pass(100)
		ids := w.insert(k, 1)
		w.notify(contract.JobsArrived)
		synctest.Wait()
		require.Empty(t, w.holders(), "it concerns jobs without keys")
		w.notify(contract.KeysChanged)
		synctest.Wait()
		require.Equal(t, ids, w.holders())
		w.end(ids[0], w.begin(ids[0]), contract.Succeeded, 0)
		w.pass(5)
		before := w.calls()
		w.notify(contract.KeysChanged)
		w.pass(10)
		require.LessOrEqual(t, w.calls()-before, 6, "one read of each kind")
	})
}

// Other dispatchers are alive, and nothing changes. The permits are read each second.
func TestPermitsAreReadRarelyWhileNothingChanges(t *testing.T) {
	run(t, func(w *world) {
		ids := w.insert(k, 3)
		w.heard()
		fence := w.claim(ids[0], 2)
		w.pass(5)
		before := w.calls("held")
		w.pass(60)
		require.LessOrEqual(t, w.calls("held")-before, 61)
		w.finish(ids[0], fence, -1)
		w.pass(1)
		require.Equal(t, ids[1:2], w.holders(), "without a notification")
		w.pass(60)
		more := w.insert(permits.Class{Keys: "other", Type: "x"}, 2)
		w.notify(contract.KeysChanged)
		<-time.After(notifyPause)
		synctest.Wait()
		require.Equal(t, []int64{ids[1], more[0]}, w.holders())
		w.finish(more[0], w.claim(more[0], 2), -1)
		<-time.After(remotePause + notifyPause)
		synctest.Wait()
		require.Equal(t, []int64{ids[1], more[1]}, w.holders(), "the permits are read soon after an admission")
	})
}

// The permits are read after Begin, because later admissions of the former controller have no effect.
func TestLoadBeginsFirst(t *testing.T) {
	run(t, func(w *world) {
		w.insert(k, 2)
		w.heard()
		before := len(w.operations())
		w.elect()
		synctest.Wait()
		require.Equal(t, []string{"begin", "edits", "limits", "types", "unstarted", "held", "heads"}, w.operations()[before:before+7])
	})
}

// Each statement of a load may fail. The load is repeated.
func TestLoadIsRepeatedAfterAFailure(t *testing.T) {
	for _, operation := range []string{"begin", "edits", "limits", "types", "unstarted", "held", "heads"} {
		for _, f := range []fault{{refused: true}, {lost: true}} {
			run(t, func(w *world) {
				ids := w.insert(k, 2)
				w.once(operation, f)
				w.elect()
				w.pass(2)
				require.Nil(t, w.fault)
				require.Equal(t, ids[:1], w.holders(), operation)
			})
		}
	}
}

// The answer to an admission is lost. The row has its permit, and no other gets it.
func TestLostAnswerOfAnAdmissionAdmitsNoOtherJob(t *testing.T) {
	for _, f := range []fault{{refused: true}, {lost: true}} {
		run(t, func(w *world) {
			w.once("admit", f)
			ids := w.insert(k, 3)
			begins := w.calls("begin")
			w.pass(2)
			require.Equal(t, begins+1, w.calls("begin"))
			for _, id := range ids {
				require.Equal(t, []int64{id}, w.holders())
				w.end(id, w.begin(id), contract.Succeeded, 0)
				w.awaitReports()
			}
		})
	}
}

// Attack 11: another dispatcher has taken the role. The former controller learns it from its next admission, or from a heartbeat.
func TestAFormerControllerStops(t *testing.T) {
	run(t, func(w *world) {
		w.tables.elect(2, func() {})
		w.update(func() { w.admissions++ })
		ids := w.insert(k, 1)
		w.Beat(background.Beat{Term: w.term, Found: contract.KeysWait, Clock: w.tables.now(), Read: time.Now()}) // it read the role before
		w.awaitReports()
		require.Equal(t, 1, w.calls("admit"))
		require.Empty(t, w.holders())
		w.heard()
		before := w.calls()
		w.pass(600)
		require.Equal(t, before, w.calls())
		w.elect()
		w.awaitReports()
		require.Equal(t, ids, w.holders())
	})
}

// The end of a job is reported in memory. The next one is admitted in the same step, without a read.
func TestNextJobIsAdmittedWhenTheEndIsRecorded(t *testing.T) {
	run(t, func(w *world) {
		ids := w.insert(k, 20)
		w.heard()
		reads := w.calls() - w.calls("admit")
		for _, id := range ids[:15] {
			require.Equal(t, []int64{id}, w.holders())
			w.end(id, w.begin(id), contract.Succeeded, 0)
			synctest.Wait()
		}
		require.Equal(t, ids[15:16], w.holders())
		require.Equal(t, reads, w.calls()-w.calls("admit"), "no time has passed")
	})
}

// Attack 12: an end has an unknown outcome, is stale, or is deferred. The permit is kept until the end is recorded.
func TestPermitIsKeptUntilTheEndIsRecorded(t *testing.T) {
	run(t, func(w *world) {
		ids := w.insert(k, 2)
		w.heard()
		id, fence := ids[0], w.begin(ids[0])
		item := contract.Finish{ID: dispatcherd.JobID(id), Outcome: contract.Succeeded, Fence: fence}
		request := &contract.FinishRequest{Items: []contract.Finish{item}}
		for _, result := range []contract.FinishResult{
			{Verdict: contract.Unknown}, {Verdict: contract.Refused}, {Stale: []dispatcherd.JobID{item.ID}},
			{Deferred: []contract.Deferred{{ID: item.ID}}},
		} {
			w.Finished(request, &result)
			w.pass(2)
			require.Equal(t, ids[:1], w.holders(), "%+v", result)
			require.Zero(t, w.rows[ids[1]].fence)
		}
		w.Finished(&contract.FinishRequest{Items: []contract.Finish{{ID: item.ID, Fence: fence - 1}}}, &contract.FinishResult{})
		w.awaitReports()
		require.Equal(t, ids[:1], w.holders(), "a stale execution returns no permit")
		w.end(id, fence, contract.Succeeded, 0)
		w.awaitReports()
		require.Equal(t, ids[1:], w.holders())
	})
}

// Attack 10 and 15: other dispatchers claim, adopt and end jobs. The controller reads it, also without reports.
func TestPermitsOfOtherDispatchersAreRead(t *testing.T) {
	run(t, func(w *world) {
		w.setLimit(permits.Limit{Key: "k", Capacity: 2})
		ids := w.insert(k, 6)
		w.pass(1)
		require.Equal(t, ids[:2], w.holders())
		fence := w.claim(ids[0], 2)
		require.Positive(t, fence)
		w.update(func() { w.rows[ids[0]].dispatcher = 3 }) // adopted
		w.pass(2)
		require.Equal(t, ids[:2], w.holders(), "it is counted once")
		w.finish(ids[0], fence, -1)
		w.pass(1)
		require.Equal(t, ids[1:3], w.holders())
		w.elect() // a takeover
		w.awaitReports()
		require.Equal(t, ids[1:3], w.holders())
		w.update(func() { delete(w.rows, ids[1]) }) // attack 22: cancelled while admitted
		w.pass(1)
		require.Equal(t, ids[2:4], w.holders())
	})
}

// Attack 9 and 14: a job is pending again, because its worker or dispatcher is lost. Its permit is free, and its next fence is higher.
func TestReturnedJobIsAdmittedAgainWithAHigherFence(t *testing.T) {
	run(t, func(w *world) {
		ids := w.insert(k, 2)
		w.heard()
		fence := w.begin(ids[0])
		w.finish(ids[0], fence, 0) // another dispatcher releases the row
		w.pass(1)
		require.Equal(t, ids[:1], w.holders(), "it is the first one again")
		next := w.begin(ids[0])
		require.Greater(t, next, fence)
		w.end(ids[0], fence, contract.Succeeded, 0)
		w.awaitReports()
		require.Equal(t, ids[:1], w.holders(), "the report of the stale execution returns no permit")
		w.end(ids[0], next, contract.Crashed, 0)
		w.awaitReports()
		require.Equal(t, ids[:1], w.holders())
		w.end(ids[0], w.begin(ids[0]), contract.Retry, time.Minute)
		w.awaitReports()
		require.Equal(t, ids[1:], w.holders(), "others pass a retry")
		require.Zero(t, w.rows[ids[0]].fence, "it waits")
	})
}

// A book has assigned as many fences as it may. The next one begins with a new number, so fences still increase.
func TestFencesOfANumberAreNotExhausted(t *testing.T) {
	run(t, func(w *world) {
		ids := w.insert(k, 2)
		w.heard()
		begins := w.calls("begin")
		fence := w.begin(ids[0]) + fencesMost
		w.update(func() { w.rows[ids[0]].fence = fence })
		w.pass(2)
		require.Equal(t, begins+1, w.calls("begin"))
		w.end(ids[0], fence, contract.Succeeded, 0)
		w.awaitReports()
		require.Equal(t, ids[1:], w.holders())
		require.Greater(t, w.rows[ids[1]].fence, fence)
		require.Equal(t, w.admissions, w.rows[ids[1]].fence>>32)
	})
}

// Attack 14: the only dispatcher that may claim an admitted job dies. Long before it is declared lost, the job has its permits on
// another dispatcher, also after a takeover.
func TestPermitOfADeadDispatcherReturnsWithinFiveSeconds(t *testing.T) {
	for _, takeover := range []bool{false, true} {
		run(t, func(w *world) {
			w.setLimit(permits.Limit{Key: "k", Capacity: 1, Scope: permits.Dispatcher})
			w.update(func() { w.types["x"] = limitstore.Type{Slots: 8, Dispatchers: []int32{1, 2}} })
			w.pass(1)
			ids := w.insert(k, 2)
			w.pass(10)
			require.Equal(t, ids, w.holders())
			require.EqualValues(t, 2, w.rows[ids[1]].dispatcher)
			w.end(ids[0], w.begin(ids[0]), contract.Succeeded, 0)
			w.dead = 2
			if takeover {
				w.elect()
			}
			w.pass(5)
			require.Equal(t, ids[1:], w.holders())
			require.EqualValues(t, 1, w.rows[ids[1]].dispatcher)
			w.dead = 0
			w.begin(ids[1])
			next := w.insert(k, 1)
			w.pass(2)
			require.EqualValues(t, 2, w.rows[next[0]].dispatcher, "it was alive")
		})
	}
}

// The first job of a class has returned when a controller takes over. The others of the class are known nevertheless.
func TestReturnedJobHidesNoOtherAfterATakeover(t *testing.T) {
	run(t, func(w *world) {
		ids := w.insert(k, 3)
		w.heard()
		fence := w.begin(ids[0])
		w.setLimit(permits.Limit{Key: "k", Capacity: 3})
		w.finish(ids[0], fence, 0)
		w.elect()
		synctest.Wait()
		require.Equal(t, ids, w.holders())
	})
}

// Attack 21: no job passes one that waits for its retry, also after a takeover.
func TestSequenceWaitsForARetry(t *testing.T) {
	run(t, func(w *world) {
		w.setLimit(permits.Limit{Key: "k", Capacity: 1, OnRetry: permits.Wait})
		ids := w.insert(k, 2)
		w.heard()
		w.end(ids[0], w.begin(ids[0]), contract.Retry, time.Minute)
		w.pass(20)
		require.Empty(t, w.holders())
		w.elect()
		w.pass(20)
		require.Empty(t, w.holders())
		w.pass(21)
		require.Equal(t, ids[:1], w.holders())
		w.end(ids[0], w.begin(ids[0]), contract.Retry, time.Hour)
		w.pass(2)
		require.Empty(t, w.holders())
		w.setLimit(permits.Limit{Key: "k", Capacity: 1})
		w.pass(2)
		require.Equal(t, ids[1:], w.holders(), "the limit ends the sequence")
	})
}

// The first job of a sequence is locked when it is admitted again. No other event makes the controller look for it, and no other job
// passes it.
func TestLockedRetryIsAdmittedLater(t *testing.T) {
	run(t, func(w *world) {
		w.setLimit(permits.Limit{Key: "k", Capacity: 1, OnRetry: permits.Wait})
		ids := w.insert(k, 1)
		w.heard()
		fence := w.begin(ids[0])
		w.insert(k, 1)
		w.heard()
		w.once("admit", fault{locked: true})
		w.end(ids[0], fence, contract.Crashed, 0)
		w.awaitReports()
		w.pass(2)
		require.Equal(t, ids, w.holders())
		require.Equal(t, 3, w.calls("admit"))
	})
}

// Attack 8: an admitted job finds no slot while a job of another type needs the key. It is withdrawn, and passed for the patience.
func TestAdmittedJobWithoutASlotIsWithdrawn(t *testing.T) {
	run(t, func(w *world) {
		first := w.insert(permits.Class{Keys: "k", Type: "y"}, 1)
		w.heard()
		require.Equal(t, first, w.holders())
		second := w.insert(k, 1)
		w.pass(1)
		require.Equal(t, second, w.holders())
		w.end(second[0], w.begin(second[0]), contract.Succeeded, 0)
		w.pass(3)
		require.Equal(t, first, w.holders())
	})
}

// Attack 13: the row was claimed before it was withdrawn. It keeps its permit.
func TestClaimedJobIsNotWithdrawn(t *testing.T) {
	run(t, func(w *world) {
		first := w.insert(permits.Class{Keys: "k", Type: "y"}, 1)
		w.heard()
		w.insert(k, 1)
		w.heard()
		fence := w.claim(first[0], 2)
		require.Positive(t, fence)
		w.pass(10)
		require.Equal(t, first, w.holders())
	})
}

// The row ran on another dispatcher and returned before it was withdrawn. Its start counts, and it waits with its new time.
func TestReturnedJobIsNotWithdrawnAsUnstarted(t *testing.T) {
	run(t, func(w *world) {
		w.alone = true // so the permits are read each second only
		w.setLimit(permits.Limit{Key: "k", Capacity: 1, Rate: 10, Per: time.Hour.Microseconds()})
		first := w.insert(permits.Class{Keys: "k", Type: "y"}, 1)
		w.heard()
		second := w.insert(k, 1)
		w.update(func() {
			w.fault = func(operation string) fault {
				if operation == "withdraw" { // it runs and returns after the read of permits
					r := w.rows[first[0]]
					if !r.running && r.fence > 0 {
						r.fence, r.RunAt = -r.fence, w.tables.now().Add(20*time.Second).UnixMicro()
					}
				}
				return fault{}
			}
		})
		w.pass(3)
		require.Equal(t, second, w.holders())
		w.end(second[0], w.begin(second[0]), contract.Succeeded, 0)
		w.pass(10)
		started, admitted := w.sum("k")
		require.Equal(t, [2]int64{2, 0}, [2]int64{started, admitted})
		w.pass(10)
		require.Equal(t, first, w.holders())
	})
}

// Attack 1 and 4: a limit is lowered, paused and raised while jobs run.
func TestEditedLimitApplies(t *testing.T) {
	run(t, func(w *world) {
		w.setLimit(permits.Limit{Key: "k", Capacity: 10})
		ids := w.insert(k, 40)
		w.pass(1)
		require.Equal(t, ids[:10], w.holders())
		fences := map[int64]int64{}
		for _, id := range ids[:10] {
			fences[id] = w.begin(id)
		}
		w.setLimit(permits.Limit{Key: "k", Capacity: 2})
		w.pass(1)
		for _, id := range ids[:8] {
			w.end(id, fences[id], contract.Succeeded, 0)
		}
		w.pass(1)
		require.Equal(t, ids[8:10], w.holders())
		w.setLimit(permits.Limit{Key: "k"})
		w.pass(1)
		w.end(ids[8], fences[ids[8]], contract.Succeeded, 0)
		w.end(ids[9], fences[ids[9]], contract.Succeeded, 0)
		w.pass(5)
		require.Empty(t, w.holders())
		w.setLimit(permits.Limit{Key: "k", Capacity: permits.Unlimited})
		w.pass(1)
		require.Equal(t, ids[10:], w.holders())
	})
}

// Ten jobs are admitted and none has started when the key is paused: the step that reads the edit withdraws them. When the key goes on,
// they are admitted in their order.
func TestEditWithdrawsInTheSameStep(t *testing.T) {
	run(t, func(w *world) {
		w.setLimit(permits.Limit{Key: "k", Capacity: 10})
		ids := w.insert(k, 12)
		w.pass(1)
		require.Equal(t, ids[:10], w.holders())
		w.setLimit(permits.Limit{Key: "k"})
		w.notify(contract.KeysChanged)
		<-time.After(notifyPause)
		synctest.Wait()
		require.Empty(t, w.holders())
		require.Zero(t, w.claim(ids[0], 2), "no dispatcher may claim it")
		w.setLimit(permits.Limit{Key: "k", Capacity: 3})
		w.notify(contract.KeysChanged)
		<-time.After(notifyPause)
		synctest.Wait()
		require.Equal(t, ids[:3], w.holders())
	})
}

// Attack 17: a rate of one per hour, and takeovers. The record of a start is neither lost nor counted twice, whether it
// was confirmed before, or the job still runs.
func TestTakeoverForgetsNoStart(t *testing.T) {
	for _, wait := range []int{0, 5} { // seconds until the takeover; starts are confirmed within one
		for _, ends := range []bool{false, true} {
			run(t, func(w *world) {
				w.alone = true
				w.setLimit(permits.Limit{Key: "k", Capacity: permits.Unlimited, Rate: 2, Per: time.Hour.Microseconds()})
				ids := w.insert(k, 1)
				w.heard()
				fence := w.begin(ids[0])
				if ends {
					w.end(ids[0], fence, contract.Succeeded, 0)
				}
				w.pass(wait)
				for range 3 {
					w.elect()
					w.pass(5)
					started, admitted := w.sum("k")
					require.Equal(t, [2]int64{1, 0}, [2]int64{started, admitted}, "wait %d ends %t", wait, ends)
				}
				more := w.insert(k, 3)
				w.pass(2)
				fence = w.rows[more[0]].fence
				require.Positive(t, fence, "the rate admits one more")
				require.Zero(t, w.rows[more[1]].fence)
				w.end(more[0], w.begin(more[0]), contract.Succeeded, 0)
				w.elect()
				w.skip(3500 * time.Second)
				require.Zero(t, w.rows[more[1]].fence)
				w.elect()
				w.skip(200 * time.Second)
				require.Positive(t, w.rows[more[1]].fence)
				w.judgeRates()
			})
		}
	}
}

// A rate is set, or removed, while jobs are admitted that have not started. Their starts count from then on, and the record of
// what is admitted contains what was admitted with a rate.
func TestRateEditedBeforeStartsKeepsTheRecord(t *testing.T) {
	run(t, func(w *world) {
		rated := permits.Limit{Key: "k", Capacity: permits.Unlimited, Rate: 60, Per: time.Hour.Microseconds()}
		w.setLimit(permits.Limit{Key: "k", Capacity: permits.Unlimited})
		w.pass(1)
		without := w.insert(k, 50)
		w.heard()
		w.setLimit(rated)
		w.pass(1)
		with := w.insert(k, 2)
		w.pass(1)
		require.Equal(t, append(without, with...), w.holders())
		record := func(started, admitted int64) {
			t.Helper()
			w.pass(2)
			s, a := w.sum("k")
			require.Equal(t, [2]int64{started, admitted}, [2]int64{s, a})
		}
		record(0, 2)
		for _, id := range without {
			w.begin(id)
		}
		record(50, 2)
		w.setLimit(permits.Limit{Key: "k", Capacity: permits.Unlimited})
		w.pass(1)
		w.begin(with[0])
		record(50, 1)
		w.setLimit(rated)
		w.pass(1)
		w.begin(with[1])
		record(51, 0)
	})
}

// Attack 16: the database clock is set by an hour. The permits are read again. The window holds by the clock that was not set.
func TestClockChangesExceedNoWindow(t *testing.T) {
	run(t, func(w *world) {
		w.setLimit(permits.Limit{Key: "k", Capacity: permits.Unlimited, Rate: 1, Per: time.Minute.Microseconds()})
		w.insert(k, 20)
		w.update(func() {
			for _, r := range w.rows {
				r.RunAt -= 2 * time.Hour.Microseconds() // they are due by each clock
			}
		})
		loads := w.calls("begin")
		for i := range 300 {
			w.pass(1)
			for _, id := range w.holders() {
				w.end(id, w.begin(id), contract.Succeeded, 0)
			}
			if i == 90 {
				w.update(func() { w.offset = -time.Hour })
			}
		}
		require.Equal(t, loads+1, w.calls("begin"))
		w.judgeRates()
		require.GreaterOrEqual(t, len(w.startedAt["k"]), 4)
		w.update(func() { w.offset = 0 })
		w.pass(5)
		require.Equal(t, loads+2, w.calls("begin"))
	})
}

// More jobs arrive than one statement reads.
func TestBurstOfArrivalsIsAdmitted(t *testing.T) {
	run(t, func(w *world) {
		w.update(func() {
			w.types["x"] = limitstore.Type{Slots: 10_000, Dispatchers: []int32{1}}
		})
		w.setLimit(permits.Limit{Key: "k", Capacity: permits.Unlimited})
		w.pass(1)
		ids := w.insert(k, arriveMost+100)
		w.pass(2)
		require.Equal(t, ids, w.holders())
		require.LessOrEqual(t, w.calls("begin"), 1)
	})
}

// insertLate inserts n rows of a class, of which it returns one that is not committed yet, and a function that commits it.
func (f *tables) insertLate(class permits.Class, n, late int) (ids []int64, commit func()) {
	ids = f.insert(class, n)
	var r *row
	f.update(func() {
		r = f.rows[ids[late]]
		delete(f.rows, r.ID)
	})
	return ids, func() {
		f.update(func() {
			r.since = time.Now()
			f.rows[r.ID] = r
		})
	}
}

// A job is committed after jobs with larger ids were read, and it is not the first of its class. It is known within a second,
// so neither its class nor another one passes it.
func TestJobThatIsCommittedLateKeepsItsPlace(t *testing.T) {
	for _, waits := range []int{2, 3 * arriveMost} {
		run(t, func(w *world) {
			ids, commit := w.insertLate(k, 3+waits, 2)
			other := w.insert(permits.Class{Keys: "k", Type: "y"}, 1)[0]
			w.heard()
			w.pass(2)
			commit()
			w.pass(2)
			for _, id := range ids[:2] {
				require.Equal(t, []int64{id}, w.holders())
				w.end(id, w.begin(id), contract.Succeeded, 0)
				synctest.Wait()
			}
			require.Equal(t, ids[2:3], w.holders())
			require.Zero(t, w.rows[other].fence)
		})
	}
}

// A transaction inserts two jobs of a key before the heads of the classes are read. The statement that reads
// them returns only the class of the later job. The earlier one is admitted first.
func TestHeadsThatAreReadInPortionsKeepTheOrderOfAKey(t *testing.T) {
	run(t, func(w *world) {
		for i := range headsMost {
			w.setLimit(permits.Limit{Key: fmt.Sprintf("b%04d", i), Capacity: 0})
			w.insert(permits.Class{Keys: fmt.Sprintf("b%04d", i), Type: "x"}, 1)
		}
		w.heard()
		w.pass(3)
		var earlier, later int64
		w.update(func() {
			w.fault = func(op string) fault {
				if op == "heads" && earlier == 0 {
					for _, keys := range []string{"k", "a k"} {
						w.lastID++
						w.rows[w.lastID] = &row{
							Class: permits.Class{Keys: keys, Type: "x"},
							Job:   permits.Job{RunAt: w.tables.now().UnixMicro(), ID: w.lastID},
							since: time.Now(),
						}
					}
					earlier, later = w.lastID-1, w.lastID
				}
				return fault{}
			}
		})
		w.pass(3)
		require.Equal(t, []int64{earlier}, w.holders())
		require.NotZero(t, later)
	})
}

// A transaction lasts longer than ids are read again. Its job is found when it is the first of its class.
func TestJobThatIsCommittedVeryLateIsFound(t *testing.T) {
	run(t, func(w *world) {
		ids, commit := w.insertLate(k, 5, 2)
		w.heard()
		w.pass(25)
		commit()
		w.pass(5)
		for range 2 {
			id := w.holders()[0]
			w.end(id, w.begin(id), contract.Succeeded, 0)
			w.pass(2)
		}
		require.Contains(t, w.holders(), ids[2])
	})
}

// The book has room for two classes. Jobs of further classes are found when a class has no more jobs.
func TestClassesBeyondTheBoundAreFoundLater(t *testing.T) {
	run(t, func(w *world) {
		w.MaxClasses = 2
		w.elect()
		w.pass(1)
		total := 0
		for i := range 8 {
			class := k
			class.Keys = string(rune('a' + i))
			total += len(w.insert(class, 3))
		}
		for range 200 {
			w.pass(1)
			for _, id := range w.holders() {
				if fence := w.begin(id); fence > 0 {
					w.end(id, fence, contract.Succeeded, 0)
				}
			}
		}
		require.Empty(t, w.rows)
		require.Len(t, w.admitted, total)
	})
}

// Questions are answered while there is a book only, and never block for longer than a statement.
func TestAskWhileLoading(t *testing.T) {
	run(t, func(w *world) {
		classes := -1
		ask := func() bool { return w.ask(func(b *permits.Book) { classes = b.Classes() }) }
		require.True(t, ask())
		require.Zero(t, classes)
		w.once("held", fault{delay: 10 * time.Second})
		w.elect()
		synctest.Wait()
		require.False(t, ask(), "the permits are being read")
		w.pass(11)
		require.True(t, ask())
		w.once("heads", fault{delay: 10 * time.Second})
		w.insert(k, 1)
		w.heard()
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		_ = w.Between(ctx, ServiceName, func() {})
		w.pass(12)
		require.True(t, ask())
	})
}

// Dispatchers that are not the controller notify it when jobs with keys end there.
func TestEndsOnOtherDispatchersNotifyTheController(t *testing.T) {
	run(t, func(w *world) {
		ctx, cancel := context.WithCancel(w.t.Context())
		other := w.start(ctx, 2, 0)
		other.beat()
		ids := w.insert(k, 2)
		w.heard()
		fence := other.begin(ids[0])
		w.pass(3)
		other.end(ids[0], fence, contract.Succeeded, 0)
		<-time.After(5 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, ids[1:], w.holders())
		require.Equal(t, 1, w.calls("notify"))
		require.True(t, slices.Contains(w.operations(), "notify"))
		cancel()
		other.stop()
	})
}

// A daemon that is not the controller keeps no reports.
func TestReportsAreForgottenWithoutTheRole(t *testing.T) {
	run(t, func(w *world) {
		w.tables.elect(2, func() {})
		w.heard()
		for range 1000 {
			w.Claimed([]contract.Won{{ID: 1, Delivery: contract.Delivery{Fence: 1}}})
			<-time.After(time.Millisecond)
		}
		synctest.Wait()
		w.kept(func(n int) { require.LessOrEqual(t, n, 1) })
	})
}

// kept calls f with the number of reports that are kept.
func (w *world) kept(f func(n int)) {
	c := w.Controller
	c.mu.Lock()
	defer c.mu.Unlock()
	f(len(c.reports))
}
