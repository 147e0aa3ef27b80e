package backend

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dispatcherd/dispatcherd"
	"github.com/dispatcherd/dispatcherd/actor"
	"github.com/dispatcherd/dispatcherd/actor/effect"
	"github.com/dispatcherd/dispatcherd/claim"
	"github.com/dispatcherd/dispatcherd/internal/background"
	"github.com/dispatcherd/dispatcherd/internal/contract"
	"github.com/dispatcherd/dispatcherd/internal/ondemand"
)

// silent is an actor.Performer that does nothing.
type silent struct{}

// Perform implements actor.Performer.
func (silent) Perform([]effect.Effect) {}

// Requests are answered, whether they are submitted before or after the end of the
// loop. Each is counted once.
func TestCallersAreAnsweredWhenTheLoopHasEnded(t *testing.T) {
	c := NewRequests(actor.NewActor(actor.New(actor.DefaultConfig()), nil))
	c.loop.Start(silent{})
	before, late := ondemand.AnswerTo{C: make(chan ondemand.Answer, 1)}, ondemand.AnswerTo{C: make(chan ondemand.Answer, 1)}
	c.Submit(ondemand.Request{Options: ondemand.Options{Type: "x"}, WaitCapacity: true}, before)
	c.loop.Stop()
	c.Release()
	require.Equal(t, ondemand.Stopping, (<-before.C).Kind)

	c.Submit(ondemand.Request{Options: ondemand.Options{Type: "x"}, WaitCapacity: true}, late)
	require.Equal(t, ondemand.Stopping, (<-late.C).Kind)

	submitted, ends := c.Tally()
	require.EqualValues(t, 2, submitted)
	require.Empty(t, c.waiting)
	require.EqualValues(t, 2, ends[ondemand.Stopping])
}

func TestAnswersOfTheCoreHaveTheSameNamesForCallers(t *testing.T) {
	for kind := effect.AnswerDone; kind <= effect.AnswerPaused; kind++ {
		require.Equal(t, kind.String(), ondemand.AnswerKind(kind).String())
	}
}

// begun is a caller that records whether its request started.
type begun struct {
	ondemand.AnswerTo

	slot dispatcherd.SlotID
}

// Started implements ondemand.Caller.
func (b *begun) Started(slot dispatcherd.SlotID, _ string) { b.slot = slot }

// The loop may start a request while its deadline passes. The caller must learn this,
// because its idempotency key would otherwise start the request again.
func TestAnAbandonedCallerLearnsThatItsRequestStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewRequests(actor.NewActor(actor.New(actor.DefaultConfig()), nil))
		c.loop.Start(silent{})
		defer c.loop.Stop()
		late := &begun{AnswerTo: ondemand.AnswerTo{C: make(chan ondemand.Answer, 1)}}
		id := c.Submit(ondemand.Request{Options: ondemand.Options{Type: "x"}, WaitCapacity: true}, late)
		gone := make(chan struct{})
		c.loop.Ask(func(*actor.Core) { // the loop is busy
			go func() {
				defer close(gone)
				c.Abandon(id)
			}()
			synctest.Wait()
			c.Started(&effect.Started{Job: id, Slot: 7})
		})
		<-gone
		require.EqualValues(t, 7, late.slot)
		submitted, ends := c.Tally()
		require.EqualValues(t, 1, submitted)
		require.Empty(t, c.waiting)
		require.EqualValues(t, 1, ends[0])
	})
}

// The row of a durable request stays when the dispatcher stops. The row also stays if
// its insertion is in flight, or if its caller disconnects. The caller learns the id.
func TestDurableRequestsOutliveTheirDispatcher(t *testing.T) {
	rows := NewRows(nil, time.Second, nil, func(contract.Topics) {})
	before, late := ondemand.AnswerTo{C: make(chan ondemand.Answer, 1)}, ondemand.AnswerTo{C: make(chan ondemand.Answer, 1)}
	rows.watch(1, before, true, false)
	rows.Release()
	rows.watch(2, late, true, false)
	require.Equal(t, theRowStays, <-before.C)
	require.Equal(t, theRowStays, <-late.C)
	begun, ends := rows.Tally()
	require.EqualValues(t, 2, begun)
	require.EqualValues(t, 2, ends[ondemand.Stopping])
	require.Empty(t, rows.ids(false))

	stopping, stop := context.WithCancel(t.Context())
	stop()
	New(Config{Rows: rows, Stopping: stopping}).Abandon(2, late) // a statement would panic
}

// An end at another dispatcher that a read finds counts when that dispatcher has reported it, because its last reports may be on their way.
func TestEndElsewhereWaitsForItsReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := NewRows(nil, time.Second, nil, func(contract.Topics) {})
		done := &claim.State{ID: 1, Status: dispatcherd.Done, Attempt: 1}
		for _, reported := range []bool{true, false} {
			c := ondemand.AnswerTo{C: make(chan ondemand.Answer, 1)}
			rows.watch(1, c, true, false)
			rows.changed(done, false)
			require.Empty(t, c.C)
			if reported {
				rows.report(&claim.DistantReport{ID: 7, Job: 1, Attempt: 1, Name: ended})
			} else {
				time.Sleep(reportsPatience) // the report is lost
			}
			rows.changed(done, false)
			require.Equal(t, ondemand.Done, (<-c.C).Kind)
		}
	})
}

// A distant caller's events wait in memory up to a bound, the end in any case.
func TestEventsForDistantCallersAreBounded(t *testing.T) {
	rows := NewRows(nil, time.Second, nil, func(contract.Topics) {})
	rows.Claimed([]contract.Won{{ID: 1, Left: time.Minute}, {ID: 2}})
	part := &ondemand.Event{Name: "partial", Data: make([]byte, 1<<20)}
	for range 10 {
		rows.tell(1, part)
		rows.tell(2, part) // no durable request
	}
	rows.tell(1, &ondemand.Event{Name: ended})
	rows.tell(1, part)
	require.Len(t, rows.distant.reports, 6)
	require.EqualValues(t, 5, rows.Dropped.Load())
	require.Empty(t, rows.distant.running)
	for i := range MaxDistant + 10 {
		rows.Claimed([]contract.Won{{ID: dispatcherd.JobID(i), Left: time.Minute}})
	}
	require.Len(t, rows.distant.running, MaxDistant)
	require.EqualValues(t, 15, rows.Dropped.Load(), "the callers of ten requests get no events")
	rows.distant.reports = nil
	_, err := rows.writeReports(t.Context(), background.Now{At: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.Empty(t, rows.distant.running, "no caller waits after the deadline")
}

// During a pause of rows a request would become a row that waits, although requests are not paused.
func TestRequestOfAPausedTypeBecomesNoRow(t *testing.T) {
	w := &slowSlots{}
	w.open(t, 1)
	others := map[string]int{"mail": 1}
	b := New(Config{Loop: w.loop, Others: func() map[string]int { return others }})
	w.loop.Order(actor.ClusterCapacity{Capacity: others})
	require.True(t, b.Elsewhere("mail"))
	w.loop.Order(actor.Controlled{Pauses: []contract.Pause{{Type: "mail", What: contract.PauseQueued}}})
	require.False(t, b.Elsewhere("mail"))
}
